//! Dot products of queries with a panel of keys: as many keys as a vector has lanes, transposed, so that the strict tree runs down
//! the registers, one key in each lane. The panel is made once for all rows of a tile.

use crate::matmul::cpu::{operand::Float as Load, simd::Simd};

/// Accumulators of a strict dot product.
const PARTIALS: usize = 256;

/// Accumulators that a lane of the tree owns.
const SLOTS: usize = 8;

/// Rows that share the loads of a panel at most.
pub(crate) const ROWS: usize = 4;

/// Elements of a row after padding to whole vectors.
pub(crate) fn padded(width: usize, lanes: usize) -> usize {
    width.next_multiple_of(lanes)
}

/// Widens a query, padded with −0.0, whose product with a padded key's +0.0 changes no accumulator.
#[inline(always)]
pub(crate) fn widen_query<S: Simd, T: Load>(simd: S, from: &[T], to: &mut [f32]) {
    for (chunk, to) in to.chunks_exact_mut(S::LANES).enumerate() {
        let vector = load_padded(simd, from.get(chunk * S::LANES..).unwrap_or_default());
        // SAFETY: `to` has `LANES` elements.
        unsafe { simd.store(to.as_mut_ptr(), vector) };
    }
    to[from.len()..].fill(-0.0);
}

/// Writes `panel[e · LANES + i] = row(i)[e]` for `count` rows, zero elsewhere.
#[inline(always)]
pub(crate) fn pack<'a, S: Simd, T: Load>(simd: S, count: usize, row: impl Fn(usize) -> &'a [T], panel: &mut [f32]) {
    let mut square = [simd.splat(0.0); 16];
    let square = &mut square[..S::LANES];
    for (chunk, panel) in panel.chunks_exact_mut(S::LANES * S::LANES).enumerate() {
        let start = chunk * S::LANES;
        for (i, vector) in square.iter_mut().enumerate() {
            *vector = if i < count { load_padded(simd, row(i).get(start..).unwrap_or_default()) } else { simd.splat(0.0) };
        }
        simd.transpose(square);
        for (vector, panel) in square.iter().zip(panel.chunks_exact_mut(S::LANES)) {
            // SAFETY: `panel` has `LANES` elements.
            unsafe { simd.store(panel.as_mut_ptr(), *vector) };
        }
    }
}

/// The first elements of `row`, padded with zeros if they do not fill a vector.
#[inline(always)]
pub(crate) fn load_padded<S: Simd, T: Load>(simd: S, row: &[T]) -> S::Vector {
    if row.len() >= S::LANES {
        // SAFETY: `row` has `LANES` elements.
        return unsafe { T::load(simd, row.as_ptr()) };
    }
    let mut wide = [0.0; 16];
    for (wide, value) in wide.iter_mut().zip(row) {
        *wide = value.widen();
    }
    // SAFETY: `wide` has 16 elements, and a vector at most as many.
    unsafe { simd.load(wide.as_ptr()) }
}

/// Dot products of the queries `q` (`padded` elements apart) with the keys of a panel: `out[row · stride + i]`.
#[inline(always)]
pub(crate) fn dots<S: Simd>(simd: S, panel: &[f32], q: &[f32], padded: usize, out: &mut [f32], stride: usize) {
    let rows = q.len() / padded;
    let mut row = 0;
    while row < rows {
        let (q, out) = (&q[row * padded..], &mut out[row * stride..]);
        row += match rows - row {
            4.. if S::LANES == 16 => tile::<S, 4>(simd, panel, q, padded, out, stride),
            2.. => tile::<S, 2>(simd, panel, q, padded, out, stride),
            _ => tile::<S, 1>(simd, panel, q, padded, out, stride),
        };
    }
}

