//! The CPU twin: blocks of the output, in parallel, each cut at the ends of rows.

use elinvar_core::{DType, HostArguments, HostKernel, Result};
use rayon::prelude::*;

use super::Params;
use crate::{
    float::{Float, with_float},
    math, simd,
};

/// Elements of a task: small enough that even a single token's vector is shared.
const BLOCK: usize = 4 << 10;

pub(super) fn twin(dtype: DType) -> Result<HostKernel> {
    Ok(with_float!(dtype, "swiglu", T => run::<T>))
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (a, b, y) = (arguments.input::<T>(0)?, arguments.input::<T>(1)?, arguments.output::<T>(2)?);
    let columns = params.columns as usize;
    let block = |(index, y): (usize, &mut [T])| {
        let (mut at, mut y) = (index * BLOCK, y);
        while !y.is_empty() {
            let (row, column) = (at / columns, at % columns);
            let (part, rest) = y.split_at_mut(y.len().min(columns - column));
            let a = &a[row * params.a_stride as usize + column..][..part.len()];
            let b = &b[row * params.b_stride as usize + params.b_offset as usize + column..][..part.len()];
            if params.alpha == 1.0 {
                gate(a, b, part)
            } else {
                gate_scaled(a, b, part, params.alpha)
            }
            at += part.len();
            y = rest;
        }
    };
    if y.len() <= BLOCK {
        y.chunks_mut(BLOCK).enumerate().for_each(block)
    } else {
        y.par_chunks_mut(BLOCK).enumerate().for_each(block)
    }
    Ok(())
}

simd! {
    fn gate<T: Float>(a: &[T], b: &[T], y: &mut [T]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = T::from_f32(math::silu(a.to_f32()) * b.to_f32());
        }
    }
}

simd! {
    fn gate_scaled<T: Float>(a: &[T], b: &[T], y: &mut [T], alpha: f32) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            let a = a.to_f32();
            *y = T::from_f32(a * math::sigmoid(alpha * a) * b.to_f32());
        }
    }
}
