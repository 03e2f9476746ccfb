//! The canonical order of row reductions, followed by every device. (Products with 16-bit operands have [`crate::dot`].)
//!
//! A row of `n` elements is shared by `T(n) = clamp(next_power_of_two(n / 32), 32, 1024)` threads, each with 8 slots: `L = 8 T`
//! accumulators. Accumulator `j` folds the elements `k ≡ j (mod L)` in ascending order, starting from the identity; thread `t` owns the
//! accumulators `8t … 8t + 7`. Then a thread's slots are combined pairwise, the 32 lanes of a simdgroup by an xor tree (16, 8, 4, 2, 1), and
//! the simdgroups in index order. `L` depends on the row's length alone: never on the device, the data type or the batch.
//!
//! An element passes through at most `d(n) = ⌈n / L⌉ + 7 + T / 32` operations: a sum's error is at most `d(n) · 2^-24 · Σ|x|`. `d` is at
//! most 43 up to `n = 32768`.

mod columns;
mod layout;
#[cfg(target_arch = "x86_64")]
mod tree;

use std::ops::Range;

pub use columns::{Fold, TILE, columns_scratch, fold_columns};
pub use layout::{Accumulators, GROUP, row_groups, row_threads};
pub(crate) use layout::{ONE_SIMDGROUP, row_lanes, row_launch, row_threads_bound, row_visits, sharing_threads};

/// The same order in Metal.
pub(crate) const METAL: elinvar_core::MetalFile = crate::metal::metal_file!("order/order.metal");

/// What elements of each type are accumulated in.
pub(crate) const ACCUMULATOR: elinvar_core::MetalFile = crate::metal::metal_file!("order/accumulator.metal");

/// Neighbouring elements of any type.
pub(crate) const SLOTS: elinvar_core::MetalFile = crate::metal::metal_file!("order/slots.metal");

/// Keys that sort as elements do.
pub(crate) const KEYS: elinvar_core::MetalFile = crate::metal::metal_file!("order/keys.metal");

/// Several trees over the lanes of a simdgroup at once, in Metal.
pub(crate) const LANES: elinvar_core::MetalFile = crate::metal::metal_file!("order/lanes.metal");

/// Bytes of threadgroup memory that one reduction of a row takes: a float for each of up to 32 simdgroups.
pub(crate) const PARTIALS: usize = 32 * 4;

/// Rows below this length use few enough accumulators that the rest is not worth touching.
const SHORT: usize = 64;

/// What is folded: a row, or the elements of two rows in pairs.
pub trait Row: Copy {
    /// What a step takes.
    type Item: Copy;

    /// How many there are.
    fn length(self) -> usize;

    /// Those at `range`, if all are there.
    fn get(self, range: Range<usize>) -> Option<Self>;

    /// The one at `index`.
    fn at(self, index: usize) -> Self::Item;
}

impl<T: Copy> Row for &[T] {
    type Item = T;

    #[inline(always)]
    fn length(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn get(self, range: Range<usize>) -> Option<Self> {
        self.get(range)
    }

    #[inline(always)]
    fn at(self, index: usize) -> T {
        self[index]
    }
}

impl<T: Copy> Row for [&[T]; 2] {
    type Item = [T; 2];

    #[inline(always)]
    fn length(self) -> usize {
        self[0].len().min(self[1].len())
    }

    #[inline(always)]
    fn get(self, range: Range<usize>) -> Option<Self> {
        Some([self[0].get(range.clone())?, self[1].get(range)?])
    }

