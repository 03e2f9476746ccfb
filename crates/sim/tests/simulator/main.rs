//! The simulator: what it finds, and what it leaves alone.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod cache;
mod common;
mod compiled;
mod execution;
mod nonuniform;
mod planted;
mod rejections;
mod rules;
mod subnormals;
mod vocabulary;
