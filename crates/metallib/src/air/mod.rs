//! Functions of compiled Metal libraries: from what Apple's compiler made of them, as LLVM's text, to the representation that a device's compiler takes.
//! The simulator gets what texts become, which is then checked and compiled as theirs is; NVIDIA's GPUs what LLVM makes PTX of.

mod constants;
mod instructions;
mod intrinsics;
mod lanes;
mod lower;
mod matrices;
mod nvidia;
mod runtime;
mod simulator;
mod tensors;
mod types;

pub use lower::{Machine, Request, lower};
pub use nvidia::{Nvidia, nvidia_symbol};
pub use runtime::{Runtime, SIMULATOR_RUNTIME, nvidia_runtime};
pub use simulator::{SIMULATOR_ENTRY, Simulator};

/// How functions are rewritten, as a part of what compiled kernels are made from.
pub const LOWERING: &[&[u8]] = &[
    include_bytes!("constants.rs"),
    include_bytes!("instructions.rs"),
    include_bytes!("intrinsics.rs"),
    include_bytes!("lanes.rs"),
    include_bytes!("lower.rs"),
    include_bytes!("matrices.rs"),
    include_bytes!("nvidia.rs"),
    include_bytes!("simulator.rs"),
    include_bytes!("tensors.rs"),
    include_bytes!("types.rs"),
];
