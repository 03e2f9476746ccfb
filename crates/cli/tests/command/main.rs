//! The command as a user runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod atlas;
#[cfg(feature = "embedded-model")]
mod batch;
mod check;
mod compiled;
mod contained;
mod cuda;
mod doctor;
mod embed;
#[cfg(feature = "embedded-model")]
mod groups;
mod launch;
#[cfg(feature = "embedded-model")]
mod lora;
mod models;
#[cfg(all(unix, feature = "embedded-model"))]
mod processes;
mod profile;
#[cfg(feature = "embedded-model")]
mod serve;

/// A launch of a kernel over random numbers.
#[cfg(feature = "embedded-model")]
const LAUNCH: &[&str] = &[
    "launch",
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/scale.metal"),
    "--kernel",
    "scale",
    "--grid",
    "4",
    "--threadgroup",
    "64",
    "--buffer",
    "x=f32:250",
    "--buffer",
    "out=f32:250",
    "--value",
    "n=u32:250",
];
