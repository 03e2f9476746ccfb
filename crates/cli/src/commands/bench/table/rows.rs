//! The rows of the fixed table, each with the same in float64.

use elinvar::{
    DType, Operator, Precision,
    kernels::{
        binary::{Binary, BinaryOp},
        conformance::{Bound, Case, HostTensor},
        layer_norm::LayerNorm,
        lora::LoraLinear,
        matmul::MatMul,
        rms_norm::RmsNorm,
        softmax::Softmax,
        unary::{Unary, UnaryOp},
    },
};

/// One piece of work and the time that this project aims at on an M-series GPU, in microseconds.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) case: Case,
    pub(super) target: f64,
}

const EPSILON: f32 = 1e-5;

fn random(dims: &[usize], seed: u64) -> HostTensor {
    HostTensor::random(DType::F32, dims, -1.0, 1.0, seed)
}

fn case(
    operator: impl Operator + 'static,
    inputs: Vec<HostTensor>,
    bound: Bound,
    exact: impl Fn(&[Vec<f64>]) -> Vec<f64> + Send + Sync + 'static,
) -> Case {
    let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
    Case::new(operator, inputs, bound, move |inputs| vec![exact(inputs)])
}

pub(super) fn rows(precision: Precision) -> Vec<Row> {
    const N: usize = 10_000;
    const SIDE: usize = 256;
    let pair = || vec![random(&[N], 1), random(&[N], 2)];
    let each = |x: &[f64], y: &[f64], of: fn(f64, f64) -> f64| x.iter().zip(y).map(|(x, y)| of(*x, *y)).collect::<Vec<_>>();
    let add = case(Binary { op: BinaryOp::Add }, pair(), Bound::EXACT, move |t| each(&t[0], &t[1], |x, y| x + y));
    let mul = case(Binary { op: BinaryOp::Mul }, pair(), Bound::EXACT, move |t| each(&t[0], &t[1], |x, y| x * y));
    let relu = case(Unary { op: UnaryOp::Relu }, vec![random(&[N], 3)], Bound::EXACT, |t| t[0].iter().map(|x| x.max(0.0)).collect());
    let product = case(
        MatMul { precision, ..MatMul::default() },
        vec![random(&[SIDE, SIDE], 4), random(&[SIDE, SIDE], 5)],
        // Strict sums round 256 times at most; fast ones may round the factors.
        Bound::normalised(if precision.is_fast() { 5e-3 } else { 1e-6 }),
        |t| linear(&t[0], &transposed(&t[1], SIDE), SIDE),
    );
    let mut rows = vec![
        Row { name: "add [10000]", case: add, target: 3.0 },
        Row { name: "mul [10000]", case: mul, target: 4.0 },
        Row { name: "relu [10000]", case: relu, target: 2.0 },
        Row { name: "matmul 256³", case: product, target: 200.0 },
    ];
    rows.extend([("LoRA linear, one row, 512, rank 8", 512, 5.79), ("LoRA linear, one row, 1024, rank 8", 1024, 5.24)].map(lora));
    rows.push(lora(("LoRA linear, one row, 2048, rank 8", 2048, 11.86)));
    rows.extend(norms());
    rows
}

/// `y = x Wᵀ + (x Aᵀ) Bᵀ`.
fn lora((name, d, target): (&'static str, usize, f64)) -> Row {
    const RANK: usize = 8;
    let inputs = vec![random(&[1, d], 6), random(&[d, d], 7), random(&[RANK, d], 8), random(&[d, RANK], 9)];
    let operator = LoraLinear { scale: 1.0, precision: Precision::Strict };
    let exact = move |t: &[Vec<f64>]| {
        let adapter = linear(&linear(&t[0], &t[2], d), &t[3], RANK);
        linear(&t[0], &t[1], d).iter().zip(adapter).map(|(y, a)| y + a).collect()
    };
    Row { name, case: case(operator, inputs, Bound::normalised(1e-6), exact), target }
}

fn norms() -> [Row; 3] {
    const SHAPE: [usize; 2] = [64, 1024];
    let rows = |t: &[f64], of: &dyn Fn(&[f64]) -> Vec<f64>| t.chunks(SHAPE[1]).flat_map(of).collect::<Vec<_>>();
    let mean = |x: &[f64], of: &dyn Fn(f64) -> f64| x.iter().map(|x| of(*x)).sum::<f64>() / x.len() as f64;
    let inputs = |weights: u64| [vec![random(&SHAPE, 10)], (0..weights).map(|seed| random(&SHAPE[1..], 11 + seed)).collect()].concat();
    let softmax = case(Softmax { axis: -1, log: false }, inputs(0), Bound::normalised(1e-6), move |t| {
        rows(&t[0], &|x| {
            let total = x.iter().map(|x| x.exp()).sum::<f64>();
            x.iter().map(|x| x.exp() / total).collect()
        })
    });
    let layer = case(LayerNorm { axis: -1, epsilon: EPSILON, statistics: false }, inputs(2), Bound::normalised(1e-6), move |t| {
        rows(&t[0], &|x| {
            let centre = mean(x, &|x| x);
            let scale = (mean(x, &|x| (x - centre).powi(2)) + f64::from(EPSILON)).sqrt();
            x.iter().zip(&t[1]).zip(&t[2]).map(|((x, w), b)| (x - centre) / scale * w + b).collect()
        })
    });
    let rms = case(RmsNorm { epsilon: EPSILON, ..RmsNorm::default() }, inputs(1), Bound::normalised(1e-6), move |t| {
        rows(&t[0], &|x| {
            let scale = (mean(x, &|x| x * x) + f64::from(EPSILON)).sqrt();
            x.iter().zip(&t[1]).map(|(x, w)| x / scale * w).collect()
        })
    });
    [
        Row { name: "softmax [64, 1024]", case: softmax, target: 5.04 },
        Row { name: "layer_norm [64, 1024]", case: layer, target: 2.41 },
        Row { name: "rms_norm [64, 1024]", case: rms, target: 4.96 },
    ]
}

/// `[m, k]` times a weight `[n, k]`.
fn linear(x: &[f64], weight: &[f64], k: usize) -> Vec<f64> {
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    x.chunks(k).flat_map(|x| weight.chunks(k).map(move |w| dot(x, w))).collect()
}

fn transposed(x: &[f64], side: usize) -> Vec<f64> {
    (0..side * side).map(|i| x[i % side * side + i / side]).collect()
}
