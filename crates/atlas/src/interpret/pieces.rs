//! Where a piece of a strip's lanes lies.

/// A load waits for a store before it whose address differs by a multiple of so many bytes, as if it were the same.
pub(super) const ALIAS: usize = 4096;
/// Bytes of the widest value of a piece. Values between operations lie half of [`ALIAS`] away from the result's elements, so that
/// neither waits for the other; and stores of one piece to memory are few enough to be under way while the next one is computed.
pub(super) const PIECE: usize = ALIAS / 2;
/// Bytes of the memory for a value: wherever a piece begins in the first half, it ends in the second.
pub(super) const TILE: usize = 2 * ALIAS;

/// Lanes in memory.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub(super) start: *mut u8,
    /// Bytes of a lane.
    pub(super) size: usize,
    pub(super) extent: Extent,
}

/// What lies in memory.
#[derive(Clone, Copy)]
pub(super) enum Extent {
    /// Every lane of the strip.
    Strip,
    /// The lanes of a piece, in a tile.
    Piece,
    /// One element for all lanes.
    One,
}

/// Of an operand that there is not.
pub(super) const NOWHERE: Lanes = Lanes { start: std::ptr::dangling_mut(), size: 0, extent: Extent::One };

impl Lanes {
    /// The bytes of `count` lanes from `first` on, which lie `shift` bytes into a tile.
    pub(super) fn piece(self, first: usize, count: usize, shift: usize) -> *mut [u8] {
        let (from, count) = match self.extent {
            Extent::Strip => (first * self.size, count),
            Extent::Piece => (shift, count),
            Extent::One => (0, 1),
        };
        std::ptr::slice_from_raw_parts_mut(self.start.wrapping_add(from), count * self.size)
    }
}
