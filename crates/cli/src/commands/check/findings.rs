//! What a check finds.

use elinvar_sim::Finding;

use crate::kernel::expected::Difference;

/// What all schedules found together.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The kernel.
    pub(super) kernel: String,
    /// Each finding once, with the first seed that showed it.
    pub(super) found: Vec<(u64, Finding)>,
    /// The first difference of each buffer from what is expected, with its seed.
    pub(super) differences: Vec<(u64, Difference)>,
    /// Schedules tried.
    pub(super) seeds: u64,
    /// GPU threads run, over all schedules.
    pub(super) threads: u64,
}

impl Findings {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.found.len() + self.differences.len()
    }
}
