//! The server over real sockets, on the model that is in the repository.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests fail like tests")]

mod adapters;
mod chat;
mod client;
mod completions;
mod limits;
mod messages;
mod page;
mod responses;
mod structured;
