//! The library on the CPU, the null device and the simulator.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod autograd;
mod compositions;
#[allow(unreachable_pub, reason = "what an example has in public")]
mod examples;
mod executor;
mod fusion;
mod gradients;
mod groups;
mod metal;
mod tensors;
