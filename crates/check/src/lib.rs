//! Checks anyone's Metal kernels: Apple's rules, and runs on the simulator under several schedules.
//!
//! A [`Request`] says what is checked, a [`Report`] what was found. [`check()`] does the work in a process of its own, which is ended if the kernel hangs,
//! crashes or makes a system call: the command line and the Python package call it. Checks need the simulator, which runs on Linux.

#[cfg(target_os = "linux")]
pub mod contained;
mod elements;
mod expected;
mod report;
mod request;
#[cfg(target_os = "linux")]
mod run;
mod selection;

pub use elements::{encode, numbers, scalar_type};
pub use expected::{Difference, Expected, check_expected};
pub use report::{Finding, Lint, OtherAccess, Report};
pub use request::{Argument, Buffer, Bytes, Constant, Contents, Memory, Request, Size, Threads, Value};
#[cfg(target_os = "linux")]
pub use run::{Outcome, check};
pub use selection::{choose, constants};
