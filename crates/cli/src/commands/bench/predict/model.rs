//! What a command list costs on an Apple GPU, by its bytes and operations alone.
//!
//! A command takes as long as its bytes at the bandwidth that GPUs reach, or as its operations at the rate that matrix products reach, whichever is longer,
//! and what it takes to start one. None of the three figures below was fitted to a figure of a language model.

use elinvar::chips::Gpu;
use elinvar_core::{Command, CommandList};

/// Part of the published bandwidth that streaming on the GPU reaches: between 0.83 (M4) and 0.92 (M3), 0.88 on the M1, 0.91 on the M2 (arXiv 2502.05317: 60, 91, 92
/// and 100 GB/s), 0.91 on the M4 Pro and 0.90 on the M3 Ultra (DaMoN 2026: 248 and 738 GB/s).
const OF_BANDWIDTH: f64 = 0.9;

/// Part of the lanes' fused multiply-adds that products on `simdgroup_matrix` reach: 101.7 of 128 a clock, on M1, A15 and later (philipturner/metal-benchmarks).
const OF_ARITHMETIC: f64 = 101.7 / 128.0;

/// Seconds that one more small launch in a command buffer takes: 5.16 µs of GPU time on an M2 Pro (antonellof/ferrox, issue 149).
const LAUNCH: f64 = 5.16e-6;

/// Seconds of some work, and what bounds them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// Launches, copies and fills.
    pub(super) commands: usize,
    /// Floating-point operations.
    pub(super) operations: u64,
    /// Where bytes take longer than operations.
    pub(super) memory: f64,
    /// Where operations take longer.
    pub(super) arithmetic: f64,
    /// Of starting commands.
    pub(super) starts: f64,
}

impl Cost {
    /// Of lists that follow each other.
    pub(super) fn of<'a>(lists: impl IntoIterator<Item = &'a CommandList>, gpu: &Gpu) -> Self {
        lists.into_iter().flat_map(CommandList::commands).fold(Self::default(), |sum, command| sum.and(command, gpu))
    }

    fn and(self, command: &Command, gpu: &Gpu) -> Self {
        let memory = command.bytes() as f64 / (1e9 * gpu.bandwidth * OF_BANDWIDTH);
        let arithmetic = command.operations() as f64 / (gpu.arithmetic() * OF_ARITHMETIC);
        let bound = if memory >= arithmetic { Self { memory, ..Self::default() } } else { Self { arithmetic, ..Self::default() } };
        Self {
            commands: self.commands + 1,
            operations: self.operations + command.operations(),
            memory: self.memory + bound.memory,
            arithmetic: self.arithmetic + bound.arithmetic,
            starts: self.starts + LAUNCH,
        }
    }

    /// All of it.
    pub(super) fn seconds(&self) -> f64 {
        self.memory + self.arithmetic + self.starts
    }
}
