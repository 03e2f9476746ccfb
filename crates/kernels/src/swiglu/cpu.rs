//! The CPU kernel: blocks of the output, in parallel, each cut at the ends of rows.

use elinvar_core::{DType, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{Params, operands::AT};
use crate::{elementwise::halves, float::Float, math, parallel::spread_parts, signature::no_kernel, simd};

/// Elements of a task: small enough that even a single token's vector is shared.
pub(super) const BLOCK: usize = 4 << 10;

pub(super) fn kernel(dtype: DType) -> Result<HostKernel> {
    Ok(match dtype {
        DType::F32 => |arguments| run::<f32>(arguments, gate),
        DType::F16 => |arguments| run::<f16>(arguments, gate_halves),
        DType::BF16 => |arguments| run::<bf16>(arguments, gate_halves),
        DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 | DType::U64 | DType::I64 | DType::F64 => {
            return Err(no_kernel(dtype));
        }
    })
}

fn gate_halves<T: Float>(a: &[T], b: &[T], y: &mut [T], alpha: f32) {
    halves::map([a, b], y, &|[a, b], y| gate(a, b, y, alpha));
}

fn run<T: Float>(arguments: &mut HostArguments<'_>, gate: fn(&[T], &[T], &mut [T], f32)) -> Result<()> {
    let params: Params = arguments.params()?;
    let (a, b, y) = (arguments.input::<T>(AT.a)?, arguments.input::<T>(AT.b)?, arguments.output::<T>(AT.y)?);
    let columns = params.columns as usize;
    spread_parts(y, BLOCK, &|index, mut y| {
        let mut at = index * BLOCK;
        while !y.is_empty() {
            let (row, column) = (at / columns, at % columns);
            let (part, rest) = y.split_at_mut(y.len().min(columns - column));
            let a = &a[row * params.a_stride as usize + column..][..part.len()];
            let b = &b[row * params.b_stride as usize + params.b_offset as usize + column..][..part.len()];
            gate(a, b, part, params.alpha);
            at += part.len();
            y = rest;
        }
    });
    Ok(())
}

simd! {
    fn gate(a: &[f32], b: &[f32], y: &mut [f32], alpha: f32) {
        y.iter_mut().zip(a).zip(b).for_each(|((y, a), b)| *y = math::gate(*a, alpha) * b);
    }
}
