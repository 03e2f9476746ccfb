//! The CPU kernels: one vectorised loop for each comparison and type; 16-bit floats are widened block by block.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{CompareOp, operands::AT};
use crate::{
    binary::BinaryParams,
    elementwise::{
        blocks::{Strided, map2},
        dispatch::{Truth, for_integers},
        halves,
    },
    float::Float,
    functions::{Relation, RelationVisitor},
    signature::no_kernel,
    simd,
};

/// Makes the kernel for a data type.
struct Kernels(DType);

impl RelationVisitor for Kernels {
    type Output = Option<HostKernel>;

    fn visit<R: Relation>(self) -> Self::Output {
        match self.0 {
            DType::F32 => Some(run::<R, f32>),
            DType::F16 => Some(run_halves::<R, f16>),
            DType::BF16 => Some(run_halves::<R, bf16>),
            integer => for_integers!(integer, T => run::<R, T> as HostKernel),
        }
    }
}

pub(super) fn kernel(op: CompareOp, dtype: DType) -> Result<HostKernel> {
    op.visit(Kernels(dtype)).ok_or_else(|| no_kernel(dtype))
}

fn run<R: Relation, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    compare(arguments, block::<R, T>)
}

fn run_halves<R: Relation, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    compare::<T>(arguments, |a, b, y| halves::map_to([a, b], y, &|[a, b], y| block::<R, f32>(a, b, y)))
}

fn compare<T: Element>(arguments: &mut HostArguments<'_>, block: fn(&[T], &[T], &mut [Truth])) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(AT.a)?)?;
    let b = Strided::new(&space, &b, arguments.input::<T>(AT.b)?)?;
    map2(a, b, arguments.output::<Truth>(AT.y)?, block);
    Ok(())
}

simd! {
    fn block<R: Relation, T: Element>(a: &[T], b: &[T], y: &mut [Truth]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = Truth::new(R::holds(a, b));
        }
    }
}
