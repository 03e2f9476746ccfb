//! The Metal device, written against Metal's own few objects ([`api`]): Apple's, or the simulator's, which run the kernels' text on the CPU and
//! check it.
//!
//! A kernel's Metal form is compiled when it is first used. A command list becomes one command buffer, or several if it is long; between two
//! barriers, which come from what the commands read and write, a device may run them side by side. Completion is reported by the command buffers'
//! handlers. Errors of execution, which over the simulator are its findings, are read from the list's completion.

pub mod api;
#[cfg(target_vendor = "apple")]
mod apple;
mod backend;
mod capture;
pub mod chips;
mod compile;
mod encode;
mod error_flag;
mod hazards;
mod memory;
mod requirements;
mod residency;
#[cfg(target_os = "linux")]
mod simulated;
mod staging;
mod submission;

#[cfg(target_vendor = "apple")]
pub use apple::Apple;
pub use backend::MetalBackend;
#[cfg(target_os = "linux")]
pub use elinvar_sim::{Counters, Subnormals, Traffic};
#[cfg(target_os = "linux")]
pub use simulated::{Meter, Seed, Simulated, SimulatorOptions, SystemMemory};
pub use submission::BatchLimits;
