//! What each element had a part in gets its part of the gradient.

use elinvar_core::Result;

use super::{Reduce, geometry::reduced_axes, reduction::Reduction};
use crate::{Definition, TensorInfo, binary::BinaryOp, compare::CompareOp, gradient::Gradient, operator::Operand, unary::UnaryOp};

/// The largest and the smallest share the gradient among equals, as PyTorch's do.
pub(super) fn gradient(reduce: &Reduce, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
    Gradient::new(reduce, inputs, upstream)?.of(wanted, |gradient, _| {
        let (x, y, upstream) = (gradient.input(0)?, gradient.output(0)?, gradient.upstream(0)?);
        let shape = *x.info.shape();
        let reduced = reduced_axes(&x.info, &reduce.axes)?;
        let axes: Vec<_> = (0..reduced.len()).filter(|&axis| reduced[axis]).collect();
        let kept: Vec<_> = shape.iter().zip(&reduced).map(|(&extent, &reduced)| if reduced { 1 } else { extent }).collect();
        let upstream = gradient.reshape(upstream, &kept)?;
        let y = gradient.reshape(y, &kept)?;
        let (narrow, x, y, upstream) = (upstream, gradient.widened(x)?, gradient.widened(y)?, gradient.widened(upstream)?);
        match reduce.reduction {
            Reduction::Sum => gradient.broadcast(narrow, &shape),
            Reduction::Mean => {
                let count: usize = axes.iter().map(|&axis| shape[axis]).product();
                let part = gradient.with_scalar(BinaryOp::Div, upstream, count as f64)?;
                gradient.broadcast(part, &shape)
            }
            Reduction::Max | Reduction::Min => {
                let (zero, is_it) = (gradient.number(upstream.info.dtype, 0.0)?, gradient.compare(CompareOp::Eq, x, y)?);
                let counted = gradient.widened(is_it)?;
                let count = gradient.reduce(Reduction::Sum, counted, &axes)?;
                let part = gradient.binary(BinaryOp::Div, upstream, count)?;
                gradient.choose(is_it, part, zero)
            }
            Reduction::Prod => product(gradient, x, &axes, upstream),
            Reduction::SumSquare => {
                let twice = gradient.with_scalar(BinaryOp::Mul, upstream, 2.0)?;
                gradient.mul(twice, x)
            }
            Reduction::L2 => {
                let zero = gradient.number(upstream.info.dtype, 0.0)?;
                let part = gradient.binary(BinaryOp::Div, upstream, y)?;
                let (is_zero, part) = (gradient.compare(CompareOp::Eq, y, zero)?, gradient.mul(part, x)?);
                gradient.choose(is_zero, zero, part)
            }
            Reduction::LogSumExp => {
                let difference = gradient.binary(BinaryOp::Sub, x, y)?;
                let weight = gradient.unary(UnaryOp::Exp, difference)?;
                gradient.mul(upstream, weight)
            }
        }
    })
}

/// The product of the others: of one zero that of all that are none, beside it and beside two nothing.
fn product(gradient: &mut Gradient, x: Operand, axes: &[usize], upstream: Operand) -> Result<Operand> {
    let (zero, one) = (gradient.number(x.info.dtype, 0.0)?, gradient.number(x.info.dtype, 1.0)?);
    let is_zero = gradient.compare(CompareOp::Eq, x, zero)?;
    let rest = gradient.choose(is_zero, one, x)?;
    let product = gradient.reduce(Reduction::Prod, rest, axes)?;
    let counted = gradient.widened(is_zero)?;
    let zeros = gradient.reduce(Reduction::Sum, counted, axes)?;
    let (none, single) = (gradient.compare(CompareOp::Eq, zeros, zero)?, gradient.compare(CompareOp::Eq, zeros, one)?);
    let upstream = gradient.mul(upstream, product)?;
    let part = gradient.binary(BinaryOp::Div, upstream, rest)?;
    let others = gradient.choose(none, part, zero)?;
    let of_zero = gradient.choose(single, upstream, zero)?;
    gradient.choose(is_zero, of_zero, others)
}
