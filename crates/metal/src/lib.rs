//! The Metal device, written against Metal's own few objects ([`api`]): the simulator's, which run the kernels' text on the CPU and check it.
//!
//! A kernel's Metal form is compiled when it is first used; a command list becomes one command buffer; completion is told by the command
//! buffer's handler. Errors of execution, which over the simulator are its findings, are read from the list's completion.

pub mod api;
mod backend;
mod refusal;
#[cfg(target_os = "linux")]
mod simulated;

pub use backend::MetalBackend;
#[cfg(target_os = "linux")]
pub use simulated::{Seed, Simulated, SimulatorOptions};
