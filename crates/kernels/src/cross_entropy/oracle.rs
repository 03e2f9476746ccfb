//! The naive reference, in f64, and the cases.

use elinvar_core::DType;

use super::{CrossEntropy, CrossEntropyGradient, cpu::exponentials};
use crate::{
    conformance::case::{Bound, Case, HostTensor, for_lengths},
    gather::index,
    softmax::oracle::softmax,
};

/// The class that counts, if one does.
fn class(target: f64, ignored: Option<isize>, classes: usize) -> Option<usize> {
    (ignored.map(|ignored| ignored as f64) != Some(target)).then(|| (target as i64).rem_euclid(classes as i64) as usize)
}

/// The gradient by each row's logits.
pub(crate) fn gradient(logits: &[f64], targets: &[f64], dloss: &[f64], ignored: Option<isize>) -> Vec<f64> {
    let classes = logits.len() / targets.len().max(1);
    let row = |row: usize| {
        let target = class(targets[row], ignored, classes);
        let p = softmax(&logits[row * classes..][..classes], false).into_iter().enumerate();
        p.map(move |(k, p)| target.map_or(0.0, |target| (p - f64::from(u8::from(k == target))) * dloss[row])).collect::<Vec<_>>()
    };
    (0..targets.len()).flat_map(row).collect()
}

fn cases_of(dtype: DType, by: DType, dims: &[usize], ignored: Option<isize>) -> [Case; 6] {
    let classes = dims[dims.len() - 1];
    let logits = HostTensor::random(dtype, dims, -8.0, 8.0, classes as u64);
    let low = if by == DType::U32 { 0.0 } else { -(classes as f64) + 0.01 };
    let mut targets = HostTensor::random(by, &dims[..dims.len() - 1], low, classes as f64, 5).to_f64();
    targets.iter_mut().skip(1).step_by(3).for_each(|target| *target = ignored.map_or(*target, |ignored| ignored as f64));
    let targets = HostTensor::from_f64(by, &dims[..dims.len() - 1], &targets);
    let dloss = HostTensor::random(DType::F32, &dims[..dims.len() - 1], -1.0, 1.0, 6);
    let losses = move |logits: &[f64], targets: &[f64]| {
        let row = |(row, target): (usize, &f64)| {
            class(*target, ignored, classes).map_or(0.0, |target| -softmax(&logits[row * classes..][..classes], true)[target])
        };
        targets.iter().enumerate().map(row).collect::<Vec<f64>>()
    };
    let statistics = move |logits: &[f64], rows: usize| {
        let of = |row: usize| {
            let row = &logits[row * classes..][..classes];
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (max, row.iter().map(|x| (x - max).exp()).sum::<f64>())
        };
        (0..rows).map(of).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let with_statistics = Case::new(
        CrossEntropy { ignore_index: ignored, statistics: true },
        [Some(logits.clone()), Some(targets.clone())],
        Bound::relative(4e-6).with_absolute(6e-6),
        move |i| {
            let (max, sum) = statistics(&i[0], i[1].len());
            vec![losses(&i[0], &i[1]), max, sum]
        },
    );
    let loss = Case::new(
        CrossEntropy { ignore_index: ignored, statistics: false },
        [Some(logits.clone()), Some(targets.clone())],
        Bound::relative(1e-6).with_absolute(6e-6),
        move |i| vec![losses(&i[0], &i[1])],
    );
    let bound = Bound::relative(4e-6).with_absolute(4e-6);
    let rows: Vec<f32> = logits.to_f64().into_iter().map(|x| x as f32).collect();
    let (maxima, sums): (Vec<_>, Vec<_>) = rows.chunks(classes.max(1)).map(exponentials).map(|(max, sum)| (f64::from(max), f64::from(sum))).unzip();
    let [maxima, sums] = [maxima, sums].map(|values| Some(HostTensor::from_f64(DType::F32, &dims[..dims.len() - 1], &values)));
    let given = [Some(logits), Some(targets), Some(dloss)];
    let known: Vec<_> = given.iter().cloned().chain([maxima, sums]).collect();
    let slope = CrossEntropyGradient { ignore_index: ignored, with_loss: false };
    let both = CrossEntropyGradient { with_loss: true, ..slope };
    let gradient_alone = |given: Vec<_>| Case::new(slope, given, bound, move |i| vec![gradient(&i[0], &i[1], &i[2], ignored)]);
    let with_loss = |given: Vec<_>| {
        Case::new(both, given, bound.with_absolute(6e-6), move |i| vec![gradient(&i[0], &i[1], &i[2], ignored), losses(&i[0], &i[1])])
    };
    let given = given.to_vec();
    [loss, with_statistics, gradient_alone(known.clone()), with_loss(known), gradient_alone(given.clone()), with_loss(given)]
}

pub(crate) fn cases() -> Vec<Case> {
    let by = |n: usize| index::TYPES[n % 3];
    let mut cases = for_lengths(DType::FLOATS, |dtype, n| cases_of(dtype, by(n), &[if n == 0 { 0 } else { 3 }, n], (n % 2 == 0).then_some(0)));
    cases.extend(cases_of(DType::F32, DType::I64, &[2, 5, 40], Some(-100)));
    cases.extend(cases_of(DType::BF16, DType::I32, &[2, 33_001], None));
    cases.extend(cases_of(DType::F16, DType::U32, &[300, 70], Some(7)));
    cases
}
