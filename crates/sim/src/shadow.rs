//! What is known of each byte or granule of simulated memory.

use std::{ops::Range, ptr};

use elinvar_core::{Error, Result};

use crate::abi::{Cell, Record};

/// A granule is 16 bytes at first, and as small as the smallest access met.
pub(crate) const COARSEST: u8 = 4;

/// A bit for each byte of a buffer: whether anybody has written it.
#[derive(Clone)]
pub(crate) struct Initialised {
    bytes: usize,
    /// Padded by a word, which the runtime may read beyond the end.
    bits: Vec<u8>,
}

impl Initialised {
    pub(crate) fn nothing(bytes: usize) -> Self {
        Self { bytes, bits: vec![0; bytes.div_ceil(8) + 4] }
    }

    pub(crate) fn everything(bytes: usize) -> Self {
        let mut map = Self::nothing(bytes);
        map.set(0..bytes, true);
        map
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bits.as_mut_ptr()
    }

    fn get(&self, at: usize) -> bool {
        self.bits[at / 8] >> (at % 8) & 1 == 1
    }

    pub(crate) fn set(&mut self, range: Range<usize>, value: bool) {
        let whole = range.start.next_multiple_of(8)..range.end / 8 * 8;
        if whole.start >= whole.end {
            return range.for_each(|at| self.set_one(at, value));
        }
        (range.start..whole.start).chain(whole.end..range.end).for_each(|at| self.set_one(at, value));
        self.bits[whole.start / 8..whole.end / 8].fill(if value { 0xff } else { 0 });
    }

    fn set_one(&mut self, at: usize, value: bool) {
        let mask = 1 << (at % 8);
        if value { self.bits[at / 8] |= mask } else { self.bits[at / 8] &= !mask }
    }

    pub(crate) fn copy(&mut self, offset: usize, from: &Self, source: usize, bytes: usize) {
        for at in 0..bytes {
            self.set_one(offset + at, from.get(source + at));
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bits[..self.bytes / 8].iter().all(|byte| *byte == 0xff) && (self.bytes / 8 * 8..self.bytes).all(|at| self.get(at))
    }

    pub(crate) fn unset_ranges(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for at in (0..self.bytes).filter(|at| !self.get(*at)) {
            match ranges.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => ranges.push(at..at + 1),
            }
        }
        ranges
    }
}

/// An earlier access to the same byte, that nothing orders.
pub(crate) struct Race {
    pub(crate) offset: usize,
    pub(crate) pc: u32,
    pub(crate) record: Record,
}

/// The cells of a region: zeroed pages that are committed when touched.
pub(crate) struct Shadow {
    cells: *mut Cell,
    count: usize,
    granule: u8,
    bytes: usize,
    /// Of the sequence numbers in the records; those of another era mean nothing.
    era: u64,
}

// SAFETY: the cells belong to the shadow alone.
unsafe impl Send for Shadow {}

