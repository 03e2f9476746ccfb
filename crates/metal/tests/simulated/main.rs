//! The Metal device over the simulator.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod adapter;
mod conformance;
mod device;
mod forgetful;
mod hazards;
mod math;
mod nvidia;
mod rejections;