/// `R` rows at once, sharing the loads of the panel; gives `R`.
#[inline(always)]
fn tile<S: Simd, const R: usize>(simd: S, panel: &[f32], q: &[f32], padded: usize, out: &mut [f32], stride: usize) -> usize {
    assert!(panel.len() >= padded * S::LANES && q.len() >= R * padded && out.len() >= (R - 1) * stride + S::LANES);
    let lanes = (padded / SLOTS).min(PARTIALS / SLOTS);
    let mut sums = [[simd.splat(0.0); R]; PARTIALS / SLOTS];
    for (lane, sums) in sums[..lanes].iter_mut().enumerate() {
        // SAFETY: the slots of a lane start below `min(padded, 256)`, a multiple of eight, and go on below `padded`.
        let slot = |s: usize| unsafe { accumulate::<S, R>(simd, panel.as_ptr(), q.as_ptr(), padded, lane * SLOTS + s) };
        let pair = |s: usize| add(simd, slot(s), slot(s + 1));
        *sums = add(simd, add(simd, pair(0), pair(2)), add(simd, pair(4), pair(6)));
    }
    let mut half = lanes.next_power_of_two() / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] = add(simd, sums[i], sums[i + half]);
        }
        half /= 2;
    }
    if lanes < PARTIALS / SLOTS {
        // What adding the empty accumulators comes to: −0.0 becomes +0.0.
        sums[0] = add(simd, sums[0], [simd.splat(0.0); R]);
    }
    for (row, sum) in sums[0].iter().enumerate() {
        // SAFETY: asserted above.
        unsafe { simd.store(out.as_mut_ptr().add(row * stride), *sum) };
    }
    R
}

#[inline(always)]
fn add<S: Simd, const R: usize>(simd: S, a: [S::Vector; R], b: [S::Vector; R]) -> [S::Vector; R] {
    std::array::from_fn(|i| simd.add(a[i], b[i]))
}

/// Accumulator `first`: the elements `first`, `first + 256`, …
///
/// # Safety
/// `first < padded`; `panel` has `padded` vectors and `q` `R` rows of `padded` elements.
#[inline(always)]
unsafe fn accumulate<S: Simd, const R: usize>(simd: S, panel: *const f32, q: *const f32, padded: usize, first: usize) -> [S::Vector; R] {
    let mut sums = [simd.splat(0.0); R];
    let mut at = first;
    loop {
        // SAFETY: `at < padded`.
        unsafe {
            let key = simd.load(panel.add(at * S::LANES));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = simd.fma(simd.splat(*q.add(row * padded + at)), key, *sum);
            }
        }
        at += PARTIALS;
        if at >= padded {
            return sums;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::cpu::simd::{Level, Work};

    struct Dots<'a> {
        q: &'a [f32],
        k: &'a [f32],
        width: usize,
    }

    impl Work for Dots<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<f32> {
            let (padded, keys) = (padded(self.width, 16), self.k.len() / self.width);
            let mut queries = vec![0.0; self.q.len() / self.width * padded];
            for (from, to) in self.q.chunks(self.width).zip(queries.chunks_mut(padded)) {
                widen_query(simd, from, to);
            }
            let (mut panel, stride) = (vec![f32::NAN; padded * S::LANES], keys.next_multiple_of(S::LANES));
            let mut out = vec![0.0; queries.len() / padded * stride];
            for start in (0..keys).step_by(S::LANES) {
                pack(simd, S::LANES.min(keys - start), |i| &self.k[(start + i) * self.width..][..self.width], &mut panel);
                dots(simd, &panel, &queries, padded, &mut out[start..], stride);
            }
            out.chunks(stride).flat_map(|row| row[..keys].to_vec()).collect()
        }
    }

    /// The strict dot product, one step at a time.
    fn by_the_book(q: &[f32], k: &[f32]) -> f32 {
        let mut partials = [0f32; 256];
        for (i, (q, k)) in q.iter().zip(k).enumerate() {
            partials[i % 256] = q.mul_add(*k, partials[i % 256]);
        }
        crate::order::combine_group(&partials, crate::order::add)
    }

    #[test]
    fn dot_products_are_strict_at_every_level() {
        for width in [1, 2, 7, 8, 9, 16, 40, 64, 80, 96, 128, 192, 255, 256, 257, 300, 576] {
            let value = |i: usize| if i % 11 == 0 { -1e-40 } else { ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3 };
            let q: Vec<f32> = (0..7 * width).map(|i| value(i + 3)).collect();
            let k: Vec<f32> = (0..19 * width).map(|i| value(2 * i) * if i / width == 5 { 0.0 } else { 1.0 }).collect();
            let expected: Vec<u32> = q.chunks(width).flat_map(|q| k.chunks(width).map(|k| by_the_book(q, k).to_bits())).collect();
            for level in Level::all() {
                let found: Vec<u32> = level.run(Dots { q: &q, k: &k, width }).into_iter().map(f32::to_bits).collect();
                assert!(found == expected, "{width} elements, {level:?}");
            }
        }
    }
}
