//! Weighted sums of values: groups of 32 keys, each one chain of fma per output element, added in index order. Several rows share the loads.

use crate::matmul::cpu::{operand::Float as Load, simd::Simd};

use super::scores::load_padded;

/// Keys of a group.
pub(crate) const GROUP: usize = 32;

/// Widens rows into `wide`, `padded` elements apart, padded with zeros.
#[inline(always)]
pub(crate) fn widen<'a, S: Simd, T: Load>(simd: S, count: usize, row: impl Fn(usize) -> &'a [T], wide: &mut [f32], padded: usize) {
    for (i, wide) in wide.chunks_exact_mut(padded).take(count).enumerate() {
        for (chunk, wide) in wide.chunks_exact_mut(S::LANES).enumerate() {
            let vector = load_padded(simd, row(i).get(chunk * S::LANES..).unwrap_or_default());
            // SAFETY: `wide` has `LANES` elements.
            unsafe { simd.store(wide.as_mut_ptr(), vector) };
        }
    }
}

/// Values of consecutive keys: `padded` elements each, `stride` apart.
#[derive(Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) wide: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) padded: usize,
}

/// Adds a group's sum to each row of `out` (`values.padded` apart): the weights of row `r` are `weights[r · stride..][..keys]`.
#[inline(always)]
pub(crate) fn add_group<S: Simd>(simd: S, values: Values<'_>, keys: usize, weights: &[f32], stride: usize, out: &mut [f32]) {
    let rows = out.len() / values.padded;
    let mut row = 0;
    while row < rows {
        let (weights, out) = (&weights[row * stride..], &mut out[row * values.padded..]);
        row += match rows - row {
            4.. if S::LANES == 16 => add_rows::<S, 4>(simd, values, keys, weights, stride, out),
            2.. => add_rows::<S, 2>(simd, values, keys, weights, stride, out),
            _ => add_rows::<S, 1>(simd, values, keys, weights, stride, out),
        };
    }
}

#[inline(always)]
fn add_rows<S: Simd, const R: usize>(simd: S, values: Values<'_>, keys: usize, weights: &[f32], stride: usize, out: &mut [f32]) -> usize {
    let zeros = |r: usize| weights[r * stride..][..keys].iter().filter(|w| **w == 0.0).count();
    match (0..R).map(zeros).sum::<usize>() {
        0 => add_columns::<S, R, true>(simd, values, keys, weights, stride, out),
        n if n < R * keys => add_columns::<S, R, false>(simd, values, keys, weights, stride, out),
        _ => {}
    }
    R
}

#[inline(always)]
fn add_columns<S: Simd, const R: usize, const DENSE: bool>(
    simd: S,
    values: Values<'_>,
    keys: usize,
    weights: &[f32],
    stride: usize,
    out: &mut [f32],
) {
    let vectors = values.padded / S::LANES;
    let mut vector = 0;
    while vector < vectors {
        let column = vector * S::LANES;
        vector += if vectors - vector >= 4 {
            tile::<S, R, 4, DENSE>(simd, values, keys, weights, stride, out, column)
        } else {
            tile::<S, R, 1, DENSE>(simd, values, keys, weights, stride, out, column)
        };
    }
}

/// `R` rows by `C` vectors from `column` on; gives `C`. If not `DENSE`, some weights are zero and their values are passed over.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn tile<S: Simd, const R: usize, const C: usize, const DENSE: bool>(
    simd: S,
    values: Values<'_>,
    keys: usize,
    weights: &[f32],
    stride: usize,
    out: &mut [f32],
    column: usize,
) -> usize {
    let width = column + C * S::LANES;
    assert!(keys > 0 && width <= values.padded && values.wide.len() >= (keys - 1) * values.stride + width);
    assert!(weights.len() >= (R - 1) * stride + keys && out.len() >= (R - 1) * values.padded + width);
    let mut sums = [[simd.splat(0.0); C]; R];
    for key in 0..keys {
        // SAFETY: asserted above.
        let row: [S::Vector; C] =
            std::array::from_fn(|c| unsafe { simd.load(values.wide.as_ptr().add(key * values.stride + column + c * S::LANES)) });
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: asserted above.
            let weight = unsafe { *weights.as_ptr().add(r * stride + key) };
            if DENSE || weight != 0.0 {
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum = simd.fma(simd.splat(weight), value, *sum);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (c, sum) in sums.iter().enumerate() {
            // SAFETY: asserted above.
            unsafe {
                let at = out.as_mut_ptr().add(r * values.padded + column + c * S::LANES);
                simd.store(at, simd.add(simd.load(at), *sum));
            }
        }
    }
    C
}
