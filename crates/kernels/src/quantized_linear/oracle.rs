//! The naive reference, in f64, over the weights that the format decodes to, and the cases.

use elinvar_core::DType;

use super::{QuantizedLinear, operands::AT};
use crate::{
    Precision,
    conformance::case::{Bound, Case, HostTensor, made},
    matmul::oracle::product,
    quantized::Format,
    rms_norm::oracle::rms_norm,
};

/// Random blocks of `n` rows of `k` elements, packed, whose numbers keep decoded elements below one.
pub(crate) fn random_rows(format: Format, n: usize, k: usize, seed: u64) -> HostTensor {
    rows(format, n, k, seed, false)
}

/// The same, or with every bit but those of numbers set, or none, in every other row.
fn rows(format: Format, n: usize, k: usize, seed: u64, extreme: bool) -> HostTensor {
    let [bytes, packed] = [format.row_bytes(k), format.packed_row_bytes(k)].map(Option::unwrap_or_default);
    let mut blocks = HostTensor::random(DType::U8, &[n * bytes], 0.0, 256.0, seed).bytes().to_vec();
    let (numbers, largest) = (format.numbers(), if format.weights() == 256 { 1.0 / 4096.0 } else { 1.0 / 256.0 });
    for (index, block) in blocks.chunks_exact_mut(format.bytes()).enumerate() {
        let row = index * format.weights() / k;
        if extreme && row.is_multiple_of(2) {
            block.fill(if row.is_multiple_of(4) { 0 } else { 255 });
        }
        if format == Format::Mxfp4 {
            block[0] = 110 + block[0] % 14;
        }
        for &at in numbers {
            let sign = if index % 3 == 0 { -1.0 } else { 1.0 };
            let number = format.number(sign * largest * (f32::from(block[at]) + 1.0) / 256.0);
            block[at..at + 2].copy_from_slice(&number);
        }
    }
    let mut rows = vec![0u8; n * packed];
    for (row, blocks) in rows.chunks_exact_mut(packed.max(1)).zip(blocks.chunks_exact(bytes.max(1))) {
        made(format.pack(blocks, row));
    }
    HostTensor::new(&[n, packed], &rows)
}

/// A case by its extents, types and parts.
#[derive(Clone, Copy)]
struct Layers<'a> {
    format: Format,
    m: usize,
    k: usize,
    n: &'a [usize],
    x: DType,
    norm: Option<DType>,
    bias: Option<DType>,
    gated: bool,
    residual: bool,
    /// Whether rows and results are bf16.
    narrow: bool,
    precision: Precision,
    /// Whether rows have chunks of zeros and of subnormal numbers, and others an infinity or NaN.
    unusual: bool,
    /// Whether every other row has one magnitude, and every other row of weights one field, the greatest or the least: sums are as large as can be.
    extreme: bool,
}

/// Elements that share a scale.
const CHUNK: usize = 32;

