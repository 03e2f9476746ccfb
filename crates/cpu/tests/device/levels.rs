//! Every level of instructions: dot products against their definition, and every strict operator, bit for bit.

use std::{cell::OnceCell, num::NonZeroUsize, sync::Arc};

use elinvar_core::{DType, Device};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Operator, Precision,
    attention::Scoring,
    attention_scores::AttentionScores,
    conformance::{Bound, Case, HostTensor, Placement, cases, run},
    dot,
    layer_norm::LayerNorm,
    matmul::MatMul,
    order,
    rms_norm::RmsNorm,
    simd::{Level, level, limit},
    unary::{Unary, UnaryOp},
};

use crate::LEVEL;

/// Calls `check` with the CPU device limited to each level that this processor has.
fn at_every_level(check: impl Fn(&Device)) {
    let _alone = LEVEL.write().unwrap();
    let device = Device::new(CpuBackend::new(NonZeroUsize::new(2)).unwrap());
    let best = level();
    for most in [Level::Baseline, Level::Avx2, Level::Avx512].into_iter().filter(|&most| most <= best) {
        limit(most);
        assert_eq!(level(), most);
        check(&device);
    }
    assert_eq!(level(), best);
}

fn result(device: &Device, operator: impl Operator + 'static, inputs: &[&HostTensor]) -> Vec<f32> {
    let inputs: Vec<_> = inputs.iter().map(|&tensor| Some(tensor.clone())).chain([None]).collect();
    let [y] = &run(&Case::new(operator, inputs, Bound::EXACT, |_| Vec::new()), device, Placement::Odd).unwrap()[..] else { panic!("one result") };
    floats(y)
}

fn floats(tensor: &HostTensor) -> Vec<f32> {
    tensor.to_f64().into_iter().map(|v| v as f32).collect()
}

/// The definition of the strict dot product, one operation at a time.
fn strict_dot(a: impl Iterator<Item = f32>, b: impl Iterator<Item = f32>) -> f32 {
    let mut partials = [0f32; 256];
    for (i, (a, b)) in a.zip(b).enumerate() {
        partials[i % 256] = a.mul_add(b, partials[i % 256]);
    }
    order::combine_group(&partials, order::add)
}

/// Deterministic values of mixed sign and magnitude, signed zeros among them.
fn random(seed: u32, dtype: DType, dims: [usize; 2]) -> HostTensor {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(match state % 16 {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(state & 0x807f_ffff | 0x0080_0000),
            _ => (state >> 8) as f32 / (1 << 23) as f32 - 1.0,
        })
    };
    HostTensor::from_f64(dtype, &dims, &(0..dims[0] * dims[1]).map(|_| next()).collect::<Vec<_>>())
}

/// A matrix within a wider one of random values: of rows, or of columns, that are contiguous.
fn matrix(seed: u32, dtype: DType, [rows, columns]: [usize; 2], transposed: bool) -> HostTensor {
    let wide = if transposed { [columns, rows + 3] } else { [rows, columns + 2] };
    random(seed, dtype, wide).viewed(|all| if transposed { all.slice(1, 0, rows, 1)?.permute(&[1, 0]) } else { all.slice(1, 0, columns, 1) }).unwrap()
}

const SIZES: [usize; 8] = [0, 1, 7, 31, 33, 255, 257, 1000];

/// Products `a * b^T` of types [`a`, `b`] against the definition; of large ones, some elements.
fn check_products(dtypes: [DType; 2], [m, n, k]: [usize; 3], transposed: [bool; 2], device: &Device) {
    let [a, b] = [(1, m), (2, n)].map(|(i, rows)| matrix(i as u32 + k as u32, dtypes[i - 1], [rows, k], transposed[i - 1]));
    let operator = MatMul { transpose_b: true, output: Some(DType::F32), ..MatMul::default() };
    let (found, a, b) = (result(device, operator, &[&a, &b]), floats(&a), floats(&b));
    for index in (0..m * n).step_by((m * n / 200).max(1) | 1) {
        let (row, column) = (index / n, index % n);
        let (a, b) = (&a[row * k..][..k], &b[column * k..][..k]);
        let is_fixed = dot::applies(dtypes[0], dtypes[1]);
        let expected = if is_fixed { dot::product(a, b) } else { strict_dot(a.iter().copied(), b.iter().copied()) };
        assert_eq!(found[index].to_bits(), expected.to_bits(), "{:?} {dtypes:?} {m}x{n}x{k} {transposed:?} ({row}, {column})", level());
    }
}

