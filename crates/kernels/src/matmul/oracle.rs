//! The naive reference, in f64.

use elinvar_core::DType;

use super::{MatMul, MatMulAdd, MatVec};
use crate::{
    Precision,
    conformance::case::{Bound, Case, HostTensor, made},
    dot,
};

/// `Σ_k a[i, k] b[j, k]` for every `i < m` and `j < n`, by index functions.
pub(crate) fn product([m, n, k]: [usize; 3], a: impl Fn(usize, usize) -> f64, b: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|l| a(at / n, l) * b(at % n, l)).sum()).collect()
}

/// Of a sum of `k` products of at most one, relative to its size of √k: fast sums have long chains, integers of 15 bits are off by 2^-15 of the largest.
pub(crate) fn error(precision: Precision, [a, b]: [DType; 2], k: usize) -> f64 {
    match precision {
        Precision::Strict if dot::applies(a, b) => 2f64.powi(-14),
        // Strict, or f32 elements are rounded to the type of the others.
        Precision::Invariant if dot::applies(a, b) => match [a, b].contains(&DType::BF16) {
            true => 2f64.powi(-8),
            false => 2f64.powi(-11),
        },
        Precision::Strict | Precision::Invariant | Precision::Fast => (k.div_ceil(256) + 70) as f64 * 2f64.powi(-24),
    }
}

pub(crate) fn bound(precision: Precision, types: [DType; 2], k: usize) -> Bound {
    Bound::relative(2e-7).with_absolute(error(precision, types, k) * (k as f64).sqrt())
}

fn uniform(dtype: DType, dims: &[usize], seed: u64) -> Option<HostTensor> {
    Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed))
}

/// One product of two matrices, each plain or transposed in memory, with a bias where `n` is odd.
fn single(operator: MatMul, [a_type, b_type]: [DType; 2], [m, n, k]: [usize; 3]) -> Case {
    let MatMul { transpose_a, transpose_b, alpha, .. } = operator;
    let a = uniform(a_type, &if transpose_a { [k, m] } else { [m, k] }, 1);
    let b = uniform(b_type, &if transpose_b { [n, k] } else { [k, n] }, 2);
    let bias = if n % 2 == 1 { uniform(DType::F32, &[n], 3) } else { None };
    let size = (k as f64).sqrt() * f64::from(alpha.abs().max(1.0));
    let bound = Bound::relative(2e-7).with_absolute(error(operator.precision, [a_type, b_type], k) * size);
    Case::new(operator, [a, b, bias], bound, move |i| {
        let a = |r: usize, l: usize| i[0][if transpose_a { l * m + r } else { r * k + l }];
        let b = |c: usize, l: usize| i[1][if transpose_b { c * k + l } else { l * n + c }];
        let sums = product([m, n, k], a, b);
        vec![sums.iter().enumerate().map(|(at, s)| f64::from(alpha) * s + i[2].get(at % n).unwrap_or(&0.0)).collect()]
    })
}

/// A product of two matrices of one type and what it is added to.
fn added(operator: MatMulAdd, dtype: DType, [m, n, k]: [usize; 3]) -> Case {
    let MatMulAdd { transpose_a, transpose_b, alpha, .. } = operator;
    let a = uniform(dtype, &if transpose_a { [k, m] } else { [m, k] }, 1);
    let b = uniform(dtype, &if transpose_b { [n, k] } else { [k, n] }, 2);
    // The product may be rounded to the addend's type by itself.
    let rounding = match dtype {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 0.0,
    };
    let bound = Bound::relative(3e-7).with_absolute((error(operator.precision, [dtype; 2], k) + 2.0 * rounding) * (k as f64).sqrt());
    Case::new(operator, [a, b, uniform(dtype, &[m, n], 3)], bound, move |i| {
        let a = |r: usize, l: usize| i[0][if transpose_a { l * m + r } else { r * k + l }];
        let b = |c: usize, l: usize| i[1][if transpose_b { c * k + l } else { l * n + c }];
        let sums = product([m, n, k], a, b);
        vec![sums.iter().zip(&i[2]).map(|(sum, addend)| f64::from(alpha) * sum + addend).collect()]
    })
}

