//! Dot products of queries with a panel of keys: as many keys as a vector has lanes, transposed, so that the strict tree runs down
//! the registers, one key in each lane. The panel is made once for all rows of a tile.

use std::ops::Range;

use super::rows::LANES;
use crate::matmul::cpu::simd::{Simd, Work};

/// Accumulators of a strict dot product.
const PARTIALS: usize = 256;

/// Accumulators that a lane of the tree owns.
const SLOTS: usize = 8;

/// Rows that share the loads of a panel.
const ROWS: usize = 4;

/// Sums of 1, 2, 4, 8 and 16 lanes that wait for as many more.
pub(crate) type Waiting = [[[f32; LANES]; ROWS]; 5];

/// Dot products of queries with the keys of a panel: `out[row · stride + i]`, for rows that attend one of them.
pub(crate) struct Dots<'a> {
    pub(crate) panel: &'a [f32],
    /// Padded rows, with −0.0 in the padding: times a key's +0.0 it changes no accumulator.
    pub(crate) queries: &'a [f32],
    pub(crate) padded: usize,
    /// Keys that each row attends.
    pub(crate) attended: &'a [Range<usize>],
    /// Keys of the panel.
    pub(crate) keys: Range<usize>,
    pub(crate) out: &'a mut [f32],
    pub(crate) stride: usize,
    pub(crate) waiting: &'a mut Waiting,
}

impl Work for Dots<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        if self.padded > PARTIALS { self.rows::<S, true>(simd) } else { self.rows::<S, false>(simd) }
    }
}

impl Dots<'_> {
    #[inline(always)]
    fn rows<S: Simd, const LONG: bool>(mut self, simd: S) {
        for (i, attended) in self.attended.chunks(ROWS).enumerate() {
            let needed = attended.iter().any(|r| r.start < self.keys.end && r.end > self.keys.start);
            if !needed {
                continue;
            }
            let (row, rows) = (i * ROWS, attended.len());
            if rows == ROWS && S::LANES == LANES {
                self.tile::<S, ROWS, LONG>(simd, row);
                continue;
            }
            for row in (row..row + rows / 2 * 2).step_by(2) {
                self.tile::<S, 2, LONG>(simd, row);
            }
            if rows % 2 == 1 {
                self.tile::<S, 1, LONG>(simd, row + rows - 1);
            }
        }
    }

    /// `R` rows from `row` on, sharing the loads of the panel. Lanes are visited so that those to be added come one after the other.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const LONG: bool>(&mut self, simd: S, row: usize) {
        let Self { panel, queries, padded, stride, .. } = *self;
        let (queries, out) = (&queries[row * padded..][..R * padded], &mut self.out[row * stride..][..(R - 1) * stride + S::LANES]);
        assert!(panel.len() >= padded * S::LANES);
        let lanes = (padded / SLOTS).min(PARTIALS / SLOTS);
        let levels = lanes.next_power_of_two().trailing_zeros();
        for i in 0..1u32 << levels {
            let lane = i.reverse_bits().checked_shr(32 - levels).unwrap_or(0) as usize;
            let mut sum = [simd.splat(0.0); R];
            if lane < lanes {
                // SAFETY: the lane's slots lie below `padded`, a multiple of eight; panel and queries were sliced above.
                sum = unsafe { lane_sum::<S, R, LONG>(simd, panel.as_ptr(), queries.as_ptr(), padded, lane * SLOTS) };
            }
            let level = i.trailing_ones();
            for lower in &self.waiting[..level as usize] {
                sum = add(simd, sum, load(simd, lower));
            }
            if level < levels {
                store(simd, sum, &mut self.waiting[level as usize]);
                continue;
            }
            if lanes < PARTIALS / SLOTS {
                // What adding the empty accumulators comes to: −0.0 becomes +0.0.
                sum = add(simd, sum, [simd.splat(0.0); R]);
            }
            for (row, sum) in sum.iter().enumerate() {
                // SAFETY: `out` was sliced above.
                unsafe { simd.store(out.as_mut_ptr().add(row * stride), *sum) };
            }
        }
    }
}

#[inline(always)]
fn load<S: Simd, const R: usize>(simd: S, from: &[[f32; LANES]; ROWS]) -> [S::Vector; R] {
    let mut vectors = [simd.splat(0.0); R];
    for (vector, from) in vectors.iter_mut().zip(from) {
        // SAFETY: `from` has as many elements as the longest vector.
        *vector = unsafe { simd.load(from.as_ptr()) };
    }
    vectors
}

#[inline(always)]
fn store<S: Simd, const R: usize>(simd: S, vectors: [S::Vector; R], to: &mut [[f32; LANES]; ROWS]) {
    for (vector, to) in vectors.into_iter().zip(to) {
        // SAFETY: as in `load`.
        unsafe { simd.store(to.as_mut_ptr(), vector) };
    }
}

#[inline(always)]
fn add<S: Simd, const R: usize>(simd: S, mut a: [S::Vector; R], b: [S::Vector; R]) -> [S::Vector; R] {
    for i in 0..R {
        a[i] = simd.add(a[i], b[i]);
    }
    a
}

/// The eight accumulators from `first` on, added pairwise.
///
/// # Safety
/// `first + 8 <= padded`; `panel` has `padded` vectors and `queries` `R` rows of `padded` elements.
#[inline(always)]
unsafe fn lane_sum<S: Simd, const R: usize, const LONG: bool>(
    simd: S,
    panel: *const f32,
    queries: *const f32,
    padded: usize,
    first: usize,
) -> [S::Vector; R] {
    // SAFETY: the caller's promise.
    unsafe {
        let a = pair::<S, R, LONG>(simd, panel, queries, padded, first);
        let b = pair::<S, R, LONG>(simd, panel, queries, padded, first + 2);
        let low = add(simd, a, b);
        let a = pair::<S, R, LONG>(simd, panel, queries, padded, first + 4);
        let b = pair::<S, R, LONG>(simd, panel, queries, padded, first + 6);
        add(simd, low, add(simd, a, b))
    }
}

/// Accumulators `first` and `first + 1`, added.
///
/// # Safety
/// As [`lane_sum`], for two accumulators.
#[inline(always)]
unsafe fn pair<S: Simd, const R: usize, const LONG: bool>(
    simd: S,
    panel: *const f32,
    queries: *const f32,
    padded: usize,
    first: usize,
) -> [S::Vector; R] {
    // SAFETY: the caller's promise.
    unsafe {
        let a = accumulate::<S, R, LONG>(simd, panel, queries, padded, first);
        let b = accumulate::<S, R, LONG>(simd, panel, queries, padded, first + 1);
        add(simd, a, b)
    }
}

/// Accumulator `first`: the elements `first`, `first + 256`, …; only the first of them if not `LONG`.
///
/// # Safety
/// As [`lane_sum`], for one accumulator.
#[inline(always)]
unsafe fn accumulate<S: Simd, const R: usize, const LONG: bool>(
    simd: S,
    panel: *const f32,
    queries: *const f32,
    padded: usize,
    first: usize,
) -> [S::Vector; R] {
    let mut sums = [simd.splat(0.0); R];
    let mut at = first;
    loop {
        // SAFETY: `at < padded`.
        unsafe {
            let key = simd.load(panel.add(at * S::LANES));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = simd.fma(simd.splat(*queries.add(row * padded + at)), key, *sum);
            }
        }
        at += PARTIALS;
        if !LONG || at >= padded {
            return sums;
        }
    }
}

/// Keys that a panel of a level holds.
pub(crate) struct PanelKeys;

impl Work for PanelKeys {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> usize {
        S::LANES
    }
}
