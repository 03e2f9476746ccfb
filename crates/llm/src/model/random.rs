//! Random weights for benchmarks, written to the device in pieces so that no second copy of a tensor exists.

use elinvar::{DType, Error, Executor, Result, SplitMix64, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::source::Source;

pub(super) struct Random<'a> {
    executor: &'a Executor,
    dtype: DType,
    seed: u64,
}

impl<'a> Random<'a> {
    pub(super) fn new(executor: &'a Executor, dtype: DType, seed: u64) -> Result<Self> {
        if !dtype.is_float() {
            return Err(Error::invalid_argument(format!("random weights of {dtype}: f32, f16 or bf16 expected")));
        }
        Ok(Self { executor, dtype, seed })
    }
}

/// Uniform in `-1..1`, from a counter.
fn uniform(counter: u64) -> f32 {
    (SplitMix64::nth(0, counter.wrapping_sub(1)) >> 40) as f32 * 2f32.powi(-23) - 1.0
}

impl Source for Random<'_> {
    /// Matrices are uniform with the variance `1 / columns`, so that activations keep their size; vectors are ones.
    fn tensor(&mut self, _name: &str, dims: &[usize]) -> Result<Tensor> {
        /// Elements written at once.
        const PIECE: usize = 4 << 20;
        let &[rows, columns] = dims else {
            let ones = vec![1.0f32; dims.iter().product()];
            return self.executor.tensor(dims, &ones)?.cast(self.dtype);
        };
        let tensor = self.executor.zeros(self.dtype, dims)?;
        let scale = (3.0 / columns as f32).sqrt();
        let step = (PIECE / columns).max(1);
        for start in (0..rows).step_by(step) {
            let count = step.min(rows - start);
            let first = self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add((start * columns) as u64);
            let value = |i: usize| uniform(first.wrapping_add(i as u64)) * scale;
            let piece = tensor.slice(0, start, count, 1)?;
            let range = (0..count * columns).into_par_iter();
            match self.dtype {
                DType::F16 => piece.write(&range.map(|i| f16::from_f32(value(i))).collect::<Vec<_>>())?,
                DType::BF16 => piece.write(&range.map(|i| bf16::from_f32(value(i))).collect::<Vec<_>>())?,
                _ => piece.write(&range.map(value).collect::<Vec<_>>())?,
            }
        }
        self.seed = self.seed.wrapping_add(1);
        Ok(tensor)
    }
}
