//! Where the lanes of a strip are in the grid.

use super::{ops::elements_mut, strip::Strip, strip::bytes_mut};
use crate::program::Position;

impl Strip<'_> {
    /// A position becomes the register's value.
    pub(super) fn position(&mut self, to: u32, position: Position, blend: bool) {
        use Position as P;
        let axis = match position {
            P::GlobalX | P::LocalX | P::BlockX | P::BlockSizeX | P::GridSizeX => 0,
            P::GlobalY | P::LocalY | P::BlockY | P::BlockSizeY | P::GridSizeY => 1,
            P::GlobalZ | P::LocalZ | P::BlockZ | P::BlockSizeZ | P::GridSizeZ => 2,
            P::LocalIndex | P::Lane | P::Simdgroup => 0,
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
            P::GlobalX | P::GlobalY | P::GlobalZ | P::LocalX | P::LocalY | P::LocalZ | P::BlockX | P::BlockY | P::BlockZ => {}
            P::LocalIndex | P::Lane | P::Simdgroup => {}
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
                P::Simdgroup => out.iter_mut().enumerate().for_each(|(t, out)| *out = t as u32 / 32),
                P::BlockSizeX | P::BlockSizeY | P::BlockSizeZ => out.fill(size),
                P::GridSizeX | P::GridSizeY | P::GridSizeZ => out.fill(place.launch.grid[axis]),
            }
        }
        self.commit(to, blend, made);
    }
}