    #[inline(always)]
    fn at(self, index: usize) -> [T; 2] {
        [self[0][index], self[1][index]]
    }
}

/// Folds a row in canonical order: `step` takes an element into an accumulator, `op` combines two accumulators.
///
/// `op(a, identity)` must be `a` for every `a` that accumulators can hold.
#[inline(always)]
pub fn fold<R: Row>(row: R, identity: f32, step: impl Fn(f32, R::Item) -> f32 + Copy, op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    fold_groups(row, 0..row_groups(row.length()), identity, step, op)
}

/// [`fold`] from zero with accumulators that are added: the same bits, sooner.
#[inline(always)]
pub fn sum<R: Row>(row: R, step: impl Fn(f32, R::Item) -> f32 + Copy) -> f32 {
    if row.length() <= SHORT && row.length().is_multiple_of(8) {
        return sum_short(&accumulate_short(row, 0.0, step));
    }
    if row.length() < SHORT {
        return fold_short(row, 0.0, step, add);
    }
    let mut total = 0.0;
    for group in 0..row_groups(row.length()) {
        let part = sum_group(&accumulate(row, group, 0.0, step));
        total = if group == 0 { part } else { add(total, part) };
    }
    total
}

/// The part of [`fold`] that the simdgroups `groups`, at least one, do; the parts are combined in order.
#[inline(always)]
pub fn fold_groups<R: Row>(
    row: R,
    groups: Range<usize>,
    identity: f32,
    step: impl Fn(f32, R::Item) -> f32 + Copy,
    op: impl Fn(f32, f32) -> f32 + Copy,
) -> f32 {
    if row.length() < SHORT {
        return fold_short(row, identity, step, op);
    }
    // No closure between the loop and its work: that would be compiled without the caller's vector instructions.
    let first = groups.start;
    let mut total = 0.0;
    for group in groups {
        let part = combine_group(&accumulate(row, group, identity, step).0, op);
        total = if group == first { part } else { op(total, part) };
    }
    total
}

/// The accumulators of simdgroup `group`.
#[inline(always)]
fn accumulate<R: Row>(row: R, group: usize, identity: f32, step: impl Fn(f32, R::Item) -> f32 + Copy) -> Accumulators {
    let (length, stride) = (row.length(), 8 * row_threads(row.length()));
    let mut all = Accumulators([identity; GROUP]);
    let accumulators = &mut all.0;
    let chunk = |start: usize| row.get(start..start + GROUP);
    let mut start = group * GROUP;
    // Rows up to 32768 long have at most four elements for each accumulator: one visit.
    while let (Some(a), Some(b), Some(c), Some(d)) = (chunk(start), chunk(start + stride), chunk(start + 2 * stride), chunk(start + 3 * stride)) {
        for (j, accumulator) in accumulators.iter_mut().enumerate() {
            *accumulator = step(step(step(step(*accumulator, a.at(j)), b.at(j)), c.at(j)), d.at(j));
        }
        start += 4 * stride;
    }
    while let Some(a) = chunk(start) {
        for (j, accumulator) in accumulators.iter_mut().enumerate() {
            *accumulator = step(*accumulator, a.at(j));
        }
        start += stride;
    }
    // Without whole threads of eight slots first, most of a short row would be taken element by element.
    for slots in accumulators.as_chunks_mut::<8>().0 {
        let Some(whole) = row.get(start..start + 8) else {
            if let Some(rest) = row.get(start..length) {
                for (j, slot) in slots[..rest.length()].iter_mut().enumerate() {
                    *slot = step(*slot, rest.at(j));
                }
            }
            break;
        };
        for (j, slot) in slots.iter_mut().enumerate() {
            *slot = step(*slot, whole.at(j));
        }
        start += 8;
    }
    all
}

/// The first accumulators, all that a row of whole threads up to [`SHORT`] elements has.
#[inline(always)]
fn accumulate_short<R: Row>(row: R, identity: f32, step: impl Fn(f32, R::Item) -> f32 + Copy) -> [f32; SHORT] {
    let mut accumulators = [identity; SHORT];
    for (slots, start) in accumulators.as_chunks_mut::<8>().0.iter_mut().zip((0..row.length()).step_by(8)) {
        if let Some(whole) = row.get(start..start + 8) {
            for (j, slot) in slots.iter_mut().enumerate() {
                *slot = step(*slot, whole.at(j));
            }
        }
    }
    accumulators
}

/// Adds the first accumulators as [`combine_group`] does where the rest is zero.
#[inline(always)]
fn sum_short(accumulators: &[f32; SHORT]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    match crate::simd::level() {
        // SAFETY: the levels have AVX.
        crate::simd::Level::Avx512 | crate::simd::Level::Avx2 => return unsafe { tree::sum_short(accumulators) },
        crate::simd::Level::Baseline => {}
    }
    let slots: [f32; SHORT / 2] = pairs(accumulators, add);
    let slots: [f32; SHORT / 4] = pairs(&slots, add);
    let lanes: [f32; SHORT / 8] = pairs(&slots, add);
    let lanes: [f32; 4] = halves(&lanes, add);
    let lanes: [f32; 2] = halves(&lanes, add);
    add(lanes[0], lanes[1])
}

/// Adds a simdgroup's accumulators as [`combine_group`] does.
#[inline(always)]
pub fn sum_group(accumulators: &Accumulators) -> f32 {
    #[cfg(target_arch = "x86_64")]
    match crate::simd::level() {
        // SAFETY: the level has AVX-512 F and DQ.
        crate::simd::Level::Avx512 => return unsafe { tree::sum(accumulators) },
        // SAFETY: the level has AVX.
        crate::simd::Level::Avx2 => return unsafe { tree::sum_narrow(accumulators) },
        crate::simd::Level::Baseline => {}
    }
    combine_group(&accumulators.0, add)
}

/// Combines a simdgroup's accumulators: slots pairwise, lanes by the xor tree.
#[inline(always)]
pub fn combine_group(accumulators: &[f32; GROUP], op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    combine_lanes(&combine_slots(accumulators, op), op)
}

/// Combines the slots of each lane of a simdgroup pairwise.
#[inline(always)]
pub fn combine_slots(accumulators: &[f32; GROUP], op: impl Fn(f32, f32) -> f32 + Copy) -> [f32; 32] {
    let slots: [f32; 128] = pairs(accumulators, op);
    let slots: [f32; 64] = pairs(&slots, op);
    pairs(&slots, op)
}

#[inline(always)]
fn pairs<const N: usize, const HALF: usize>(values: &[f32; N], op: impl Fn(f32, f32) -> f32) -> [f32; HALF] {
    let mut out = [0.0; HALF];
    for (out, pair) in out.iter_mut().zip(values.chunks_exact(2)) {
        *out = op(pair[0], pair[1]);
    }
    out
}

/// Combines the 32 lanes of a simdgroup by the xor tree 16, 8, 4, 2, 1.
#[inline(always)]
pub fn combine_lanes(lanes: &[f32; 32], op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let lanes: [f32; 16] = halves(lanes, op);
    let lanes: [f32; 8] = halves(&lanes, op);
    let lanes: [f32; 4] = halves(&lanes, op);
    let lanes: [f32; 2] = halves(&lanes, op);
    op(lanes[0], lanes[1])
}

#[inline(always)]
fn halves<const N: usize, const HALF: usize>(values: &[f32; N], op: impl Fn(f32, f32) -> f32) -> [f32; HALF] {
    let (low, high) = values.split_at(HALF);
    let mut out = [0.0; HALF];
    for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
        *out = op(*low, *high);
    }
    out
}

