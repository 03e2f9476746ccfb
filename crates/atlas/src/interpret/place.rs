//! Which blocks of the grid a strip is.

use crate::program::LaunchConfig;

/// The blocks of a strip.
pub(super) struct Place {
    pub(super) launch: LaunchConfig,
    pub(super) threads: usize,
    /// Where the strip's first block is in the grid, and how many blocks there are.
    pub(super) first: [u32; 3],
    pub(super) blocks: usize,
    /// Of each thread of a block its place along each axis, once that was asked for.
    pub(super) local: [Vec<u32>; 3],
}

impl Place {
    pub(super) fn new(launch: LaunchConfig) -> Self {
        Self { launch, threads: launch.threads() as usize, first: [0; 3], blocks: 0, local: Default::default() }
    }

    /// Goes to `count` blocks from `first` on, x fastest: how many lanes they are.
    pub(super) fn begin(&mut self, first: u64, count: usize) -> usize {
        let [columns, rows, _] = self.launch.grid.map(u64::from);
        self.first = [(first % columns) as u32, (first / columns % rows) as u32, (first / (columns * rows)) as u32];
        self.blocks = count;
        count * self.threads
    }

    /// Where the blocks of the strip are in the grid.
    pub(super) fn blocks(&self) -> impl Iterator<Item = [u32; 3]> {
        let [columns, rows, _] = self.launch.grid;
        let after = move |&[x, y, z]: &[u32; 3]| match (x + 1 == columns, y + 1 == rows) {
            (false, _) => Some([x + 1, y, z]),
            (true, false) => Some([0, y + 1, z]),
            (true, true) => Some([0, 0, z + 1]),
        };
        std::iter::successors(Some(self.first), after).take(self.blocks)
    }

    /// Whether the strip's lanes lie side by side along x.
    pub(super) fn is_row(&self) -> bool {
        let [_, y, z] = self.launch.block;
        y == 1 && z == 1 && u64::from(self.first[0]) + self.blocks as u64 <= u64::from(self.launch.grid[0])
    }

    pub(super) fn make_local(&mut self, axis: usize) {
        if self.local[axis].is_empty() {
            let [x, y, _] = self.launch.block;
            let place = |thread: u32| [thread % x, thread / x % y, thread / (x * y)][axis];
            self.local[axis] = (0..self.threads as u32).map(place).collect();
        }
    }
}
