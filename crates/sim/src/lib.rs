//! Executes Metal kernels on a CPU, and checks them while it does.
//!
//! The text of a kernel is lowered by [`elinvar_msl`] to C++ for OpenCL and compiled by clang for the host. Each GPU thread is a fiber; barriers
//! and simdgroup operations are where threads switch, in an order that a seed decides. Kernels compiled with
//! [`CompileOptions::checked`] call back at every access: exact bounds, initialisation, and what orders it after the accesses of other threads.
//! What is found is reported with file and line, thread and threadgroup, buffer and offset ([`Finding`]). A kernel that faults or never ends is a
//! finding too; the process goes on. Libraries that Apple's compiler has made are executed the same way ([`Simulator::compiled_library`]).
//!
//! ```no_run
//! use elinvar_sim::{Binding, CommandBuffer, CompileOptions, Config, Dispatch, Grid, Simulator, Source};
//!
//! # fn main() -> elinvar_core::Result<()> {
//! let text = "kernel void twice(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2; }";
//! let simulator = Simulator::new(Config::default())?;
//! let pipeline = simulator.library(&Source::new("twice.metal", text), &CompileOptions::default())?.pipeline("twice", &[])?;
//! let x = simulator.buffer_with("x", &1f32.to_le_bytes().repeat(64))?;
//! let mut commands = CommandBuffer::with_seed(1);
//! commands.dispatch(Dispatch::new(&pipeline, Grid::Threads([64, 1, 1]), [32, 1, 1]).with(Binding::new(0, &x)))?;
//! let report = simulator.queue()?.submit(commands).wait()?;
//! assert!(report.findings.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! Not modelled: textures and samplers, argument buffers, indirect commands, the order of fences and of atomics stronger than relaxed, the
//! rounding of Apple's own math functions, and timing. Without checks a kernel's stray write is noticed only where nothing is mapped. Accesses that
//! the optimiser drops are not checked, nor are those beyond a private array whose size is not known where it is indexed.
#![cfg(target_os = "linux")]

mod abi;
mod arena;
mod buffer;
mod cache;
mod commands;
mod compile;
mod confinement;
mod diagnostics;
mod dispatch;
mod elf;
mod executor;
mod finding;
mod instrument;
mod library;
mod loaded;
mod queue;
mod random;
mod rules;
mod shadow;
mod simulator;
mod stretch;
mod subnormals;
mod symbols;
mod toolchain;
mod worker;

pub use buffer::Buffer;
pub use elinvar_msl::{Lint, Location};

pub use commands::CommandBuffer;
pub use compile::{Math, Subnormals};
pub use confinement::{Confinement, confine, running_threadgroup, system_call_name};
pub use dispatch::{Binding, Dispatch, Output};
pub use elinvar_core::{ConstantValue, Grid};
pub use finding::{BufferUse, Counters, Finding, FindingKind, OtherAccess, Report, Traffic};
pub use library::{CompileOptions, Library, Pipeline, Source, preprocess};
pub use queue::{Completion, Queue};
pub use rules::Judge;
pub use simulator::{Config, Simulator};
pub use toolchain::Toolchain;
