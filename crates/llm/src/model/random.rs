//! Random weights for benchmarks, written to the device in pieces so that no second copy of a tensor exists.

use elinvar::{DType, Error, Executor, Result, SplitMix64, Tensor, kernels::quantized::Format};
use half::{bf16, f16};
use rayon::prelude::*;

use super::{matrix::Matrix, source::Source};
use crate::weights::WeightType;

pub(super) struct Random<'a> {
    executor: &'a Executor,
    kind: WeightType,
    seed: u64,
}

impl<'a> Random<'a> {
    pub(super) fn new(executor: &'a Executor, kind: WeightType, seed: u64) -> Result<Self> {
        match kind {
            WeightType::Plain(dtype) if !dtype.is_float() => {
                Err(Error::invalid_argument(format!("random weights of {dtype}: f32, f16, bf16 or a format of blocks expected")))
            }
            WeightType::Plain(_) | WeightType::Block(_) => Ok(Self { executor, kind, seed }),
        }
    }

    /// The tensor whose rows, of `width` elements each, `fill` writes by their number.
    fn rows<T: elinvar::Element + Default>(&self, [rows, width]: [usize; 2], fill: impl Fn(u64, &mut [T]) -> Result<()> + Sync) -> Result<Tensor> {
        /// Bytes written at once.
        const PIECE: usize = 16 << 20;
        let tensor = self.executor.zeros(T::DTYPE, &[rows, width])?;
        let step = (PIECE / (width * size_of::<T>()).max(1)).max(1);
        for start in (0..rows).step_by(step) {
            let count = step.min(rows - start);
            let mut values = vec![T::default(); count * width];
            values.par_chunks_exact_mut(width.max(1)).enumerate().try_for_each(|(row, values)| fill((start + row) as u64, values))?;
            tensor.slice(0, start, count, 1)?.write(&values)?;
        }
        Ok(tensor)
    }
}

/// Uniform in `-1..1`, from a counter.
fn uniform(counter: u64) -> f32 {
    (SplitMix64::nth(0, counter.wrapping_sub(1)) >> 40) as f32 * 2f32.powi(-23) - 1.0
}

impl Source for Random<'_> {
    /// Ones.
    fn tensor(&mut self, _name: &str, dims: &[usize]) -> Result<Tensor> {
        let ones = vec![1.0f32; dims.iter().product()];
        self.executor.tensor(dims, &ones)?.cast(self.kind.of_vectors())
    }

    /// Uniform with the variance `1 / columns`, so that activations keep their size.
    fn matrix(&mut self, _name: &str, [rows, columns]: [usize; 2]) -> Result<Matrix> {
        let scale = (3.0 / columns as f32).sqrt();
        let first = self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
        self.seed = self.seed.wrapping_add(1);
        let (extents, kind) = ([rows, columns], self.kind);
        /// A row of numbers in a type, each by its place in the row.
        fn each<T>(row: &mut [T], number: impl Fn(usize) -> T) -> Result<()> {
            row.iter_mut().enumerate().for_each(|(i, element)| *element = number(i));
            Ok(())
        }
        let value = |row: u64, i: usize| uniform(first.wrapping_add(row * columns as u64 + i as u64)) * scale;
        Ok(match kind {
            WeightType::Plain(DType::F16) => Matrix::Plain(self.rows(extents, |row, v| each(v, |i| f16::from_f32(value(row, i))))?),
            WeightType::Plain(DType::BF16) => Matrix::Plain(self.rows(extents, |row, v| each(v, |i| bf16::from_f32(value(row, i))))?),
            WeightType::Plain(_) => Matrix::Plain(self.rows(extents, |row, v| each(v, |i| value(row, i)))?),
            WeightType::Block(format) => {
                let (width, blocks) = (kind.row_bytes(columns)?, Blocks::new(format, columns)?);
                let rows = self.rows([rows, width], |row, packed: &mut [u8]| blocks.fill(first.wrapping_add(row), packed))?;
                Matrix::Packed { rows, format, columns, wide: None }
            }
        })
    }

    fn executor(&self) -> &Executor {
        self.executor
    }
}

/// Rows of blocks of random fields.
struct Blocks {
    format: Format,
    bytes: usize,
    /// The two numbers of each block, for the mean 0 and the variance `1 / columns`.
    numbers: [f32; 2],
}

impl Blocks {
    fn new(format: Format, columns: usize) -> Result<Self> {
        let bytes = format.row_bytes(columns).unwrap_or(0);
        let mut blocks = Self { format, bytes, numbers: [0.0; 2] };
        // What the fields give with each number alone.
        let mut values = vec![0.0; 64 * format.weights()];
        let mut statistics = |numbers: [f32; 2]| -> Result<[f64; 2]> {
            let sample = Self { bytes: 64 * format.bytes(), numbers, ..blocks };
            format.decode(&sample.row(1), &mut values)?;
            let mean = |of: &dyn Fn(f64) -> f64| values.iter().map(|&v| of(v.into())).sum::<f64>() / values.len() as f64;
            Ok([mean(&|v| v), mean(&|v| v * v)])
        };
        let ([first, _], [second, _]) = (statistics([1.0, 0.0])?, statistics([0.0, 1.0])?);
        let ratio = if second == 0.0 { 0.0 } else { -first / second };
        let [_, variance] = statistics([1.0, ratio as f32])?;
        let scale = (columns as f64 * variance).sqrt().recip();
        blocks.numbers = [scale, scale * ratio].map(|number| number as f32);
        Ok(blocks)
    }

    fn row(&self, seed: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..self.bytes.div_ceil(8) as u64).flat_map(|i| SplitMix64::nth(seed, i).to_le_bytes()).collect();
        bytes.truncate(self.bytes);
        for block in bytes.chunks_exact_mut(self.format.bytes()) {
            for (&at, number) in self.format.numbers().iter().zip(self.numbers) {
                block[at..at + 2].copy_from_slice(&self.format.number(number));
            }
            if self.format == Format::Mxfp4 {
                // A power of two.
                block[0] = 120;
            }
        }
        bytes
    }

    fn fill(&self, seed: u64, packed: &mut [u8]) -> Result<()> {
        self.format.pack(&self.row(seed), packed)
    }
}
