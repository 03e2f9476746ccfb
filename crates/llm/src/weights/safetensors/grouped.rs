//! Matrices that MLX has quantised: beside `X.weight`, u32 words of integers of a few bits, there are `X.scales` and `X.biases`, one of each for a group of
//! neighbours, whose elements are `scale · integer + bias`.

use ::safetensors::tensor::{Dtype, TensorInfo};
use elinvar::{DType, Error, Result};
use half::{bf16, f16};

use super::dtype;
use crate::{
    config::Groups,
    weights::{WeightType, words::write},
};

/// Integers that are read at a time, which begin at whole bytes.
const CHUNK: usize = 32;

/// Such a matrix: its parts, each with the number of its file.
pub(super) struct Grouped<'a> {
    pub(super) words: &'a (usize, TensorInfo),
    pub(super) scales: &'a (usize, TensorInfo),
    pub(super) biases: Option<&'a (usize, TensorInfo)>,
    pub(super) groups: Groups,
}

impl Grouped<'_> {
    /// Rows and columns, as far as the parts' shapes agree.
    pub(super) fn dims(&self) -> Result<[usize; 2], String> {
        let [words, scales] = [self.words, self.scales].map(|(_, info)| info);
        let Groups { size, bits } = self.groups;
        let biases = self.biases.map(|(_, biases)| biases).ok_or("has scales and no biases")?;
        let [rows, columns] = match *words.shape {
            [rows, length] => [rows, length.saturating_mul(32) / bits],
            _ => return Err(format!("has shape {:?}: quantised matrices of two axes are supported", words.shape)),
        };
        let expected = [rows, columns / size];
        if words.dtype != Dtype::U32 || scales.dtype != biases.dtype || dtype(scales.dtype).is_none() {
            let found = format!("{}, {} and {}", words.dtype, scales.dtype, biases.dtype);
            return Err(format!("with its scales and biases is of types {found}: U32 and two of F32, F16 or BF16 are supported"));
        }
        if !columns.is_multiple_of(size) || scales.shape != expected || biases.shape != expected {
            return Err(format!(
                "has shape {:?}, its scales {:?} and biases {:?}: in groups of {size} with {bits} bits each, as the configuration has it, {expected:?} expected",
                words.shape, scales.shape, biases.shape
            ));
        }
        Ok([rows, columns])
    }

    /// What it becomes.
    pub(super) fn kind(&self, decoded: Option<DType>) -> WeightType {
        WeightType::Plain(decoded.unwrap_or(DType::F32))
    }

    /// Writes a row of `columns` elements as `kind`. `words`, `scales` and `biases` are those of the row, `values` is for use.
    pub(super) fn convert(&self, [words, scales, biases]: [&[u8]; 3], kind: WeightType, values: &mut Vec<f32>, target: &mut [u8]) -> Result<()> {
        let Groups { size, bits } = self.groups;
        let stored = self.scales.1.dtype;
        values.clear();
        for (chunk, bytes) in words.chunks_exact(CHUNK / 8 * bits).enumerate() {
            let group = chunk * CHUNK / size;
            let [scale, bias] = [scales, biases].map(|numbers| number(stored, numbers, group));
            values.extend(integers(bytes, bits).map(|q| scale * f32::from(q) + bias));
        }
        match kind {
            WeightType::Plain(dtype) => write(values, dtype, target),
            WeightType::Block(format) => Err(Error::internal(format!("a matrix in groups as {format}"))),
        }
    }
}

/// The integers of a chunk, the lowest bits first.
fn integers(bytes: &[u8], bits: usize) -> [u8; CHUNK] {
    std::array::from_fn(|i| {
        let (byte, bit) = (i * bits / 8, i * bits % 8);
        let pair = [byte, byte + 1].map(|at| bytes.get(at).copied().unwrap_or(0));
        (u16::from_le_bytes(pair) >> bit) as u8 & (u8::MAX >> (8 - bits))
    })
}

/// A number of an array of floats.
fn number(stored: Dtype, numbers: &[u8], index: usize) -> f32 {
    fn at<const BYTES: usize>(numbers: &[u8], index: usize) -> [u8; BYTES] {
        numbers.as_chunks().0.get(index).copied().unwrap_or([0; BYTES])
    }
    match stored {
        Dtype::F16 => f16::from_le_bytes(at(numbers, index)).to_f32(),
        Dtype::BF16 => bf16::from_le_bytes(at(numbers, index)).to_f32(),
        _ => f32::from_le_bytes(at(numbers, index)),
    }
}
