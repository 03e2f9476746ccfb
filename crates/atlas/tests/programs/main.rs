//! Programs: their forms, what they compute, what they become.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;
mod instructions;
mod interpret;
mod random;
mod render;
mod text;
