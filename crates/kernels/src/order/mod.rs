//! The canonical order of row reductions, followed by every device.
//!
//! A row of `n` elements is shared by `T(n) = clamp(next_power_of_two(n / 32), 32, 1024)` threads, each with 8 slots: `L = 8 T`
//! accumulators. Accumulator `j` folds the elements `k ≡ j (mod L)` in ascending order, starting from the identity; thread `t` owns the
//! accumulators `8t … 8t + 7`. Then a thread's slots are combined pairwise, the 32 lanes of a simdgroup by an xor tree (16, 8, 4, 2, 1), and
//! the simdgroups in index order. `L` depends on the row's length alone: never on the device, the data type or the batch.
//!
//! An element passes through at most `d(n) = ⌈n / L⌉ + 7 + T / 32` operations: a sum's error is at most `d(n) · 2^-24 · Σ|x|`. `d` is at
//! most 43 up to `n = 32768`.

mod columns;
#[cfg(target_arch = "x86_64")]
mod tree;

use std::ops::Range;

use elinvar_core::{DeviceProperties, Extent};

pub use columns::{Fold, TILE, columns_scratch, fold_columns};

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

/// Threads that share a row of `n` elements.
pub const fn row_threads(n: usize) -> usize {
    let wanted = n.div_ceil(32).next_power_of_two();
    if wanted < 32 {
        32
    } else if wanted > 1024 {
        1024
    } else {
        wanted
    }
}

/// Elements of a row that one simdgroup takes.
pub(crate) const ONE_SIMDGROUP: usize = 1024;

/// Lanes of a simdgroup that share a row of `n` elements.
pub(crate) fn row_lanes(n: usize) -> usize {
    n.div_ceil(8).next_power_of_two().min(32)
}

/// The grid and the threadgroup in which `rows` rows of `length` elements are reduced on a device.
///
/// A row of more than 1024 elements has a threadgroup. Of shorter rows only the lanes with elements are launched: several rows may share a
/// simdgroup, and up to eight simdgroups a threadgroup where that leaves enough threadgroups for every unit and the device has the threads.
pub(crate) fn row_launch(rows: usize, length: usize, device: &DeviceProperties) -> [Extent; 2] {
    let extent = |n: usize| Extent::linear(n.min(u32::MAX as usize) as u32);
    if length > ONE_SIMDGROUP {
        return [extent(rows), extent(row_threads(length))];
    }
    let simdgroups = (rows * row_lanes(length)).div_ceil(32);
    let shared = (simdgroups / (8 * device.compute_units.max(1))).min(device.max_threads_per_threadgroup / 32).clamp(1, 8);
    [extent(simdgroups.div_ceil(shared)), extent(32 * shared)]
}

/// Visits in which the threads of a row of `n` neighbours take all of it, if they can keep it in registers: whole groups of eight elements, and not more
/// than four for each thread. Else zero.
pub(crate) const fn row_visits(n: usize) -> u32 {
    let visits = n.div_ceil(8 * row_threads(n));
    if n.is_multiple_of(8) && visits <= 4 { visits as u32 } else { 0 }
}

/// A bound of the threads of a threadgroup that reduces rows of `n` elements, for the compiler to know how many registers there are.
pub(crate) const fn row_threads_bound(n: usize) -> u32 {
    let threads = row_threads(n);
    if threads < 256 { 256 } else { threads as u32 }
}

/// Accumulators of a simdgroup: 32 lanes of 8 slots.
pub const GROUP: usize = 256;

/// Simdgroups that share a row of `n` elements.
pub const fn row_groups(n: usize) -> usize {
    row_threads(n) / 32
}

/// Rows below this length use few enough accumulators that the rest is not worth touching.
const SHORT: usize = 64;

/// Folds a row in canonical order: `step` takes an element into an accumulator, `op` combines two accumulators.
///
/// `op(a, identity)` must be `a` for every `a` that accumulators can hold.
#[inline(always)]
pub fn fold<T: Copy>(row: &[T], identity: f32, step: impl Fn(f32, T) -> f32 + Copy, op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    fold_groups(row, 0..row_groups(row.len()), identity, step, op)
}

/// [`fold`] from zero with accumulators that are added: the same bits, sooner.
#[inline(always)]
pub fn sum<T: Copy>(row: &[T], step: impl Fn(f32, T) -> f32 + Copy) -> f32 {
    if row.len() < SHORT {
        return fold_short(row, 0.0, step, add);
    }
    let mut total = 0.0;
    for group in 0..row_groups(row.len()) {
        let part = sum_group(&accumulate(row, group, 0.0, step));
        total = if group == 0 { part } else { add(total, part) };
    }
    total
}