#[test]
fn products_of_matrices_are_strict() {
    at_every_level(|device| {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for k in SIZES {
                for [m, n] in [[1, 1], [7, 33], [31, 7], [33, 31], [15, 64]] {
                    check_products([dtype; 2], [m, n, k], [k % 2 == 1, m < 9 || k % 3 == 1], device);
                }
            }
        }
        check_products([DType::F32; 2], [257, 255, 512], [false, true], device);
        check_products([DType::BF16; 2], [255, 257, 100], [true, false], device);
        for k in [2047, 2048, 5000, 8200] {
            check_products([DType::F16; 2], [20, 70, k], [false, k % 2 == 1], device);
        }
    });
}

#[test]
fn products_of_few_rows_are_strict() {
    at_every_level(|device| {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            for k in SIZES {
                for [m, n] in [[1, 1], [1, 1000], [2, 33], [3, 31], [5, 7], [8, 9]] {
                    check_products([DType::F32, dtype], [m, n, k], [false; 2], device);
                }
            }
        }
    });
}

/// By vectors and, where the processor has them and is fast with them, by pairs of bf16: within the error of long f32 sums.
#[test]
fn fast_products_are_close_to_exact() {
    at_every_level(|device| {
        for ([m, n, k], dtype) in
            [[1, 1, 1], [15, 33, 31], [31, 65, 257], [40, 40, 3000]].into_iter().flat_map(|e| [(e, DType::F32), (e, DType::BF16)])
        {
            for transposed in [false, true] {
                let (a, b) = (matrix(1, dtype, [m, k], false), matrix(2, dtype, [n, k], transposed));
                let operator = MatMul { transpose_b: true, precision: Precision::Fast, output: Some(DType::F32), ..MatMul::default() };
                let (found, a, b) = (result(device, operator, &[&a, &b]), a.to_f64(), b.to_f64());
                for (index, &found) in found.iter().enumerate().step_by(7) {
                    let (row, column) = (index / n, index % n);
                    let exact: f64 = a[row * k..][..k].iter().zip(&b[column * k..][..k]).map(|(a, b)| a * b).sum();
                    let error = (f64::from(found) - exact).abs();
                    assert!(error <= 1e-6 * (k as f64).sqrt(), "{:?} {dtype} {m}x{n}x{k}: off by {error}", level());
                }
            }
        }
    });
}

#[test]
fn scores_are_strict() {
    const QUERIES: usize = 7;
    const KEYS: usize = 19;
    at_every_level(|device| {
        for width in [1, 2, 7, 8, 9, 16, 40, 64, 80, 96, 128, 192, 255, 256, 257, 300, 576] {
            let value = |i: usize| if i.is_multiple_of(11) { -1e-40 } else { ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3 };
            let q: Vec<f32> = (0..QUERIES * width).map(|i| value(i + 3)).collect();
            let k: Vec<f32> = (0..KEYS * width).map(|i| value(2 * i) * if i / width == 5 { 0.0 } else { 1.0 }).collect();
            let dot = |q: &[f32], k: &[f32]| strict_dot(q.iter().copied(), k.iter().copied()).to_bits();
            let expected: Vec<u32> = q.chunks(width).flat_map(|q| k.chunks(width).map(move |k| dot(q, k))).collect();
            let operator = AttentionScores { scoring: Scoring { scale: Some(1.0), ..Scoring::default() }, softmax: false };
            let [q, k] = [(QUERIES, &q), (KEYS, &k)].map(|(rows, values)| HostTensor::new(&[1, 1, rows, width], values));
            let found: Vec<u32> = result(device, operator, &[&q, &k]).into_iter().map(f32::to_bits).collect();
            assert_eq!(found, expected, "{width} elements, {:?}", level());
        }
    });
}

