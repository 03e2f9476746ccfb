//! Cases around the least normal number, derived from the operators' own: subnormals are numbers like others, to every operator and device.

use std::collections::BTreeMap;

use elinvar_core::DType;

use super::{Bound, Case, HostTensor};
use crate::Precision;

/// Bytes of inputs that a case must have to say something, and may have to be quick.
const BYTES: std::ops::RangeInclusive<usize> = 24..=24 << 10;
/// Shorter tensors are parameters rather than data.
const FEWEST: usize = 8;

/// A floating-point type's least number, its least normal number, and the distance from 1 to the next number.
fn limits(dtype: DType) -> [f64; 3] {
    let [least, normal, epsilon] = match dtype {
        DType::F16 => [-24, -14, -10],
        DType::BF16 => [-133, -126, -7],
        _ => [-149, -126, -23],
    };
    [least, normal, epsilon].map(|exponent: i32| 2f64.powi(exponent))
}

/// The smallest case of each operator, its attributes but for numbers, and its first floating-point type: once with tiny numbers alone, and once with
/// every second element tiny. Fast precision may flush.
pub(super) fn cases(all: &[Case]) -> Vec<Case> {
    let mut smallest: BTreeMap<String, &Case> = BTreeMap::new();
    for case in all.iter().filter(|case| case.operator.precision() == Precision::Strict && BYTES.contains(&size(case))) {
        let floats: Vec<DType> = data(case).map(|(_, tensor)| tensor.dtype()).collect();
        let operator: String = format!("{:?}", case.operator).chars().filter(|letter| !letter.is_ascii_digit()).collect();
        // Powers of mixed types round the exponent first, of which the reference knows nothing.
        if let Some(first) = floats.first().filter(|first| !operator.contains("Pow") || floats.iter().all(|other| other == *first)) {
            let known = smallest.entry(format!("{operator} {first}")).or_insert(case);
            if size(case) < size(known) {
                *known = case;
            }
        }
    }
    smallest.into_values().flat_map(|case| [near_zero(case, 1, "tiny"), near_zero(case, 2, "partly tiny")]).collect()
}

fn size(case: &Case) -> usize {
    case.inputs.iter().flatten().map(|tensor| tensor.bytes().len()).sum()
}

/// The floating-point inputs that are data, by index.
fn data(case: &Case) -> impl Iterator<Item = (usize, &HostTensor)> {
    // The reference of rotations by given sines and cosines knows only the angles.
    let count = if format!("{:?}", case.operator).starts_with("RotaryEmbedding") { 1 } else { case.inputs.len() };
    let inputs = case.inputs.iter().enumerate().take(count).filter_map(|(index, tensor)| Some((index, tensor.as_ref()?)));
    inputs.filter(|(_, tensor)| tensor.dtype().is_float() && tensor.dims().iter().product::<usize>() >= FEWEST)
}

/// The case with one of `every` so many elements near zero: other ones of each input, so that they meet ordinary numbers.
fn near_zero(case: &Case, every: usize, note: &'static str) -> Case {
    let (mut inputs, mut coarsest) = (case.inputs.clone(), [0f64; 3]);
    for (index, tensor) in data(case) {
        let [least, normal, epsilon] = limits(tensor.dtype());
        let tiny = [least, -least, normal - least, least - normal, 0.5 * normal, -0.75 * normal, normal, -normal, normal + least, 3.0 * least];
        // Where all are tiny, none is normal.
        let tiny = if every == 1 { &tiny[..6] } else { &tiny };
        inputs[index] = Some(tensor.replaced(|at| (at + index).is_multiple_of(every).then(|| tiny[(at / every * 7 + 3 * index) % tiny.len()])));
        coarsest = [0, 1, 2].map(|limit| coarsest[limit].max([least, normal, epsilon][limit]));
    }
    // Intermediate results round to multiples of the least number, and squares of tiny numbers vanish.
    let [least, _, epsilon] = coarsest;
    let absolute = if format!("{:?}", case.operator).contains("reduction: L2") { 1e-22 } else { 4.0 * least };
    let bound = Bound { relative: case.bound.relative.max(4.0 * epsilon), absolute: case.bound.absolute.max(absolute), ..case.bound };
    Case { inputs, bound, note, ..case.clone() }
}
