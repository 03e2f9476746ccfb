//! Where the lanes of a strip are in the grid.

use super::{ops::elements_mut, strip::Strip, strip::bytes_mut};
use crate::program::{LaunchConfig, Position};

/// The blocks of a strip.
pub(super) struct Place {
    launch: LaunchConfig,
    threads: usize,
    /// Where the strip's first block is in the grid, and how many blocks there are.
    first: [u32; 3],
    blocks: usize,
    /// Of each thread of a block its place along each axis, once that was asked for.
    local: [Vec<u32>; 3],
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
    fn blocks(&self) -> impl Iterator<Item = [u32; 3]> {
        let [columns, rows, _] = self.launch.grid;
        let after = move |&[x, y, z]: &[u32; 3]| match (x + 1 == columns, y + 1 == rows) {
            (false, _) => Some([x + 1, y, z]),
            (true, false) => Some([0, y + 1, z]),
            (true, true) => Some([0, 0, z + 1]),
        };
        std::iter::successors(Some(self.first), after).take(self.blocks)
    }

    /// Whether the strip's lanes lie side by side along x.
    fn is_row(&self) -> bool {
        let [_, y, z] = self.launch.block;
        y == 1 && z == 1 && u64::from(self.first[0]) + self.blocks as u64 <= u64::from(self.launch.grid[0])
    }

    fn make_local(&mut self, axis: usize) {
        if self.local[axis].is_empty() {
            let [x, y, _] = self.launch.block;
            let place = |thread: u32| [thread % x, thread / x % y, thread / (x * y)][axis];
            self.local[axis] = (0..self.threads as u32).map(place).collect();
        }
    }
}

impl Strip<'_> {
    /// A position becomes the register's value.
    pub(super) fn position(&mut self, to: u32, position: Position, blend: bool) {
        use Position as P;
        let axis = match position {
            P::GlobalX | P::LocalX | P::BlockX | P::BlockSizeX | P::GridSizeX => 0,
            P::GlobalY | P::LocalY | P::BlockY | P::BlockSizeY | P::GridSizeY => 1,
            _ => 2,
        };
        let place = &self.place;
        let (row, single, size, first) = (place.is_row(), place.blocks == 1, place.launch.block[axis], place.first[axis]);
        match position {
            P::BlockSizeX | P::BlockSizeY | P::BlockSizeZ => return self.set_uniform(to, u64::from(size), blend),
            P::GridSizeX | P::GridSizeY | P::GridSizeZ => return self.set_uniform(to, u64::from(place.launch.grid[axis]), blend),
            P::BlockX | P::BlockY | P::BlockZ if single => return self.set_uniform(to, u64::from(first), blend),
            P::GlobalX if row => return self.set_first(to, u64::from(first) * u64::from(size), blend),
            P::GlobalY | P::GlobalZ if row => return self.set_uniform(to, u64::from(first), blend),
            P::LocalX if row && single => return self.set_first(to, 0, blend),
            P::LocalIndex if single => return self.set_first(to, 0, blend),
            _ => {}
        }
        self.place.make_local(axis);
        let (place, local, mut made) = (&self.place, &self.place.local[axis], self.tiles.take());
        let out = elements_mut::<u32>(bytes_mut(&mut made, 4 * self.lanes));
        for (out, block) in out.chunks_exact_mut(place.threads).zip(place.blocks()) {
            let base = block[axis].wrapping_mul(size);
            match position {
                P::GlobalX | P::GlobalY | P::GlobalZ => out.iter_mut().zip(local).for_each(|(out, local)| *out = base.wrapping_add(*local)),
                P::LocalX | P::LocalY | P::LocalZ => out.copy_from_slice(local),
                P::BlockX | P::BlockY | P::BlockZ => out.fill(block[axis]),
                P::LocalIndex => out.iter_mut().enumerate().for_each(|(t, out)| *out = t as u32),
                P::Lane => out.iter_mut().enumerate().for_each(|(t, out)| *out = t as u32 % 32),
                _ => out.iter_mut().enumerate().for_each(|(t, out)| *out = t as u32 / 32),
            }
        }
        self.commit(to, blend, made);
    }
}
