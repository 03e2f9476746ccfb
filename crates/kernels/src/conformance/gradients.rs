//! Gradients against differences of the oracle, both in f64.

use elinvar_core::{Error, Result, SplitMix64};

use super::{case::Case, evaluate::evaluate};
use crate::TensorInfo;

/// Half the distance of the differences.
const STEP: f64 = 1e-6;
/// What a gradient may be off, beside [`RELATIVE`].
const ABSOLUTE: f64 = 1e-5;
const RELATIVE: f64 = 1e-3;
/// Elements of an input that are tried.
const MOST: usize = 30;

/// Compares the gradient of a case's operator with differences of its oracle: gives how many elements were compared; none where a number is not finite
/// or all are tiny.
/// At a kink the gradient is between the slopes on both sides.
///
/// # Errors
/// They differ, or the operator has no gradient, which is an unsupported operation.
pub fn check_gradient(case: &Case) -> Result<Option<usize>> {
    let fail = |why: String| Error::invalid_data(format!("{}: {why}", case.name()));
    // The oracle knows elements alone, not where they lie.
    let infos: Vec<_> = case.infos()?.iter().map(|info| info.map(|info| TensorInfo::of(info.dtype, *info.shape()))).collect();
    let mut inputs: Vec<_> = case.inputs.iter().map(|input| input.as_ref().map_or_else(Vec::new, |input| input.to_f64())).collect();
    let mut wanted: Vec<_> = infos.iter().map(|info| info.is_some_and(|info| info.dtype.is_float())).collect();
    if !wanted.contains(&true) {
        return Ok(None);
    }
    let types = case.operator.infer(&infos)?;
    let upstream: Vec<_> = types.iter().map(|info| info.dtype.is_float().then_some(*info)).collect();
    let definition = case.operator.gradient(&infos, &upstream, &wanted).or_else(|error| {
        // A table of angles has none.
        wanted.iter_mut().skip(1).for_each(|wanted| *wanted = false);
        if error.is_unsupported() && wanted.contains(&true) { case.operator.gradient(&infos, &upstream, &wanted) } else { Err(error) }
    })?;
    let mut outputs = (case.oracle)(&inputs);
    let is_finite = |tensors: &[Vec<f64>]| tensors.iter().flatten().all(|x| x.is_finite());
    if !is_finite(&inputs) || !is_finite(&outputs) {
        // Logarithms and roots are tried where they are numbers.
        for (input, _) in inputs.iter_mut().zip(&infos).filter(|(_, info)| info.is_some_and(|info| info.dtype.is_float())) {
            let changed = input.iter_mut().enumerate().filter(|(_, x)| !(0.01..1e6).contains(*x));
            changed.for_each(|(at, x)| *x = 0.7 + 0.01 * at as f64);
        }
        outputs = (case.oracle)(&inputs);
    }
    // Differences know nothing of numbers that are smaller than their step.
    if !is_finite(&outputs) || !case.note.is_empty() {
        return Ok(None);
    }
    let mut random = SplitMix64::new(1);
    let mut weights: Vec<Vec<f64>> = Vec::new();
    for (output, upstream) in outputs.iter().zip(&upstream) {
        let mut weight = || (random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        weights.push(output.iter().map(|_| if upstream.is_some() { weight() } else { 0.0 }).collect());
    }
    let loss = |inputs: &[Vec<f64>]| -> Vec<f64> { (case.oracle)(inputs).concat() };
    let difference =
        |one: &[f64], other: &[f64]| one.iter().zip(other).zip(weights.iter().flatten()).map(|((a, b), w)| (a - b) * w).sum::<f64>() / STEP;
    let given: Vec<_> = inputs.iter().chain(&outputs).chain(&weights).cloned().collect();
    let gradients = evaluate(&definition, &given).map_err(|e| e.context(case.name()))?;
    let mut compared = 0;
    let (here, mut moved) = (loss(&inputs), inputs.clone());
    for (index, gradient) in (0..inputs.len()).filter(|&index| wanted[index]).zip(&gradients) {
        if gradient.len() != inputs[index].len() {
            return Err(fail(format!("the gradient of input {index} has {} elements, not {}", gradient.len(), inputs[index].len())));
        }
        for at in (0..gradient.len()).step_by(gradient.len().div_ceil(MOST).max(1)) {
            moved[index][at] = inputs[index][at] + STEP;
            let right = difference(&loss(&moved), &here);
            moved[index][at] = inputs[index][at] - STEP;
            let left = difference(&here, &loss(&moved));
            moved[index][at] = inputs[index][at];
            let (found, central) = (gradient[at], (left + right) / 2.0);
            let slack = ABSOLUTE + RELATIVE * central.abs();
            if !((found - central).abs() <= slack || (left.min(right) - ABSOLUTE..=left.max(right) + ABSOLUTE).contains(&found)) {
                return Err(fail(format!("the gradient of input {index}, element {at} is {found}, {central} by differences")));
            }
            compared += 1;
        }
    }
    Ok(Some(compared))
}