/// The part of [`fold`] that the simdgroups `groups`, at least one, do; the parts are combined in order.
#[inline(always)]
pub fn fold_groups<T: Copy>(
    row: &[T],
    groups: Range<usize>,
    identity: f32,
    step: impl Fn(f32, T) -> f32 + Copy,
    op: impl Fn(f32, f32) -> f32 + Copy,
) -> f32 {
    if row.len() < SHORT {
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

/// A simdgroup's accumulators, on cache lines of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Accumulators(pub [f32; GROUP]);

/// The accumulators of simdgroup `group`.
#[inline(always)]
fn accumulate<T: Copy>(row: &[T], group: usize, identity: f32, step: impl Fn(f32, T) -> f32 + Copy) -> Accumulators {
    let stride = 8 * row_threads(row.len());
    let mut all = Accumulators([identity; GROUP]);
    let accumulators = &mut all.0;
    let mut rest = row.get(group * GROUP..).unwrap_or_default();
    // Rows up to 32768 long have at most four elements for each accumulator: one visit.
    while let (Some(a), Some(b), Some(c), Some(d)) = (chunk(rest, 0), chunk(rest, stride), chunk(rest, 2 * stride), chunk(rest, 3 * stride)) {
        for (j, accumulator) in accumulators.iter_mut().enumerate() {
            *accumulator = step(step(step(step(*accumulator, a[j]), b[j]), c[j]), d[j]);
        }
        rest = rest.get(4 * stride..).unwrap_or_default();
    }
    while let Some(a) = chunk(rest, 0) {
        for (accumulator, &x) in accumulators.iter_mut().zip(a) {
            *accumulator = step(*accumulator, x);
        }
        rest = rest.get(stride..).unwrap_or_default();
    }
    for (accumulator, &x) in accumulators.iter_mut().zip(rest) {
        *accumulator = step(*accumulator, x);
    }
    all
}

#[inline(always)]
fn chunk<T>(row: &[T], start: usize) -> Option<&[T; GROUP]> {
    row.get(start..)?.first_chunk()
}

/// Adds a simdgroup's accumulators as [`combine_group`] does.
#[inline(always)]
pub fn sum_group(accumulators: &Accumulators) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::level() == crate::simd::Level::Avx512 {
        // SAFETY: the level has AVX-512 F and DQ.
        return unsafe { tree::sum(accumulators) };
    }
    combine_group(&accumulators.0, add)
}

/// Combines a simdgroup's accumulators: slots pairwise, lanes by the xor tree.
#[inline(always)]
pub fn combine_group(accumulators: &[f32; GROUP], op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let slots: [f32; 128] = pairs(accumulators, op);
    let slots: [f32; 64] = pairs(&slots, op);
    combine_lanes(&pairs(&slots, op), op)
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
fn fold_short<T: Copy>(row: &[T], identity: f32, step: impl Fn(f32, T) -> f32 + Copy, op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let mut lanes = [identity; SHORT / 8];
    for (lane, slots) in lanes.iter_mut().zip(row.chunks(8)) {
        let mut values = [identity; 8];
        for (value, &x) in values.iter_mut().zip(slots) {
            *value = step(*value, x);
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

    #[test]
    fn rows_of_whole_words_are_kept_in_up_to_four_visits() {
        assert_eq!([8, 256, 1000, 5120, 8192, 32768].map(row_visits), [1, 1, 4, 3, 4, 4]);
        assert_eq!([0, 7, 1001, 32776].map(row_visits), [0; 4]);
        assert_eq!([8, 8192, 16384, 100_000].map(row_threads_bound), [256, 256, 512, 1024]);
    }

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
    fn fold_is_the_documented_order() {
        let square = |a: f32, x: f32| x.mul_add(x, a);
        for n in (0..70).chain([255, 256, 257, 300, 1000, 1024, 1025, 1300, 4096, 4097, 9000, 32_768, 40_000, 100_001]) {
            let row: Vec<f32> = (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
            assert_eq!(fold(&row, 0.0, add, add).to_bits(), by_the_book(&row, add).to_bits(), "n = {n}");
            assert_eq!(fold(&row, 0.0, square, add).to_bits(), by_the_book(&row, square).to_bits(), "n = {n}");
            assert_eq!(sum(&row, add).to_bits(), by_the_book(&row, add).to_bits(), "n = {n}");
            assert_eq!(sum(&row, square).to_bits(), by_the_book(&row, square).to_bits(), "n = {n}");
        }
    }

    #[test]
    fn threads_depend_on_the_length_alone() {
        assert_eq!([0, 1, 1024, 1025, 4096, 8192, 1 << 20].map(row_threads), [32, 32, 32, 64, 128, 256, 1024]);
    }

    #[test]
    fn short_rows_share_simdgroups_and_threadgroups() {
        let properties = elinvar_core::Backend::properties(&elinvar_core::NullBackend::new()).clone();
        let device = |max_threads_per_threadgroup| DeviceProperties { compute_units: 10, max_threads_per_threadgroup, ..properties.clone() };
        let launch = |rows, length| row_launch(rows, length, &device(1024)).map(|Extent([x, ..])| x);
        assert_eq!(launch(7, 5000), [7, 256]);
        assert_eq!(launch(7, 1000), [7, 32]);
        assert_eq!(launch(7, 20), [1, 32]);
        assert_eq!(launch(1 << 20, 1000), [1 << 17, 256]);
        assert_eq!(launch(1 << 20, 1), [1 << 12, 256]);
        assert_eq!(launch(3, 0), [1, 32]);
        // From an M1 to an M3 Ultra, each core has eight simdgroups before any share a threadgroup.
        for compute_units in [7, 40, 80] {
            let device = DeviceProperties { compute_units, ..device(1024) };
            for rows in [1, 60, 500, 4096, 1 << 20] {
                let [Extent([groups, ..]), Extent([threads, ..])] = row_launch(rows, 1000, &device);
                assert!(
                    groups as usize >= rows.min(8 * compute_units) && groups as usize * threads as usize / 32 >= rows,
                    "{rows} rows on {compute_units} cores"
                );
            }
        }
        let few = |most| row_launch(1 << 20, 1000, &device(most)).map(|Extent([x, ..])| x);
        assert_eq!([few(128), few(31)], [[1 << 18, 128], [1 << 20, 32]]);
    }
}
