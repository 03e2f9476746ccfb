//! The CPU device.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod gradients;
mod levels;
mod lists;
mod operators;
mod registry;

/// Held for writing while the level of instructions is lower than it might be, for reading where that would change results: those of fast precision.
static LEVEL: std::sync::RwLock<()> = std::sync::RwLock::new(());
