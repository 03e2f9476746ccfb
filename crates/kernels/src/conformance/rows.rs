//! Rows of linear layers, and tokens of sequences in attention, by themselves, in chunks and among others: in strict and invariant precision they have the same
//! bits.

use elinvar_core::{DType, Device, Error, Result};

use super::{Bound, Case, HostTensor, Placement, run};
use crate::{
    Operator, Precision,
    attention::paged::PagedAttention,
    lora::LoraLinear,
    matmul::{MatMul, MatMulAdd},
    projection::Projection,
    quantized::Format,
    quantized_linear::{QuantizedLinear, oracle::random_rows},
    swiglu::SwiGlu,
};

/// Rows of a chunk.
const CHUNKS: [usize; 6] = [1, 3, 8, 33, 64, 512];

/// Pieces of the rows that are tried of each size: the last, and those before it at equal distances.
const PIECES: usize = 6;

/// A case whose inputs of these numbers have a row for each of its result.
struct Rows {
    case: Case,
    by_row: &'static [usize],
}

impl Rows {
    fn new(operator: impl Operator + 'static, inputs: Vec<Option<HostTensor>>, by_row: &'static [usize]) -> Self {
        Self { case: Case::new(operator, inputs, Bound::EXACT, |_| Vec::new()), by_row }
    }

    /// The same of some of the rows.
    fn of(&self, first: usize, count: usize) -> Case {
        let part = |(index, input): (usize, &Option<HostTensor>)| {
            let input = input.as_ref()?;
            Some(if self.by_row.contains(&index) { input.rows(first, count) } else { input.clone() })
        };
        Case { inputs: self.case.inputs.iter().enumerate().map(part).collect(), ..self.case.clone() }
    }

    /// How many pieces have the bits that they have among all `rows`.
    fn check(&self, device: &Device, rows: usize) -> Result<usize> {
        let (whole, mut pieces) = (run(&self.case, device, Placement::Aligned)?, 0);
        for count in CHUNKS.into_iter().filter(|&count| count < rows) {
            let last = rows - count;
            for first in (0..=last).rev().step_by(last.div_ceil(PIECES - 1).max(1)) {
                let found = run(&self.of(first, count), device, Placement::ALL[first % 2])?;
                for (found, whole) in found.iter().zip(&whole) {
                    if let Some(at) = found.first_difference(&whole.rows(first, count)) {
                        let (name, device) = (self.case.name(), &device.properties().name);
                        return Err(Error::invalid_data(format!(
                            "{name}: element {at} of rows {first} to {} is {} by themselves and {} among {rows} on {device}",
                            first + count - 1,
                            found.to_f64()[at],
                            whole.rows(first, count).to_f64()[at],
                        )));
                    }
                }
                pieces += 1;
            }
        }
        Ok(pieces)
    }
}

/// Layers of `rows` rows of `k` elements.
fn cases(precision: Precision, [rows, n, k]: [usize; 3]) -> Vec<Rows> {
    let random = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
    let (narrow, mut cases) = ([n, n / 2 + 1, n / 3 + 1], Vec::new());
    for weight in [DType::BF16, DType::F16, DType::F32] {
        let matrix = |rows: usize, seed| random(weight, &[rows, k], seed);
        for x in [DType::F32, weight] {
            let linear = MatMul { transpose_b: true, precision, ..MatMul::default() };
            cases.push(Rows::new(linear, vec![random(x, &[rows, k], 1), matrix(n, 2), random(x, &[n], 3)], &[0]));
            let adapted = vec![random(x, &[rows, k], 1), matrix(n, 2), random(DType::F32, &[8, k], 4), random(DType::F32, &[n, 8], 5), None];
            cases.push(Rows::new(LoraLinear { scale: 0.5, precision }, adapted, &[0]));
        }
        let (x, norm, residual) = (random(DType::F32, &[rows, k], 1), random(DType::F32, &[k], 6), random(DType::F32, &[rows, n], 7));
        let sum = MatMulAdd { transpose_a: false, transpose_b: true, alpha: 1.0, precision, output: None };
        cases.push(Rows::new(sum, vec![x.clone(), matrix(n, 2), residual.clone()], &[0, 2]));
        let mut layers = |epsilon, gated, norm: &Option<HostTensor>, weights: [Option<HostTensor>; 3], bias, residual| {
            let [w0, w1, w2] = weights;
            let inputs = vec![x.clone(), norm.clone(), w0, w1, w2, None, bias, None, residual];
            cases.push(Rows::new(Projection { epsilon, gated, precision, output: None }, inputs, &[0, 8]));
        };
        let [first, second, third] = narrow;
        layers(Some(1e-5), false, &norm, [matrix(first, 2), matrix(second, 8), matrix(third, 9)], random(weight, &[second], 10), None);
        layers(Some(1e-5), true, &norm, [matrix(first, 2), matrix(first, 8), None], None, None);
        layers(None, false, &None, [matrix(first, 2), None, None], None, residual);
    }
    let whole = k.next_multiple_of(256);
    for format in [Format::Q4_0, Format::Q6K] {
        let mut inputs = vec![random(DType::F32, &[rows, whole], 1), Some(random_rows(format, n, whole, 2))];
        inputs.resize(9, None);
        cases.push(Rows::new(QuantizedLinear { precision, ..QuantizedLinear::new(format) }, inputs, &[0]));
    }
    cases.extend([DType::BF16, DType::F16].map(|cache| attended(precision, cache, rows)));
    cases
}

