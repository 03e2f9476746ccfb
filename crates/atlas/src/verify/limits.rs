//! What programs may ask for, and how large they may be.

/// What a program may ask for. Every device of the library grants the defaults.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared arrays.
    pub shared_bytes: u64,
    /// Whether every loop must have a bound.
    pub bounded_loops: bool,
    /// Steps that the loops of a thread may take, an instruction in a repetition being one; a launch whose loops take more fails.
    /// `None` counts nothing, which costs nothing: for programs that are known to end.
    pub steps: Option<u32>,
    /// Whether a program may ask for `bounds unchecked`, with which it may do anything to the memory of a GPU.
    pub unchecked: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { threads: 1024, shared_bytes: (32 << 10) - REDUCTION_BYTES, bounded_loops: false, steps: Some(1 << 28), unchecked: false }
    }
}

/// Threadgroup memory that reductions over a block take on devices.
pub(crate) const REDUCTION_BYTES: u64 = 2 << 10;
/// What is wrong with a loop that takes more steps than [`Limits::steps`].
pub(crate) const TOO_MANY_STEPS: &str = "the loops of a thread took more steps than they may: this one may have no end";
/// Instructions of a program, calls expanded.
pub(super) const MAX_INSTRUCTIONS: u64 = 1 << 16;
/// Registers of a program, calls expanded.
pub(super) const MAX_REGISTERS: u64 = 1 << 12;
/// Parameters and shared arrays, each.
pub(super) const MAX_PARAMETERS: usize = 24;
/// Blocks in one another.
pub(super) const MAX_DEPTH: usize = 64;
