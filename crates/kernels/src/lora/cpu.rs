//! The CPU kernel: the adapter's product first, so that the long one can add it before its only rounding. Fast, many rows are sums over both products at
//! once.

use elinvar_core::{Error, HostArguments, Result};

use super::{Params, operands::AT};
use crate::matmul::{
    cpu::{
        operand::{Matrix, Target, Values, ValuesMut},
        plan::Summation,
        product::{product, sum},
        rows::MAX_ROWS,
    },
    matrix, values, values_mut,
};

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let [m, n, k, r] = [params.m, params.n, params.k, params.r].map(|extent| extent as usize);
    let summation = if params.strict != 0 { Summation::Strict } else { Summation::Fast };
    let operand = |index: usize, dims| row_major(values(arguments, index, params.dtypes[index])?, dims);
    let (x, weight) = (operand(AT.x, [m, k])?, operand(AT.weight, [n, k])?);
    let (a, b) = (operand(AT.a, [r, k])?, operand(AT.b, [n, r])?);
    let bias = arguments.is_bound(AT.bias).then(|| values(arguments, AT.bias, params.dtypes[AT.bias])).transpose()?;
    // Two temporaries, and then the output.
    let projected: &mut [f32] = arguments.output(5)?;
    let delta: &mut [f32] = arguments.output(6)?;
    let y = values_mut(arguments, 7, params.dtypes[0])?;
    let is_summed = summation == Summation::Fast && m > MAX_ROWS && k > 0;
    let scale = if is_summed { params.scale } else { 1.0 };
    product(summation, x, a, &fitting(Target::new(ValuesMut::F32(projected), [m, r], r))?.scaled(scale));
    let projected = row_major(Values::F32(projected), [m, r])?;
    if is_summed {
        let target = Target::new(y, [m, n], n).and_then(|t| t.with_bias(bias));
        sum(&[[x, weight], [projected, b]], &fitting(target)?);
        return Ok(());
    }
    product(summation, projected, b, &fitting(Target::new(ValuesMut::F32(delta), [m, n], n))?.scaled(params.scale));
    let target = Target::new(y, [m, n], n).and_then(|t| t.with_bias(bias)).and_then(|t| t.with_addend(Some(delta)));
    product(summation, x, weight, &fitting(target)?);
    Ok(())
}

fn row_major(values: Values<'_>, dims: [usize; 2]) -> Result<Matrix<'_>> {
    matrix(values, 0, dims, [dims[1] as isize, 1])
}

fn fitting(target: Option<Target<'_>>) -> Result<Target<'_>> {
    target.ok_or_else(|| Error::invalid_launch("an output or temporary is too small"))
}
