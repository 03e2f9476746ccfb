//! Where the lanes of a strip are in the grid.

use super::{ops::elements_mut, strip::Strip, strip::bytes_mut};
use crate::program::{LaunchConfig, Position};

/// The blocks of a strip.
pub(super) struct Place {
    launch: LaunchConfig,
    threads: usize,
    /// Of each thread of a block its place along each axis.
    local: [Vec<u32>; 3],
    /// Where each block of the strip is in the grid.
    blocks: Vec<[u32; 3]>,
    /// The block that comes next, and where it is.
    next: u64,
    at: [u32; 3],
}

impl Place {
    pub(super) fn new(launch: LaunchConfig) -> Self {
        let threads = launch.threads() as usize;
        let [x, y, _] = launch.block.map(|n| n as usize);
        let local = [
            (0..threads).map(|t| (t % x) as u32).collect(),
            (0..threads).map(|t| (t / x % y) as u32).collect(),
            (0..threads).map(|t| (t / (x * y)) as u32).collect(),
        ];
        Self { launch, threads, local, blocks: Vec::new(), next: 0, at: [0; 3] }
    }

    /// Goes to `count` blocks from `first` on, x fastest: how many lanes they are.
    pub(super) fn begin(&mut self, first: u64, count: usize) -> usize {
        let [x, y, _] = self.launch.grid;
        if self.next != first {
            let (columns, rows) = (u64::from(x), u64::from(y));
            self.at = [(first % columns) as u32, (first / columns % rows) as u32, (first / (columns * rows)) as u32];
        }
        self.blocks.clear();
        for _ in 0..count {
            self.blocks.push(self.at);
            self.at[0] += 1;
            if self.at[0] == x {
                self.at[0] = 0;
                self.at[1] += 1;
                if self.at[1] == y {
                    (self.at[1], self.at[2]) = (0, self.at[2] + 1);
                }
            }
        }
        self.next = first + count as u64;
        count * self.threads
    }

    /// Whether the strip's lanes lie side by side along x.
    fn is_row(&self) -> bool {
        let [_, y, z] = self.launch.block;
        y == 1 && z == 1 && self.blocks.first().zip(self.blocks.last()).is_some_and(|(a, b)| a[1..] == b[1..])
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
        let (row, single, size) = (place.is_row(), place.blocks.len() == 1, place.launch.block[axis]);
        let first = place.blocks.first().map_or(0, |block| block[axis]);
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
        let (threads, local) = (place.threads, &place.local[axis]);
        let out = elements_mut::<u32>(bytes_mut(&mut self.spare, 4 * self.lanes));
        for (out, block) in out.chunks_exact_mut(threads).zip(&place.blocks) {
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
        self.commit(to, blend);
    }
}
