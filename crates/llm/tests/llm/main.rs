//! The crate as its users see it: real text from a trained model, every architecture against a plain computation, bad input.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod architectures;
mod bad_input;
mod cache;
mod decoding;
mod engine;
mod fixture;
mod generation;
mod groups;
mod memory;
mod oracle;
mod shakespeare;