fn batched() -> Vec<Case> {
    let plain = |i: &[Vec<f64>], batches: usize, a_batch: [usize; 2], b_batch: [usize; 2], [m, n, k]: [usize; 3]| {
        let one = |batch: usize| {
            let at = |[size, divisor]: [usize; 2]| batch / divisor % size;
            let (a, b) = (&i[0][at(a_batch) * m * k..], &i[1][at(b_batch) * k * n..]);
            product([m, n, k], |r, l| a[r * k + l], |c, l| b[l * n + c])
        };
        vec![(0..batches).flat_map(one).collect()]
    };
    let f = DType::F32;
    let bound = |k| bound(Precision::Fast, [f; 2], k);
    vec![
        Case::new(MatMul::default(), [uniform(f, &[3, 1, 5, 40], 1), uniform(f, &[2, 40, 6], 2), None], bound(40), move |i| {
            plain(i, 6, [3, 2], [2, 1], [5, 6, 40])
        }),
        Case::new(MatMul::default(), [uniform(f, &[4, 7, 300], 1), uniform(f, &[300, 9], 2), None], bound(300), move |i| {
            plain(i, 1, [1, 1], [1, 1], [28, 9, 300])
        }),
        Case::new(MatMul::default(), [uniform(f, &[40], 1), uniform(f, &[3, 40, 6], 2), None], bound(40), move |i| {
            plain(i, 3, [1, 1], [3, 1], [1, 6, 40])
        }),
        Case::new(MatMul::default(), [uniform(f, &[2, 5, 300], 1), uniform(f, &[300], 2), None], bound(300), move |i| {
            plain(i, 1, [1, 1], [1, 1], [10, 1, 300])
        }),
        Case::new(MatMul { transpose_a: true, ..MatMul::default() }, [uniform(f, &[300, 40], 1), uniform(f, &[300], 2), None], bound(300), |i| {
            vec![product([40, 1, 300], |r, l| i[0][l * 40 + r], |_, l| i[1][l])]
        }),
        Case::new(
            MatMul { precision: Precision::Fast, ..MatMul::default() },
            [uniform(f, &[2, 20, 40], 1), uniform(f, &[2, 40, 21], 2), None],
            bound(40),
            move |i| plain(i, 2, [2, 1], [2, 1], [20, 21, 40]),
        ),
        Case::new(MatMul::default(), [uniform(f, &[513], 1), uniform(f, &[513], 2), None], bound(513), move |i| {
            plain(i, 1, [1, 1], [1, 1], [1, 1, 513])
        }),
    ]
}

/// Views: heads of a `[tokens, heads, width]` tensor, and reversed rows.
fn views() -> Vec<Case> {
    let heads = |seed| uniform(DType::BF16, &[33, 3, 20], seed).map(|t| made(t.viewed(|l| l.permute(&[1, 0, 2]))));
    let scores = MatMul { transpose_b: true, alpha: 0.25, output: Some(DType::F32), ..MatMul::default() };
    vec![Case::new(scores, [heads(1), heads(2), None], bound(scores.precision, [DType::BF16; 2], 20), |i| {
        let one = |h: usize| {
            let (a, b) = (&i[0][h * 660..], &i[1][h * 660..]);
            product([33, 33, 20], |r, l| 0.25 * a[r * 20 + l], |c, l| b[c * 20 + l])
        };
        vec![(0..3).flat_map(one).collect()]
    })]
}

/// Lines of one element less than whole words, each followed by one that must not matter.
fn narrowed(operator: MatMul, [m, n, k]: [usize; 3]) -> Case {
    let lines = |count: usize, seed| {
        let mut values = HostTensor::random(DType::F32, &[count, k + 1], -1.0, 1.0, seed).to_f64();
        values.chunks_mut(k + 1).for_each(|line| line[k] = f64::NAN);
        Some(made(HostTensor::from_f64(DType::F32, &[count, k + 1], &values).viewed(|layout| layout.slice(1, 0, k, 1))))
    };
    Case::new(operator, [lines(m, 1), lines(n, 2), None], bound(operator.precision, [DType::F32; 2], k), move |i| {
        vec![product([m, n, k], |r, l| i[0][r * k + l], |c, l| i[1][c * k + l])]
    })
}

