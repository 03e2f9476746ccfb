//! The canonical order of row reductions, followed by every device.
//!
//! A row of `n` elements is shared by `T(n) = clamp(next_power_of_two(n / 32), 32, 1024)` threads, each with 8 slots: `L = 8 T`
//! accumulators. Accumulator `j` folds the elements `k ≡ j (mod L)` in ascending order, starting from the identity; thread `t` owns the
//! accumulators `8t … 8t + 7`. Then a thread's slots are combined pairwise, the 32 lanes of a simdgroup by an xor tree (16, 8, 4, 2, 1), and
//! the simdgroups in index order. `L` depends on the row's length alone: never on the device, the data type or the batch.

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

/// The most accumulators a row can have.
pub const MAX_ACCUMULATORS: usize = 8 * 1024;

/// Combines the accumulators of a row: slots, lanes, simdgroups. `accumulators` is overwritten; its length is a multiple of 256.
#[inline(always)]
pub fn combine(accumulators: &mut [f32], op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let mut length = accumulators.len();
    for _ in 0..3 {
        length /= 2;
        for i in 0..length {
            accumulators[i] = op(accumulators[2 * i], accumulators[2 * i + 1]);
        }
    }
    let mut total: Option<f32> = None;
    for lanes in accumulators[..length].chunks_exact_mut(32) {
        let mut width = 16;
        while width > 0 {
            let (low, high) = lanes.split_at_mut(width);
            for (a, b) in low.iter_mut().zip(high) {
                *a = op(*a, *b);
            }
            width /= 2;
        }
        total = Some(total.map_or(lanes[0], |t| op(t, lanes[0])));
    }
    total.unwrap_or(0.0)
}

/// Folds a row in canonical order: `value(k)` for `k` in `0..n`.
#[inline(always)]
pub fn fold(n: usize, identity: f32, value: impl Fn(usize) -> f32, op: impl Fn(f32, f32) -> f32 + Copy) -> f32 {
    let mut storage = [identity; MAX_ACCUMULATORS];
    let accumulators = &mut storage[..8 * row_threads(n)];
    let step = accumulators.len();
    let mut start = 0;
    while start < n {
        let count = step.min(n - start);
        for (j, accumulator) in accumulators[..count].iter_mut().enumerate() {
            *accumulator = op(*accumulator, value(start + j));
        }
        start += step;
    }
    combine(accumulators, op)
}

/// The larger; NaN if either is.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller; NaN if either is.
#[inline(always)]
pub fn min(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
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
    fn by_the_book(row: &[f32]) -> f32 {
        let threads = row_threads(row.len());
        let slot = |j: usize| row.iter().skip(j).step_by(8 * threads).fold(0.0, |a, x| a + x);
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
        for n in [0, 1, 7, 8, 255, 256, 257, 1000, 1024, 1025, 4097, 40_000] {
            let row: Vec<f32> = (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
            assert_eq!(fold(n, 0.0, |k| row[k], add).to_bits(), by_the_book(&row).to_bits(), "n = {n}");
        }
    }

    #[test]
    fn threads_depend_on_the_length_alone() {
        assert_eq!([0, 1, 1024, 1025, 4096, 8192, 1 << 20].map(row_threads), [32, 32, 32, 64, 128, 256, 1024]);
    }
}
