//! The command as a user runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod atlas;
mod check;
mod contained;
mod cuda;
mod doctor;
mod launch;
mod models;
mod profile;