fn matvec(matrix: DType, vector: DType, n: usize, k: usize) -> Case {
    let inputs = [uniform(matrix, &[n, k], 1), uniform(vector, &[k], 2), if n.is_multiple_of(2) { uniform(matrix, &[n], 3) } else { None }];
    Case::new(MatVec, inputs, bound(Precision::Strict, [vector, matrix], k), move |i| {
        let sums = product([1, n, k], |_, l| i[1][l], |r, l| i[0][r * k + l]);
        vec![sums.iter().enumerate().map(|(r, s)| s + i[2].get(r).unwrap_or(&0.0)).collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = [batched(), views()].into_iter().flatten().collect::<Vec<_>>();
    let sizes = [0, 1, 7, 33, 257];
    for (seed, &dtype) in DType::FLOATS.iter().enumerate() {
        for precision in [Precision::Strict, Precision::Fast] {
            for (i, m) in sizes.into_iter().enumerate() {
                for (j, n) in sizes.into_iter().enumerate() {
                    let k = [0, 31, 256, 1000, 65][(i + j + seed) % 5];
                    let operator = MatMul { transpose_a: i % 2 == 1, transpose_b: j % 2 == seed % 2, precision, ..MatMul::default() };
                    cases.push(single(operator, [dtype, dtype], [m, n, k]));
                }
            }
        }
        for (n, k) in [(1, 1), (7, 33), (64, 4096), (1001, 257)] {
            cases.push(matvec(dtype, dtype, n, k));
            cases.push(matvec(dtype, DType::F32, n, k));
        }
    }
    let linear = MatMul { transpose_b: true, ..MatMul::default() };
    cases.push(single(MatMul { alpha: -0.5, ..linear }, [DType::F32, DType::BF16], [5, 31, 1024]));
    cases.push(single(MatMul { output: Some(DType::F32), ..linear }, [DType::F16, DType::F16], [40, 99, 2048]));
    // Few rows of a plain b, and many rows.
    let [f32, f16, bf16] = [DType::F32, DType::F16, DType::BF16];
    for (m, types) in [(1, [bf16, bf16]), (2, [f32, f16]), (3, [f16, f32]), (6, [f32, f32]), (9, [bf16, f32])] {
        cases.push(single(MatMul { alpha: 3.0, ..MatMul::default() }, types, [m, 70 + m, 513]));
    }
    for (m, types) in [(2, [f16, f16]), (3, [bf16, f32]), (6, [f32, bf16])] {
        cases.push(single(linear, types, [m, 40 + m, 1030]));
    }
    // Few rows that a GPU pads to 8, 16 and 32.
    for (m, types) in [(5, [f32, bf16]), (12, [bf16, bf16]), (20, [f32, bf16]), (32, [f16, f16])] {
        cases.push(single(linear, types, [m, 40 + m, 1160]));
    }
    cases.push(single(linear, [DType::F32, DType::F32], [600, 9, 33]));
    // More columns than a large GPU has simdgroups; blocks of wide lines of several spans, and enough blocks for a large GPU.
    cases.push(matvec(DType::F32, DType::F32, 2200, 1024));
    cases.push(single(linear, [bf16, bf16], [1, 2200, 264]));
    cases.push(single(linear, [f32, bf16], [1, 2200, 3072]));
    cases.push(single(linear, [f32, f32], [390, 386, 72]));
    cases.push(single(linear, [DType::F32, DType::BF16], [35, 40, 1320]));
    // More tiles of tensor cores than a large GPU has multiprocessors.
    cases.push(single(linear, [bf16, bf16], [33, 17_200, 8]));
    cases.push(single(MatMul { transpose_a: true, ..MatMul::default() }, [DType::F16, DType::F32], [330, 340, 70]));
    let sum = MatMulAdd { transpose_a: false, transpose_b: false, alpha: 0.5, precision: Precision::Strict, output: None };
    cases.push(added(MatMulAdd { transpose_b: true, ..sum }, f32, [7, 33, 65]));
    for (dtype, transpose_a) in [(f32, true), (f16, true), (bf16, false)] {
        cases.push(added(MatMulAdd { transpose_a, precision: Precision::Fast, ..sum }, dtype, [130, 72, 256]));
    }
    let invariant = MatMul { precision: Precision::Invariant, ..linear };
    for (number, m) in [1, 7, 64, 130].into_iter().enumerate() {
        cases.push(single(invariant, [DType::F32, [bf16, f16][number % 2]], [m, 40 + m, 64 * (number + 1)]));
    }
    cases.push(single(invariant, [bf16, bf16], [9, 48, 192]));
    let fast = MatMul { precision: Precision::Fast, alpha: 0.5, ..MatMul::default() };
    cases.extend([[2, 3, 31], [1, 3, 287], [2, 3, 287], [9, 9, 287], [130, 130, 775]].map(|extents| narrowed(linear, extents)));
    cases.push(narrowed(MatMul { alpha: 1.0, transpose_b: true, ..fast }, [9, 9, 287]));
    // Longer than a threadgroup keeps, and on a large GPU more than one turn of its threads.
    cases.push(matvec(f32, f32, 3, 9000));
    cases.push(single(MatMul { output: Some(DType::F32), ..fast }, [DType::F16, DType::BF16], [70, 67, 100]));
    cases.push(single(MatMul { transpose_b: true, ..fast }, [bf16, bf16], [136, 72, 264]));
    // Each f32 element may be rounded to the other operand's type.
    let rounded = Bound::relative(2e-7).with_absolute(256f64.sqrt() * 2f64.powi(-8));
    for (transpose_b, b_type) in [(true, bf16), (false, bf16), (true, f16)] {
        cases.push(single(MatMul { transpose_b, ..fast }, [f32, b_type], [130, 72, 256]).within(rounded));
    }
    cases.push(single(MatMul { transpose_a: true, transpose_b: true, ..fast }, [bf16, f32], [66, 130, 40]).within(rounded));
    // Products of a small rank, as an adapter's gradients are.
    cases.push(single(MatMul { output: Some(f32), ..fast }, [bf16, f32], [300, 8, 256]).within(rounded));
    cases.push(single(MatMul { transpose_a: true, output: Some(f32), ..fast }, [f32, bf16], [6, 300, 256]).within(rounded));
    cases.extend(dot::oracle::cases());
    cases
}
