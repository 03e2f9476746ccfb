//! The conformance cases of values at the limits, against the definition itself.

use elinvar_core::DType;

use crate::{
    conformance::case::{Bound, Case, HostTensor},
    dot,
    matmul::MatMul,
};

/// A product of lines with these values at their beginnings, the rest random; each result has the bits of the definition.
fn case(dtypes: [DType; 2], [m, n, k]: [usize; 3], transpose_b: bool, special: [&[f64]; 2]) -> Case {
    let line = |dtype, count: usize, k: usize, seed, special: &[f64]| {
        let mut values = HostTensor::random(dtype, &[count, k], -1.0, 1.0, seed).to_f64();
        for (i, line) in values.chunks_mut(k).enumerate() {
            // Every line has one less of them than the line before.
            line.iter_mut().zip(special.iter().skip(i % special.len().max(1))).for_each(|(value, special)| *value = *special);
        }
        values
    };
    let (a, b) = (line(dtypes[0], m, k, 1, special[0]), line(dtypes[1], n, k, 2, special[1]));
    let stored = if transpose_b { b } else { (0..k * n).map(|at| b[at % n * k + at / n]).collect() };
    let dims = if transpose_b { [n, k] } else { [k, n] };
    let inputs = [Some(HostTensor::from_f64(dtypes[0], &[m, k], &a)), Some(HostTensor::from_f64(dtypes[1], &dims, &stored)), None];
    let operator = MatMul { transpose_b, output: Some(DType::F32), ..MatMul::default() };
    Case::new(operator, inputs, Bound::EXACT, move |i| {
        let wide = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<_>>();
        let b: Vec<f64> = if transpose_b { i[1].clone() } else { (0..n * k).map(|at| i[1][at % k * n + at / k]).collect() };
        let (a, b) = (wide(&i[0]), wide(&b));
        vec![(0..m * n).map(|at| f64::from(dot::product(&a[at / n * k..][..k], &b[at % n * k..][..k]))).collect()]
    })
    .of_rounded_steps()
}

pub(crate) fn cases() -> Vec<Case> {
    let [f32, f16, bf16] = [DType::F32, DType::F16, DType::BF16];
    let outliers: &[f64] = &[1000.0, -3000.0, 0.0, -0.0, 1e-6, -1e-7, 40000.0];
    let zeros = &[0.0; 200];
    let subnormal: &[f64] = &[1e-40, -6e-8, 3e-39, 1e-45, -1e-38];
    let infinite: &[f64] = &[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0];
    let huge: &[f64] = &[3e38, -1e38, 2.5e-38, 1e30, -1e37];
    let tiny: &[f64] = &[1e-36, 1e-37, -3e-30];
    // The largest integers of both sides.
    let [full, opposite] = [&[1.9921875; 300], &[-1.9921875; 300]];
    let mut cases = Vec::new();
    for dtypes in [[bf16; 2], [f16; 2], [f32, bf16], [f32, f16], [bf16, f32]] {
        for special in [[outliers, outliers], [infinite, outliers], [zeros, infinite], [subnormal, subnormal], [zeros, zeros]] {
            cases.push(case(dtypes, [1, 5, 300], true, special));
            cases.push(case(dtypes, [3, 9, 129], true, special));
            cases.push(case(dtypes, [9, 40, 257], true, special));
            cases.push(case(dtypes, [34, 17, 500], true, special));
            cases.push(case(dtypes, [2, 33, 150], false, special));
        }
    }
    for dtypes in [[bf16; 2], [f32, bf16]] {
        for special in [[huge, tiny], [huge, outliers], [tiny, tiny], [full, full], [full, opposite]] {
            cases.push(case(dtypes, [1, 7, 260], true, special));
            cases.push(case(dtypes, [12, 7, 131], true, special));
        }
    }
    cases
}