/// The same for a row of less than [`SHORT`] elements: accumulators that hold the identity change nothing and are left out.
#[inline(always)]
fn fold_short<R: Row>(row: R, identity: f32, step: impl Fn(f32, R::Item) -> f32 + Copy, op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let mut lanes = [identity; SHORT / 8];
    for (start, lane) in (0..row.length()).step_by(8).zip(&mut lanes) {
        let mut values = [identity; 8];
        for (index, value) in (start..row.length()).zip(&mut values) {
            *value = step(*value, row.at(index));
        }
        let [a, b, c, d, e, f, g, h] = values;
        *lane = op(op(op(a, b), op(c, d)), op(op(e, f), op(g, h)));
    }
    let lanes: [f32; 4] = halves(&lanes, op);
    let lanes: [f32; 2] = halves(&lanes, op);
    op(lanes[0], lanes[1])
}

/// The larger; NaN if either is.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    let larger = if a > b { a } else { b };
    if a.is_nan() { a } else { larger }
}

/// The larger of two numbers, in one instruction; either if one is a NaN.
#[inline(always)]
pub fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The largest element, for which the order does not matter. A NaN may go unseen.
#[inline(always)]
pub fn largest(x: &[f32]) -> f32 {
    let lanes: [f32; 8] = if let Some(last) = x.last_chunk::<64>() {
        let lanes: [f32; 32] = halves(&largest_of_chunks(x, last), larger);
        let lanes: [f32; 16] = halves(&lanes, larger);
        halves(&lanes, larger)
    } else if let Some(last) = x.last_chunk() {
        largest_of_chunks(x, last)
    } else {
        return x.iter().copied().fold(f32::NEG_INFINITY, larger);
    };
    let lanes: [f32; 4] = halves(&lanes, larger);
    let lanes: [f32; 2] = halves(&lanes, larger);
    larger(lanes[0], lanes[1])
}