impl Layers<'_> {
    /// Gives every row something unusual: the first chunks of zeros and subnormal numbers, those after it an infinity of either sign and NaN in their last chunk.
    fn unusual(self, x: &HostTensor) -> HostTensor {
        let mut values = x.to_f64();
        for (r, row) in values.chunks_exact_mut(self.k).enumerate() {
            match r % 4 {
                0 => {
                    row[..CHUNK].fill(0.0);
                    row[CHUNK..2 * CHUNK].fill(1e-40);
                }
                not_finite => row[self.k - 7] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN][not_finite - 1],
            }
        }
        HostTensor::from_f64(x.dtype(), x.dims(), &values)
    }

    /// Makes every other row's elements one or minus one.
    fn extreme(self, x: &HostTensor) -> HostTensor {
        let mut values = x.to_f64();
        values.chunks_exact_mut(self.k).enumerate().filter(|(r, _)| r % 2 == 0).for_each(|(r, row)| row.fill(if r % 4 == 0 { 1.0 } else { -1.0 }));
        HostTensor::from_f64(x.dtype(), x.dims(), &values)
    }

    fn case(self) -> Case {
        let Self { format, m, k, gated, precision, .. } = self;
        let (n, layers) = (self.n.to_vec(), self.n.len());
        let uniform = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
        let mut inputs = vec![None; AT.residual + 1];
        let x = uniform(self.x, &[m, k], 1).map(|x| if self.extreme { self.extreme(&x) } else { x });
        inputs[AT.x] = x.map(|x| if self.unusual { self.unusual(&x) } else { x });
        inputs[AT.norm] = self.norm.and_then(|dtype| uniform(dtype, &[k], 2));
        for (index, &n) in n.iter().enumerate() {
            inputs[AT.w0 + index] = Some(rows(format, n, k, 3 + index as u64, self.extreme));
            // Not every layer has one.
            inputs[AT.b0 + index] = self.bias.filter(|_| index != layers % 2).and_then(|dtype| uniform(dtype, &[n], 6 + index as u64));
        }
        inputs[AT.residual] = if self.residual { uniform(DType::F32, &[m, n[0]], 9) } else { None };
        let epsilon = self.norm.is_some().then_some(1e-5f32);
        // Decoded elements are at most one, normalised ones about two: an element of x is 1 / 65534 of the largest off at most, and a sum has its own
        // roundings. A gate multiplies two sums.
        let size = if self.norm.is_some() { 2.0 } else { 1.0 } * if gated { 2.0 + (k as f64).sqrt() } else { 1.0 };
        let strict = size * k as f64 * (1.0 / 65_534.0 + 2f64.powi(-22));
        let bound = Bound::relative(3e-7).with_absolute(match precision {
            Precision::Strict | Precision::Invariant => strict,
            // Both operands may be rounded to bf16.
            Precision::Fast => strict + size * (k as f64).sqrt() * 2f64.powi(-7),
        });
        let output = self.narrow.then_some(DType::BF16);
        let case = Case::new(QuantizedLinear { format, epsilon, gated, precision, output }, inputs, bound, move |i| {
            let mut x = epsilon.map_or_else(|| i[AT.x].clone(), |epsilon| rms_norm(&i[AT.x], &i[AT.norm], k, epsilon.into()));
            // What is not finite makes its chunk's scale NaN.
            x.chunks_mut(CHUNK).filter(|chunk| chunk.iter().any(|x| !x.is_finite())).for_each(|chunk| chunk.fill(f64::NAN));
            let layer = |index: usize| {
                let packed: Vec<u8> = i[AT.w0 + index].iter().map(|byte| *byte as u8).collect();
                let mut decoded = vec![0.0; n[index] * k];
                for (row, values) in packed.chunks_exact((packed.len() / n[index].max(1)).max(1)).zip(decoded.chunks_exact_mut(k.max(1))) {
                    made(format.decode_packed(row, values));
                }
                let sums = product([m, n[index], k], |r, l| x[r * k + l], |c, l| f64::from(decoded[c * k + l]));
                let bias = |at: usize| i[AT.b0 + index].get(at % n[index]).unwrap_or(&0.0);
                sums.iter().enumerate().map(|(at, sum)| sum + bias(at) + i[AT.residual].get(at).unwrap_or(&0.0)).collect::<Vec<_>>()
            };
            if gated {
                return vec![layer(0).iter().zip(layer(1)).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()];
            }
            (0..n.len()).map(layer).collect()
        });
        if self.unusual { case.of_rounded_steps() } else { case }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &format in Format::ALL {
        let of = Layers {
            format,
            m: 1,
            k: 256,
            n: &[33],
            x: DType::F32,
            norm: None,
            bias: None,
            gated: false,
            residual: false,
            narrow: false,
            precision: Precision::Strict,
            unusual: false,
            extreme: false,
        };
        cases.push(Layers { k: 2560, ..of }.case());
        cases.push(Layers { m: 5, n: &[9], x: DType::BF16, bias: Some(DType::BF16), ..of }.case());
        cases.push(Layers { m: 3, k: 2304, n: &[17], x: DType::F16, ..of }.case());
        cases.push(Layers { m: 9, k: 512, n: &[2], ..of }.case());
        cases.push(Layers { k: 768, n: &[40, 10, 10], norm: Some(DType::BF16), ..of }.case());
        cases.push(Layers { k: 1024, n: &[33, 33], norm: Some(DType::F32), gated: true, bias: Some(DType::F32), ..of }.case());
        cases.push(Layers { m: 2, n: &[19], residual: true, ..of }.case());
        cases.push(Layers { m: 5, k: 512, unusual: true, ..of }.case());
    }
    let of = Layers {
        format: Format::Q4_0,
        m: 1,
        k: 288,
        n: &[5],
        x: DType::F32,
        norm: None,
        bias: None,
        gated: false,
        residual: false,
        narrow: false,
        precision: Precision::Strict,
        unusual: false,
        extreme: false,
    };
    // Rows of blocks that are no multiple of eight; longer than a threadgroup normalises, and than it keeps.
    cases.push(of.case());
    cases.push(Layers { n: &[5, 4, 3], bias: Some(DType::F16), ..of }.case());
    cases.push(Layers { k: 32, n: &[1], norm: Some(DType::F16), ..of }.case());
    cases.push(Layers { k: 8224, n: &[4], norm: Some(DType::F32), ..of }.case());
    cases.push(Layers { k: 28_672, n: &[4], residual: true, ..of }.case());
    cases.push(Layers { m: 3, k: 96, n: &[7, 7], norm: Some(DType::F32), gated: true, ..of }.case());
    // More tiles than simdgroups at once, so that one makes several, on any GPU; nothing to do at all.
    cases.push(Layers { k: 64, n: &[9000], norm: Some(DType::F32), ..of }.case());
    cases.push(Layers { k: 96, n: &[5000, 5000], gated: true, ..of }.case());
    for (format, k) in [(Format::Q8_0, 512), (Format::Q4_0, 256), (Format::Q4K, 256)] {
        cases.push(Layers { format, k, n: &[9000], ..of }.case());
    }
    // Rows of one round and a half.
    for format in [Format::Q8_0, Format::Q4_0, Format::Q4K] {
        cases.push(Layers { format, k: 6144, n: &[33], residual: true, ..of }.case());
    }
    cases.push(Layers { k: 2304, n: &[70], residual: true, ..of }.case());
    // Rows and columns for more than one block of a threadgroup, by each way to share scales and offsets.
    cases.push(Layers { m: 33, n: &[35, 35], norm: Some(DType::F32), gated: true, bias: Some(DType::F32), ..of }.case());
    cases.push(Layers { m: 18, k: 2304, n: &[65], residual: true, ..of }.case());
    for format in [Format::Q8_0, Format::Q4K, Format::Q2K, Format::Q6K] {
        cases.push(Layers { format, m: 70, k: 768, n: &[66, 3, 9], bias: Some(DType::BF16), ..of }.case());
    }
    // Several tiles of rows and columns, as a GPU with few multiprocessors has them.
    use Format::{Affine4Bf16, Mxfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K};
    let many = |m, k, n, format| Layers { format, m, k, n, ..of };
    for format in [Q4_0, Q4_1, Q5_0, Q5_1, Q2K, Q3K, Q4K, Q5K, Q6K, Mxfp4, Affine4Bf16] {
        cases.push(Layers { extreme: true, ..many(66, 256, &[193], format) }.case().for_one_unit());
    }
    cases.push(Layers { bias: Some(DType::BF16), ..many(129, 256, &[129, 65, 65], Q6K) }.case().for_one_unit());
    cases.push(Layers { norm: Some(DType::F32), gated: true, bias: Some(DType::F32), ..many(129, 256, &[257, 257], Q4_0) }.case().for_one_unit());
    cases.push(Layers { residual: true, unusual: true, ..many(66, 768, &[193], Q5K) }.case().for_one_unit());
    // Several rows that are normalised where their integers are made: of whole rounds, and of a round and a half with something unusual.
    cases.push(Layers { m: 13, k: 4096, n: &[9, 5], norm: Some(DType::BF16), ..of }.case());
    cases.push(Layers { m: 10, k: 2304, n: &[9], norm: Some(DType::F32), unusual: true, ..of }.case());
    // Gates of long rows.
    cases.push(Layers { k: 4096, n: &[33, 33], gated: true, ..of }.case());
    for m in [1, 9, 34] {
        cases.push(Layers { m, k: 768, n: &[40], unusual: true, ..of }.case());
    }
    let fast = Layers { precision: Precision::Fast, ..of };
    cases.push(Layers { m: 160, n: &[37], ..fast }.case());
    cases.push(Layers { m: 162, k: 256, n: &[40, 24], format: Format::Q4K, norm: Some(DType::F32), ..fast }.case());
    cases.push(Layers { m: 2, n: &[37], x: DType::BF16, bias: Some(DType::BF16), ..fast }.case());
    // Pairs of panels for tensor cores: eights of rows, columns that are no whole tiles, several tiles for a block.
    for (m, k) in [(9, 2304), (17, 1024), (33, 128), (40, 384), (64, 512)] {
        let of = Layers { m, k, ..fast };
        cases.push(Layers { n: &[70, 64, 3], norm: Some(DType::BF16), bias: Some(DType::F32), ..of }.case());
        cases.push(Layers { n: &[45, 45], gated: true, bias: Some(DType::BF16), norm: Some(DType::F32), ..of }.case());
        cases.push(Layers { n: &[200], residual: true, ..of }.case());
        cases.push(Layers { n: &[64, 64], gated: true, narrow: true, x: DType::BF16, ..of }.case());
    }
    for &format in Format::ALL {
        cases.push(Layers { format, m: 10, k: 768, n: &[70], ..fast }.case());
        cases.push(Layers { format, m: 40, k: 512, n: &[45, 45], gated: true, ..fast }.case());
    }
    cases.push(Layers { m: 12, k: 2048, n: &[9000], ..fast }.case());
    cases.push(Layers { m: 9, k: 128, n: &[33_000], ..fast }.case());
    cases.push(Layers { m: 3, k: 96, n: &[19, 6], x: DType::BF16, narrow: true, ..of }.case());
    cases.push(Layers { m: 0, ..of }.case());
    cases.push(Layers { n: &[0, 3], ..of }.case());
    cases.push(Layers { k: 0, n: &[3], format: Format::Q4K, ..of }.case());
    cases
}
