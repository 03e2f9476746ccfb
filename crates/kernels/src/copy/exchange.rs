//! Tiles in which rows and columns change places, a cache line of both at a time.

use elinvar_core::Element;

/// A tile: `to[r · to_step + c] = from[c · from_step + r]`.
pub(super) struct Exchange<T> {
    from: *const T,
    from_step: isize,
    to: *mut T,
    to_step: isize,
    rows: usize,
    columns: usize,
}

impl<T: Element> Exchange<T> {
    /// Elements of a side of a square of whole cache lines.
    const SQUARE: usize = 64 / size_of::<T>();

    /// # Safety
    /// Every element named is valid for reading and for writing, and no other thread touches what is written.
    pub(super) unsafe fn new(from: *const T, from_step: isize, to: *mut T, to_step: isize, rows: usize, columns: usize) -> Self {
        Self { from, from_step, to, to_step, rows, columns }
    }

    pub(super) fn run(&self) {
        for r in (0..self.rows).step_by(Self::SQUARE) {
            for c in (0..self.columns).step_by(Self::SQUARE) {
                self.square(r, c);
            }
        }
    }

    /// The square at `(r, c)`, or what there is of it.
    fn square(&self, r: usize, c: usize) {
        let (last_row, last_column) = (self.rows.min(r + Self::SQUARE), self.columns.min(c + Self::SQUARE));
        for r in (r..last_row).step_by(LANES / size_of::<T>()) {
            for c in (c..last_column).step_by(LANES / size_of::<T>()) {
                let lanes = LANES / size_of::<T>();
                if r + lanes > last_row || c + lanes > last_column {
                    self.elements(r..last_row.min(r + lanes), c..last_column.min(c + lanes));
                    continue;
                }
                let (from, to) = (self.source(r, c).cast(), self.target(r, c).cast());
                let (from_step, to_step) = (self.from_step * size_of::<T>() as isize, self.to_step * size_of::<T>() as isize);
                // SAFETY: `lanes` by `lanes` elements inside the tile, valid by `new`.
                unsafe { registers::<T>(from, from_step, to, to_step) };
            }
        }
    }

    fn elements(&self, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) {
        for r in rows {
            for c in columns.clone() {
                // SAFETY: inside the tile, valid by `new`.
                unsafe { self.target(r, c).write(self.source(r, c).read()) };
            }
        }
    }

    fn source(&self, r: usize, c: usize) -> *const T {
        self.from.wrapping_offset(c as isize * self.from_step + r as isize)
    }

    fn target(&self, r: usize, c: usize) -> *mut T {
        self.to.wrapping_offset(r as isize * self.to_step + c as isize)
    }
}

/// Bytes of a register.
const LANES: usize = 16;

/// Transposes a register's worth of rows of a register's worth of elements.
///
/// # Safety
/// Rows of 16 bytes, as many as elements of `T` fit 16 bytes and the steps apart, are valid for reading and for writing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn registers<T>(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    use std::arch::x86_64::*;

    /// `N` perfect shuffles of rows with rows half the square away: each moves a bit of the row number into the column number.
    #[inline(always)]
    unsafe fn shuffle<const N: usize>(
        (from, from_step): (*const u8, isize),
        (to, to_step): (*mut u8, isize),
        pair: impl Fn(__m128i, __m128i) -> [__m128i; 2],
    ) {
        // SAFETY: valid by the caller's promise; SSE2 is part of x86-64.
        let mut rows: [__m128i; N] = std::array::from_fn(|i| unsafe { _mm_loadu_si128(from.offset(i as isize * from_step).cast()) });
        for _ in 0..N.ilog2() {
            let old = rows;
            for i in 0..N / 2 {
                [rows[2 * i], rows[2 * i + 1]] = pair(old[i], old[i + N / 2]);
            }
        }
        for (i, row) in rows.iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm_storeu_si128(to.offset(i as isize * to_step).cast(), *row) };
        }
    }

    let (from, to) = ((from, from_step), (to, to_step));
    // SAFETY: the caller's promise; SSE2 is part of x86-64.
    unsafe {
        match size_of::<T>() {
            1 => shuffle::<16>(from, to, |a, b| [_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)]),
            2 => shuffle::<8>(from, to, |a, b| [_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b)]),
            4 => shuffle::<4>(from, to, |a, b| [_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b)]),
            _ => shuffle::<2>(from, to, |a, b| [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)]),
        }
    }
}

/// Transposes 16 bytes' worth of rows of 16 bytes' worth of elements.
///
/// # Safety
/// These rows, the steps apart, are valid for reading and for writing.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn registers<T: Copy>(from: *const u8, from_step: isize, to: *mut u8, to_step: isize) {
    let lanes = LANES / size_of::<T>();
    for r in 0..lanes {
        for c in 0..lanes {
            // SAFETY: the caller's promise.
            unsafe {
                let value = from.offset(c as isize * from_step).cast::<T>().add(r).read();
                to.offset(r as isize * to_step).cast::<T>().add(c).write(value);
            }
        }
    }
}