/// The largest at each place of all chunks of a row, of which the last may have elements of the one before.
#[inline(always)]
fn largest_of_chunks<const N: usize>(x: &[f32], last: &[f32; N]) -> [f32; N] {
    let mut lanes = *last;
    for chunk in x.as_chunks::<N>().0 {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *x);
        }
    }
    lanes
}

/// The smaller; NaN if either is.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    let smaller = if a < b { a } else { b };
    if a.is_nan() { a } else { smaller }
}

/// The sum.
#[inline(always)]
pub fn add(a: f32, b: f32) -> f32 {
    a + b
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same order, one accumulator and one step at a time, as the text above says it.
    fn by_the_book(row: &[f32], step: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
        let threads = row_threads(row.len());
        let slot = |j: usize| row.iter().skip(j).step_by(8 * threads).fold(0.0, |a, &x| step(a, x));
        let thread = |t: usize| {
            let s: Vec<f32> = (8 * t..8 * t + 8).map(slot).collect();
            ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
        };
        let simdgroup = |g: usize| {
            let mut lanes: Vec<f32> = (32 * g..32 * g + 32).map(thread).collect();
            for mask in [16, 8, 4, 2, 1] {
                lanes = (0..32).map(|l| lanes[l] + lanes[l ^ mask]).collect();
            }
            lanes[0]
        };
        (1..threads / 32).fold(simdgroup(0), |total, g| total + simdgroup(g))
    }

    #[test]
    fn the_largest_element_may_be_anywhere() {
        for n in 1..140 {
            for place in 0..n {
                let row: Vec<_> = (0..n).map(|i| if i == place { -1.0 } else { -2.0 }).collect();
                assert_eq!(largest(&row), -1.0, "element {place} of {n}");
            }
        }
        assert_eq!(largest(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn fold_is_the_documented_order() {
        let square = |a: f32, x: f32| x.mul_add(x, a);
        for n in (0..70).chain([255, 256, 257, 300, 1000, 1024, 1025, 1300, 4096, 4097, 9000, 32_768, 40_000, 100_001]) {
            let row: Vec<f32> = (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
            let row = &row[..];
            assert_eq!(fold(row, 0.0, add, add).to_bits(), by_the_book(row, add).to_bits(), "n = {n}");
            assert_eq!(fold(row, 0.0, square, add).to_bits(), by_the_book(row, square).to_bits(), "n = {n}");
            assert_eq!(sum(row, add).to_bits(), by_the_book(row, add).to_bits(), "n = {n}");
            assert_eq!(sum(row, square).to_bits(), by_the_book(row, square).to_bits(), "n = {n}");
            assert_eq!(sum([row, row], |a, [x, y]: [f32; 2]| x.mul_add(y, a)).to_bits(), by_the_book(row, square).to_bits(), "n = {n}");
        }
    }
}
