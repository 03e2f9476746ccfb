//! The gradient of a fast layer of 16-bit rows: all products take operands of that type, so that they are those of matrix units.
//!
//! With the gradient `g` of `y`, and `A`, `B` rounded to the type of `x`: `t = round(x Aᵀ)`, `u = round(s · g B)`, `dA = uᵀ x` and `dB = s · gᵀ t`, both rounded
//! to the type of `A` and `B` alone, and `dx = round(g W) + round(u A)`.

use elinvar_core::Result;

use super::{LoraLinear, operands::AT};
use crate::{Definition, Operand, TensorInfo, binary::BinaryOp, gradient::Gradient, matmul::MatMul};

/// Of `x`, `a` and `b`, as they are wanted.
pub(super) fn of_adapter(layer: &LoraLinear, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
    let mut scaled = None;
    Gradient::new(layer, inputs, upstream)?.of(wanted, |gradient, index| {
        let (given, upstream) = (gradient.input(AT.x)?, gradient.upstream(0)?);
        let (x, dy) = (rows(gradient, given)?, rows(gradient, upstream)?);
        let plain = MatMul { precision: layer.precision, ..MatMul::default() };
        let narrow = |gradient: &mut Gradient, index: usize| {
            let matrix = gradient.input(index)?;
            gradient.cast(matrix, x.info.dtype)
        };
        if index == AT.b {
            let (a, output) = (narrow(gradient, AT.a)?, Some(gradient.input(AT.b)?.info.dtype));
            let projected = gradient.apply(MatMul { transpose_b: true, ..plain }, &[x, a])?;
            return gradient.apply(MatMul { transpose_a: true, alpha: layer.scale, output, ..plain }, &[dy, projected]);
        }
        let u = match scaled {
            Some(u) => u,
            None => {
                let b = narrow(gradient, AT.b)?;
                *scaled.insert(gradient.apply(MatMul { alpha: layer.scale, ..plain }, &[dy, b])?)
            }
        };
        if index == AT.a {
            let output = Some(gradient.input(AT.a)?.info.dtype);
            return gradient.apply(MatMul { transpose_a: true, output, ..plain }, &[u, x]);
        }
        let (weight, a, output) = (gradient.input(AT.weight)?, narrow(gradient, AT.a)?, Some(x.info.dtype));
        let long = gradient.apply(MatMul { output, ..plain }, &[dy, weight])?;
        let low = gradient.apply(MatMul { output, ..plain }, &[u, a])?;
        let dx = gradient.binary(BinaryOp::Add, long, low)?;
        gradient.reshape(dx, given.info.shape())
    })
}

/// All rows as those of a matrix.
fn rows(gradient: &mut Gradient, x: Operand) -> Result<Operand> {
    let width = x.info.shape().last().copied().unwrap_or(1);
    let count = x.info.shape().iter().rev().skip(1).product();
    gradient.reshape(x, &[count, width])
}
