//! The naive reference, in f64, and the cases.

use elinvar_core::DType;

use super::{Projection, operands::AT};
use crate::{
    Precision,
    conformance::case::{Bound, Case, HostTensor},
    matmul::oracle::{error, product},
    rms_norm::oracle::rms_norm,
};

/// A case by its extents, types and parts.
#[derive(Clone, Copy)]
struct Layers<'a> {
    m: usize,
    k: usize,
    n: &'a [usize],
    weight: DType,
    norm: Option<DType>,
    bias: Option<DType>,
    gated: bool,
    residual: bool,
    /// Whether rows and results are of the type of the weights.
    narrow: bool,
    precision: Precision,
}

impl Layers<'_> {
    /// What fast precision may lose of x, which is rounded to the type of 16-bit weights.
    fn rounding(&self) -> f64 {
        match (self.precision, self.weight) {
            (Precision::Fast, DType::BF16) => 2f64.powi(-9),
            (Precision::Fast, DType::F16) => 2f64.powi(-12),
            (Precision::Strict | Precision::Invariant | Precision::Fast, _) => 0.0,
        }
    }

    fn case(self) -> Case {
        let Self { m, k, gated, precision, .. } = self;
        let n = self.n.to_vec();
        let uniform = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
        let mut inputs = vec![None; AT.residual + 1];
        inputs[AT.x] = uniform(if self.narrow { self.weight } else { DType::F32 }, &[m, k], 1);
        inputs[AT.norm] = self.norm.and_then(|dtype| uniform(dtype, &[k], 2));
        let layers = n.len();
        for (index, &n) in n.iter().enumerate() {
            inputs[AT.w0 + index] = uniform(self.weight, &[n, k], 3 + index as u64);
            // Not every layer has one.
            inputs[AT.b0 + index] = self.bias.filter(|_| index != layers % 2).and_then(|dtype| uniform(dtype, &[n], 6 + index as u64));
        }
        inputs[AT.residual] = if self.residual { uniform(DType::F32, &[m, n[0]], 9) } else { None };
        let epsilon = self.norm.is_some().then_some(1e-5f32);
        // Normalised elements are at most about twice as large, and so are sums; a gate multiplies two of them.
        let size = (k as f64).sqrt() * if gated { 2.0 + (k as f64).sqrt() } else { 2.0 };
        let bound = Bound::relative(3e-6).with_absolute((error(precision, [DType::F32, self.weight], k) + self.rounding()) * size);
        let output = self.narrow.then_some(self.weight);
        Case::new(Projection { epsilon, gated, precision, output }, inputs, bound, move |i| {
            let x = epsilon.map_or_else(|| i[AT.x].clone(), |epsilon| rms_norm(&i[AT.x], &i[AT.norm], k, epsilon.into()));
            let layer = |index: usize| {
                let sums = product([m, n[index], k], |r, l| x[r * k + l], |c, l| i[AT.w0 + index][c * k + l]);
                let bias = |at: usize| i[AT.b0 + index].get(at % n[index]).unwrap_or(&0.0);
                sums.iter().enumerate().map(|(at, sum)| sum + bias(at) + i[AT.residual].get(at).unwrap_or(&0.0)).collect::<Vec<_>>()
            };
            if gated {
                return vec![layer(0).iter().zip(layer(1)).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()];
            }
            (0..n.len()).map(layer).collect()
        })
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let plain = Layers {
        m: 1,
        k: 96,
        n: &[40, 10, 10],
        weight: DType::BF16,
        norm: None,
        bias: None,
        gated: false,
        residual: false,
        narrow: false,
        precision: Precision::Strict,
    };
    let normed = |layers: Layers<'static>, dtype: DType| Layers { norm: Some(dtype), ..layers }.case();
    for &weight in DType::FLOATS {
        let of = Layers { weight, ..plain };
        // Rows that are whole, ragged, longer than a simdgroup's and longer than a threadgroup keeps.
        for k in [96, 7, 300, 2056, 8192] {
            cases.push(normed(Layers { k, ..of }, weight));
        }
        for m in [1, 2, 3, 8] {
            cases.push(normed(Layers { m, k: 264, ..of }, DType::F32));
            cases.push(normed(Layers { m, k: 513, n: &[33, 33], gated: true, ..of }, weight));
            cases.push(Layers { m, k: 520, n: &[19], residual: true, ..of }.case());
            cases.push(Layers { m, k: 40, n: &[19, 6], bias: Some(weight), ..of }.case());
            cases.push(Layers { m, k: 40, n: &[5, 4, 3], bias: Some(DType::F32), ..of }.case());
        }
        for m in [12, 20] {
            cases.push(normed(Layers { m, k: 264, n: &[33, 33], gated: true, bias: Some(weight), ..of }, DType::F32));
            cases.push(Layers { m, k: 520, n: &[19], residual: true, ..of }.case());
        }
        cases.push(Layers { m: 2, k: 31, n: &[7, 7], gated: true, bias: Some(DType::F32), ..of }.case());
        cases.push(Layers { k: 65, n: &[5], residual: true, bias: Some(weight), ..of }.case());
    }
    // More tiles than simdgroups at once, so that one makes several; nothing to do at all.
    cases.push(normed(Layers { k: 64, n: &[1500], ..plain }, DType::BF16));
    cases.push(normed(Layers { k: 64, n: &[700, 700], gated: true, ..plain }, DType::BF16));
    // The same with lines of whole turns of what is on its way, on a large GPU too.
    cases.push(Layers { k: 2048, n: &[2200], residual: true, ..plain }.case());
    cases.push(normed(Layers { k: 3072, n: &[1200, 1001], ..plain }, DType::BF16));
    cases.push(normed(Layers { k: 1024, n: &[2200, 2200], gated: true, ..plain }, DType::BF16));
    let fast = Layers { precision: Precision::Fast, ..plain };
    cases.push(normed(Layers { k: 264, ..fast }, DType::BF16));
    cases.push(Layers { m: 3, k: 520, n: &[19], residual: true, weight: DType::F16, ..fast }.case());
    // Whole panels of rows for tensor cores: every number of eights of rows, pieces that are whole or not, columns that are no whole tiles, several tiles for a block.
    let invariant = Layers { precision: Precision::Invariant, ..plain };
    let few = [(1, 64), (2, 1024), (7, 384), (8, 640), (12, 192), (23, 128), (32, 320), (33, 64), (47, 256), (64, 448), (65, 64), (520, 64)]
        .map(|extents| (fast, extents));
    let all = few.into_iter().chain([(1, 64), (3, 320), (64, 256), (65, 64), (200, 192)].map(|extents| (invariant, extents)));
    for (number, (of, (m, k))) in all.enumerate() {
        let weight = [DType::BF16, DType::F16][number % 2];
        let of = Layers { m, k, weight, ..of };
        cases.push(normed(Layers { n: &[70, 64, 3], bias: Some(DType::F32), ..of }, weight));
        cases.push(normed(Layers { n: &[45, 45], gated: true, bias: Some(weight), ..of }, DType::F32));
        cases.push(Layers { n: &[200], residual: true, ..of }.case());
        cases.push(Layers { n: &[45, 45], gated: true, bias: Some(weight), narrow: true, ..of }.case());
        cases.push(Layers { n: &[64, 64], gated: true, narrow: true, ..of }.case());
    }
    cases.push(Layers { m: 3, k: 40, n: &[19, 6], narrow: true, ..plain }.case());
    cases.push(Layers { m: 8, k: 2048, n: &[9000], ..fast }.case());
    cases.push(Layers { m: 3, k: 64, n: &[33_000], ..fast }.case());
    cases.push(Layers { m: 150, k: 64, n: &[9_000], ..invariant }.case());
    cases.push(Layers { m: 8, k: 136, n: &[90], ..fast }.case());
    cases.push(Layers { m: 0, ..plain }.case());
    cases.push(Layers { n: &[0, 3], ..plain }.case());
    cases.push(Layers { k: 0, n: &[3], ..plain }.case());
    cases
}
