//! The CPU kernel: a row is folded to its greatest logit, then searched for it: two looks, both in vectors.

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};

use super::operands::AT;
use crate::{
    float::{Float, with_float},
    order, simd,
};

/// What is wrong where logits are no numbers.
const DAMAGED: &str = "the model's weights are damaged, or its activations overflow";

pub(super) fn kernel(logits: DType) -> Result<HostKernel> {
    Ok(with_float!(logits, T => run::<T>))
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let (state, logits) = (arguments.output::<i32>(AT.state)?, arguments.input::<T>(AT.logits)?);
    let [token, position, ..] = state else { return Err(Error::invalid_launch("the state has fewer than two elements")) };
    let found = argmax(logits)?;
    *token = i32::try_from(found).map_err(|_| Error::invalid_launch(format!("token {found} does not fit an i32")))?;
    *position += 1;
    Ok(())
}

/// The number of the greatest logit, the lowest of equals.
///
/// # Errors
/// A logit that is NaN or +∞, or none that is finite.
pub fn argmax<T: Float>(logits: &[T]) -> Result<usize> {
    let most = greatest(logits);
    if most == f32::NEG_INFINITY {
        return Err(Error::invalid_argument(format!("none of the {} logits is finite: no token can be chosen", logits.len())));
    }
    let first = |wanted: &dyn Fn(f32) -> bool| logits.iter().position(|x| wanted(x.to_f32())).unwrap_or(0);
    if most < f32::INFINITY {
        return Ok(first(&|x| x == most));
    }
    let token = first(&|x| x.is_nan() || x == f32::INFINITY);
    Err(Error::invalid_argument(format!("the logit of token {token} is {}: {}", logits[token].to_f32(), DAMAGED)))
}

simd! {
    /// The greatest; NaN if there is one.
    fn greatest<T: Float>(logits: &[T]) -> f32 {
        order::fold(logits, f32::NEG_INFINITY, |a, x: T| order::max(a, x.to_f32()), order::max)
    }
}