/// Gated layers, and the same layers without the gate.
fn gated(precision: Precision, weight: DType, [rows, n, k]: [usize; 3]) -> [Case; 2] {
    let random = |dtype, dims: &[usize], seed| Some(HostTensor::random(dtype, dims, -1.0, 1.0, seed));
    let mut inputs =
        vec![random(DType::F32, &[rows, k], 1), random(DType::F32, &[k], 6), random(weight, &[n, k], 2), random(weight, &[n, k], 8), None];
    inputs.resize(9, None);
    [true, false]
        .map(|gated| Case::new(Projection { epsilon: Some(1e-5), gated, precision, output: None }, inputs.clone(), Bound::EXACT, |_| Vec::new()))
}

/// Whether gated layers have the bits that SwiGLU makes of their results.
fn check_gate(device: &Device, precision: Precision, extents: [usize; 3]) -> Result<()> {
    for weight in [DType::BF16, DType::F16] {
        let [gated, layers] = gated(precision, weight, extents);
        let results: Vec<_> = run(&layers, device, Placement::Aligned)?.into_iter().map(Some).collect();
        let parts = run(&Case::new(SwiGlu { alpha: 1.0 }, results, Bound::EXACT, |_| Vec::new()), device, Placement::Aligned)?;
        for (found, expected) in run(&gated, device, Placement::Aligned)?.iter().zip(&parts) {
            if let Some(at) = found.first_difference(expected) {
                let (found, expected) = (found.to_f64()[at], expected.to_f64()[at]);
                return Err(Error::invalid_data(format!(
                    "{}: element {at} is {found}, by swiglu {expected} on {}",
                    gated.name(),
                    device.properties().name
                )));
            }
        }
    }
    Ok(())
}

/// A token of each of `rows` sequences, at positions of which some are in the same pages.
fn attended(precision: Precision, cache: DType, rows: usize) -> Rows {
    const PAGES: usize = 14;
    const ENTRIES: usize = 10;
    let random = |dtype, dims: &[usize], seed| HostTensor::random(dtype, dims, -1.0, 1.0, seed);
    let operator = PagedAttention { precision, ..PagedAttention::default() };
    let tokens = operator.page as usize;
    let table: Vec<i32> = (0..rows * ENTRIES).map(|i| (i * 5 % PAGES) as i32).collect();
    let positions: Vec<i32> = (0..rows).map(|row| (row * 37 % (ENTRIES * tokens)) as i32).collect();
    let [k, v] = [11, 12].map(|seed| random(cache, &[2, PAGES * tokens, 64], seed));
    let inputs =
        [random(DType::F32, &[rows, 8, 1, 64], 13), k, v, HostTensor::new(&[rows, ENTRIES], &table), HostTensor::new(&[rows, 1], &positions)];
    Rows::new(operator, inputs.into_iter().map(Some).collect(), &[0, 3, 4])
}

/// Compares pieces of the rows of linear layers and of attention, of this operator or of all, and of such extents (rows, columns, summed), with the same rows among all: how many
/// have the same bits. Gated layers are compared with SwiGLU of their results too.
///
/// # Errors
/// The first one that has not, or what [`run`] reports.
pub fn check_rows(device: &Device, precision: Precision, operator: Option<&str>, extents: [usize; 3]) -> Result<usize> {
    let of = |name| operator.is_none_or(|operator| operator == name);
    if of("projection") {
        for rows in [extents[0], 64, 8, 1] {
            check_gate(device, precision, [rows, extents[1], extents[2]])?;
        }
    }
    let all = cases(precision, extents);
    all.iter().filter(|rows| of(rows.case.operator.name())).map(|rows| rows.check(device, extents[0])).sum()
}
