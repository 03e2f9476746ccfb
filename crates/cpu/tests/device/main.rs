//! The CPU device.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod lists;
