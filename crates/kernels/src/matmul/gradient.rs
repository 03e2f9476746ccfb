//! The gradient of a product is a product of its gradient and the other operand.

use elinvar_core::{DType, Result};

use super::{MatMul, MatVec, Precision};
use crate::{Definition, Operand, TensorInfo, gradient::Gradient};

const A: usize = 0;
const B: usize = 1;

pub(super) fn of_product(product: &MatMul, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
    Gradient::new(product, inputs, upstream)?.of(wanted, |gradient, index| {
        let (a, b, mut upstream) = (gradient.input(A)?, gradient.input(B)?, gradient.upstream(0)?);
        if index > B {
            return Ok(upstream);
        }
        // A row or a column has an axis of one again.
        let (row, column) = (a.info.shape().rank() == 1, b.info.shape().rank() == 1);
        let mut dims = upstream.info.shape().to_vec();
        if row {
            dims.insert(dims.len() - usize::from(!column), 1);
        }
        if column {
            dims.push(1);
        }
        upstream = gradient.reshape(upstream, &dims)?;
        let vector = |gradient: &mut Gradient, x: Operand, is_row: bool| {
            let n = x.info.elements();
            gradient.reshape(x, &if is_row { [1, n] } else { [n, 1] })
        };
        let product = MatMul { transpose_a: product.transpose_a && !row, transpose_b: product.transpose_b && !column, ..*product };
        let a = if row { vector(gradient, a, true)? } else { a };
        let b = if column { vector(gradient, b, false)? } else { b };
        let dims = gradient.input(index)?.info.shape().to_vec();
        let found = of_matrix(gradient, &product, [a, b, upstream], index)?;
        if dims.len() > 1 {
            return Ok(found);
        }
        // The batch is summed before the axis of one goes.
        let matrix = if index == A { a } else { b };
        let found = gradient.sum_to(found, matrix.info.shape(), DType::F32)?;
        gradient.reshape(found, &dims)
    })
}

/// The gradient of operand `index` of a product of matrices, with the batch of the output.
fn of_matrix(gradient: &mut Gradient, product: &MatMul, [mut a, b, mut upstream]: [Operand; 3], index: usize) -> Result<Operand> {
    let [ta, tb] = [product.transpose_a, product.transpose_b];
    let wanted = if index == A { a } else { b };
    let rank = upstream.info.shape().rank();
    if index == B && b.info.shape().rank() == 2 && a.info.shape().rank() == rank && !ta {
        // The rows of all matrices are those of one, so that their sum is a part of the product.
        let rows = |x: Operand| [x.info.shape()[..rank - 1].iter().product(), x.info.shape()[rank - 1]];
        (a, upstream) = (gradient.reshape(a, &rows(a))?, gradient.reshape(upstream, &rows(upstream))?);
    }
    let is_summed = upstream.info.shape()[..upstream.info.shape().rank() - 2] != wanted.info.shape()[..wanted.info.shape().rank() - 2];
    let output = Some(if is_summed { DType::F32 } else { wanted.info.dtype });
    let of = |transpose_a, transpose_b| MatMul { transpose_a, transpose_b, output, precision: product.precision.of_gradients(), ..*product };
    match (index == A, ta, tb) {
        (true, false, _) => gradient.apply(of(false, !tb), &[upstream, b]),
        (true, true, _) => gradient.apply(of(tb, true), &[b, upstream]),
        (false, _, false) => gradient.apply(of(!ta, false), &[a, upstream]),
        (false, _, true) => gradient.apply(of(true, ta), &[upstream, a]),
    }
}

pub(super) fn of_vector(product: &MatVec, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
    Gradient::new(product, inputs, upstream)?.of(wanted, |gradient, index| {
        let (matrix, vector, upstream) = (gradient.input(0)?, gradient.input(1)?, gradient.upstream(0)?);
        if index > 1 {
            return Ok(upstream);
        }
        let rows = |gradient: &mut Gradient, x: Operand| {
            let mut dims = x.info.shape().to_vec();
            dims.insert(dims.len() - 1, 1);
            gradient.reshape(x, &dims)
        };
        let linear = MatMul { transpose_b: true, precision: Precision::Strict, ..MatMul::default() };
        let operands = [rows(gradient, vector)?, matrix, rows(gradient, upstream)?];
        if index == 0 {
            return of_matrix(gradient, &linear, operands, B);
        }
        let found = of_matrix(gradient, &linear, operands, A)?;
        let mut dims = found.info.shape().to_vec();
        dims.remove(dims.len() - 2);
        gradient.reshape(found, &dims)
    })
}