#[test]
fn strict_operators_have_the_same_bits_at_every_level() {
    let cases: Vec<_> = cases().into_iter().filter(|case| case.operator.precision() == Precision::Strict).collect();
    let first = OnceCell::new();
    at_every_level(|device| {
        let results: Vec<_> = cases.iter().map(|case| run(case, device, Placement::Odd).unwrap()).collect();
        for ((case, expected), found) in cases.iter().zip(first.get_or_init(|| results.clone())).zip(&results) {
            let difference = found.iter().zip(expected).find_map(|(found, expected)| found.first_difference(expected));
            assert_eq!(difference, None, "{}, {:?}", case.name(), level());
        }
    });
}

/// Without AVX-512 many are looked up.
#[test]
fn many_16_bit_elements_have_the_bits_of_few() {
    let few = [DType::F16, DType::BF16].map(|dtype| random(9, dtype, [3, 4099]));
    at_every_level(|device| {
        for few in &few {
            let many = HostTensor::from_f64(few.dtype(), &[3 * 90, 4099], &few.to_f64().repeat(90));
            let bits = |x: &HostTensor| {
                let case = Case::new(Unary { op: UnaryOp::Silu }, vec![Some(x.clone())], Bound::EXACT, |_| Vec::new());
                floats(&run(&case, device, Placement::Odd).unwrap()[0]).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            assert!(bits(&many) == bits(few).repeat(90), "{}, {:?}", few.dtype(), level());
        }
    });
}

/// Results of 16 MiB and more go past the caches, of which lines are shared by rows of odd length.
#[test]
fn large_tensors_have_the_bits_of_small_ones() {
    const COLUMNS: usize = 4099;
    const FEW: usize = 3;
    let _level = LEVEL.read().unwrap();
    let device = Device::new(CpuBackend::new(NonZeroUsize::new(2)).unwrap());
    for (dtype, rows) in [(DType::F32, 1026), (DType::BF16, 2052), (DType::F16, 2052)] {
        let few = random(7, dtype, [FEW, COLUMNS]);
        let many = HostTensor::from_f64(dtype, &[rows, COLUMNS], &few.to_f64().repeat(rows / FEW));
        let weight = HostTensor::from_f64(dtype, &[COLUMNS], &random(8, dtype, [1, COLUMNS]).to_f64());
        let check = |operator: Arc<dyn Operator>, inputs: usize| {
            let of = |x: &HostTensor| {
                let inputs: Vec<_> = [x, &weight, &weight][..inputs].iter().map(|&tensor| Some(tensor.clone())).collect();
                let mut case = Case::new(Unary { op: UnaryOp::Neg }, inputs, Bound::EXACT, |_| Vec::new());
                case.operator = operator.clone();
                floats(&run(&case, &device, Placement::Odd).unwrap()[0])
            };
            let (expected, found) = (of(&few), of(&many));
            for (row, found) in found.chunks(FEW * COLUMNS).enumerate() {
                let same = found.iter().zip(&expected).all(|(found, expected)| found.to_bits() == expected.to_bits());
                assert!(same, "{operator:?} of {dtype}, row {}", FEW * row);
            }
        };
        check(Arc::new(RmsNorm::default()), 2);
        check(Arc::new(LayerNorm { axis: -1, epsilon: 1e-5, statistics: false }), 3);
        check(Arc::new(Unary { op: UnaryOp::Silu }), 1);
        check(Arc::new(Unary { op: UnaryOp::Sqrt }), 1);
    }
}
