//! Matrices that MLX has quantised: beside `X.weight`, u32 words of integers of a few bits, there are `X.scales` and `X.biases`, one of each for a group of
//! neighbours, whose elements are `scale · integer + bias`.

use ::safetensors::tensor::{Dtype, TensorInfo};
use elinvar::{DType, Result, kernels::quantized::Format};
use half::{bf16, f16};

use super::dtype;
use crate::{
    config::Groups,
    weights::{WeightType, words::write},
};

/// Integers that are read at a time, which begin at whole bytes, and elements of a block.
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

    /// What it becomes. No format has blocks of 2, 3 or 6 bits: they take 4 and 8. Nor has one numbers of f32.
    pub(super) fn kind(&self, decoded: Option<DType>) -> WeightType {
        match (decoded, self.scales.1.dtype, self.groups.bits) {
            (Some(dtype), ..) => WeightType::Plain(dtype),
            (None, Dtype::F16, ..=4) => WeightType::Block(Format::Q4_1),
            (None, Dtype::F16, 5) => WeightType::Block(Format::Q5_1),
            (None, Dtype::F16, _) => WeightType::Block(Format::Affine8F16),
            (None, Dtype::BF16, ..=4) => WeightType::Block(Format::Affine4Bf16),
            (None, Dtype::BF16, _) => WeightType::Block(Format::Affine8Bf16),
            (None, _, _) => WeightType::Plain(DType::F32),
        }
    }

    /// Writes a row as `kind`. `words`, `scales` and `biases` are those of the row.
    pub(super) fn convert(&self, [words, scales, biases]: [&[u8]; 3], kind: WeightType, room: &mut Room, target: &mut [u8]) -> Result<()> {
        let Groups { size, bits } = self.groups;
        let stored = self.scales.1.dtype;
        let chunks = words.chunks_exact(CHUNK / 8 * bits).enumerate().map(|(chunk, bytes)| (chunk * CHUNK / size, integers(bytes, bits)));
        match kind {
            WeightType::Plain(dtype) => {
                room.values.clear();
                for (group, integers) in chunks {
                    let [scale, bias] = [scales, biases].map(|numbers| number(stored, numbers, group));
                    room.values.extend(integers.map(|q| scale * f32::from(q) + bias));
                }
                write(&room.values, dtype, target)
            }
            WeightType::Block(format) => {
                room.blocks.clear();
                for (group, integers) in chunks {
                    room.blocks.extend([scales, biases].map(|numbers| at::<2>(numbers, group)).as_flattened());
                    put_fields(&mut room.blocks, &integers, format.bits());
                }
                format.pack(&room.blocks, target)
            }
        }
    }
}

/// Room for a row.
#[derive(Default)]
pub(super) struct Room {
    values: Vec<f32>,
    blocks: Vec<u8>,
}

/// Fields of 4, 5 or 8 bits, as blocks have them behind their numbers.
fn put_fields(block: &mut Vec<u8>, integers: &[u8; CHUNK], bits: usize) {
    if bits == 8 {
        return block.extend(integers);
    }
    if bits == 5 {
        let high = integers.iter().rev().fold(0u32, |word, q| word << 1 | u32::from(q >> 4));
        block.extend(high.to_le_bytes());
    }
    let (first, second) = integers.split_at(CHUNK / 2);
    block.extend(first.iter().zip(second).map(|(low, high)| low & 15 | high << 4));
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
    match stored {
        Dtype::F16 => f16::from_le_bytes(at(numbers, index)).to_f32(),
        Dtype::BF16 => bf16::from_le_bytes(at(numbers, index)).to_f32(),
        _ => f32::from_le_bytes(at(numbers, index)),
    }
}

fn at<const BYTES: usize>(numbers: &[u8], index: usize) -> [u8; BYTES] {
    numbers.as_chunks().0.get(index).copied().unwrap_or([0; BYTES])
}