impl Shadow {
    pub(crate) fn new(bytes: usize, granule: u8, era: u64) -> Result<Self> {
        let count = (bytes >> granule) + 1;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a fresh mapping.
        let cells = unsafe { libc::mmap(ptr::null_mut(), count * size_of::<Cell>(), protection, flags, -1, 0) };
        if cells == libc::MAP_FAILED {
            return Err(Error::out_of_memory(format!(
                "the record of accesses to {bytes} bytes was rejected ({} bytes): run without checks, or with smaller buffers",
                count * size_of::<Cell>()
            )));
        }
        Ok(Self { cells: cells.cast(), count, granule, bytes, era })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut Cell {
        self.cells
    }

    pub(crate) fn granule(&self) -> u8 {
        self.granule
    }

    pub(crate) fn cells(&self) -> &[Cell] {
        // SAFETY: the mapping holds so many cells, for which any bits are valid.
        unsafe { std::slice::from_raw_parts(self.cells, self.count) }
    }

    fn cells_mut(&mut self) -> &mut [Cell] {
        // SAFETY: as above, and the shadow is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.cells, self.count) }
    }

    /// Splits the granules; each part inherits what was known of the whole.
    pub(crate) fn refine(&mut self, granule: u8) -> Result<()> {
        let mut finer = Self::new(self.bytes, granule, self.era)?;
        let parts = 1 << (self.granule - granule);
        for (index, cell) in self.cells().iter().enumerate().filter(|(_, cell)| cell.write | cell.read != 0) {
            let end = finer.count.min((index + 1) * parts);
            finer.cells_mut()[index * parts..end].fill(*cell);
        }
        *self = finer;
        Ok(())
    }

    /// Enters a copy's or fill's access, and reports the first earlier one of a group from `oldest` on that it races with: nothing orders the two, since each
    /// transfer counts as a threadgroup.
    pub(crate) fn transfer(&mut self, range: Range<usize>, written: bool, record: Record, oldest: u64) -> Result<Option<Race>> {
        let finest = ((range.start | range.end).trailing_zeros() as u8).min(COARSEST);
        if finest < self.granule {
            self.refine(finest)?;
        }
        let recent = |record: u64| Record(record).group() >= oldest;
        let (granule, mut race) = (self.granule, None);
        let touched = range.start >> granule..range.end >> granule;
        for (index, cell) in touched.clone().zip(&mut self.cells_mut()[touched]) {
            let met = match *cell {
                Cell { write, write_pc, .. } if recent(write) => Some((write, write_pc)),
                Cell { read, read_pc, .. } if written && recent(read) => Some((read, read_pc)),
                _ => None,
            };
            race = race.or(met.map(|(met, pc)| Race { offset: index << granule, pc, record: Record(met) }));
            if written {
                *cell = Cell { write: record.0, read: 0, write_pc: 0, read_pc: 0 };
            } else {
                (cell.read, cell.read_pc) = (record.0 | if recent(cell.read) { Record::OTHER_GROUPS } else { 0 }, 0);
            }
        }
        Ok(race)
    }

    /// Forgets what happened in another era.
    pub(crate) fn enter_era(&mut self, era: u64) -> Result<()> {
        if self.era != era {
            *self = Self::new(self.bytes, self.granule, era)?;
        }
        Ok(())
    }

    /// Ranges of bytes (within `range`) whose cells do not satisfy `test`.
    pub(crate) fn ranges_without(&self, range: Range<usize>, test: impl Fn(&Cell) -> bool) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let (first, size) = (range.start >> self.granule, 1 << self.granule);
        let touched = self.cells().iter().enumerate().skip(first).take_while(|(index, _)| index * size < range.end);
        for (index, _) in touched.filter(|(_, cell)| !test(cell)) {
            let missing = (index * size).max(range.start)..((index + 1) * size).min(range.end);
            match ranges.last_mut() {
                Some(last) if last.end == missing.start => last.end = missing.end,
                _ => ranges.push(missing),
            }
        }
        ranges
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and belongs to this shadow.
        unsafe { libc::munmap(self.cells.cast(), self.count * size_of::<Cell>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialised_ranges_are_exact_to_the_byte() {
        let mut map = Initialised::nothing(100);
        map.set(3..40, true);
        map.set(41..99, true);
        assert_eq!(map.unset_ranges(), [0..3, 40..41, 99..100]);
        for hole in [0..3, 40..41, 99..100] {
            assert!(!map.is_full());
            map.set(hole, true);
        }
        assert!(map.is_full());
        map.set(8..17, false);
        assert_eq!(map.unset_ranges(), vec![8..17]);
    }

    #[test]
    fn finer_granules_inherit() {
        let mut shadow = Shadow::new(40, 4, 0).unwrap();
        shadow.cells_mut()[1].write = 7;
        shadow.refine(2).unwrap();
        let written: Vec<usize> = (0..shadow.cells().len()).filter(|at| shadow.cells()[*at].write == 7).collect();
        assert_eq!(written, [4, 5, 6, 7]);
        assert_eq!(shadow.ranges_without(2..40, |cell| cell.write == 7), [2..16, 32..40]);
    }
}
