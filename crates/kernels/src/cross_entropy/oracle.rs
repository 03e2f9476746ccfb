//! The naive reference, in f64, and the cases.

use elinvar_core::DType;

use super::{
    CrossEntropy, CrossEntropyGradient, LossReduction,
    exponentials::{Group, exponentials},
};
use crate::{
    conformance::case::{Bound, Case, HostTensor, for_lengths},
    gather::index,
    order::row_threads,
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

fn random(dtype: DType, dims: &[usize]) -> HostTensor {
    HostTensor::random(dtype, dims, -8.0, 8.0, dims[dims.len() - 1] as u64)
}

fn cases_of(logits: HostTensor, by: DType, ignored: Option<isize>) -> [Case; 8] {
    let (dims, classes) = (logits.dims().to_vec(), logits.dims()[logits.dims().len() - 1]);
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
        CrossEntropy { ignore_index: ignored, statistics: true, reduction: LossReduction::None },
        [Some(logits.clone()), Some(targets.clone())],
        Bound::relative(4e-6).with_absolute(6e-6),
        move |i| {
            let (max, sum) = statistics(&i[0], i[1].len());
            vec![losses(&i[0], &i[1]), max, sum]
        },
    );
    let loss = Case::new(
        CrossEntropy { ignore_index: ignored, ..CrossEntropy::default() },
        [Some(logits.clone()), Some(targets.clone())],
        Bound::relative(1e-6).with_absolute(6e-6),
        move |i| vec![losses(&i[0], &i[1])],
    );
    let rows = targets.dims().iter().product::<usize>();
    let reduced = |reduction| {
        Case::new(
            CrossEntropy { ignore_index: ignored, statistics: false, reduction },
            [Some(logits.clone()), Some(targets.clone())],
            Bound::relative(4e-6).with_absolute(6e-6 * if reduction == LossReduction::Sum { rows as f64 } else { 1.0 }),
            move |i| {
                let total: f64 = losses(&i[0], &i[1]).iter().sum();
                let count = i[1].iter().filter(|target| ignored.map(|ignored| ignored as f64) != Some(**target)).count();
                vec![vec![if reduction == LossReduction::Mean { total / count as f64 } else { total }]]
            },
        )
    };
    let [mean, sum] = [LossReduction::Mean, LossReduction::Sum].map(reduced);
    let bound = Bound::relative(4e-6).with_absolute(4e-6);
    let rows: Vec<f32> = logits.to_f64().into_iter().map(|x| x as f32).collect();
    let (maxima, sums): (Vec<_>, Vec<_>) = rows
        .chunks(classes.max(1))
        .map(|row| exponentials(row, &mut Group::of_row(classes)))
        .map(|(max, sum)| (f64::from(max), f64::from(sum)))
        .unzip();
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
    [loss, with_statistics, gradient_alone(known.clone()), with_loss(known), gradient_alone(given.clone()), with_loss(given), mean, sum]
}

/// Rows whose logits lie far apart: threads that begin with visits of -∞ alone, origins that rise often and by much, and numbers of any size.
fn far_apart(dtype: DType, n: usize) -> HostTensor {
    let visit = 8 * row_threads(n);
    let rows: [&dyn Fn(usize) -> f64; 5] = [
        &|k| if k < n / 2 || k % 5 == 0 { f64::NEG_INFINITY } else { (k % 7) as f64 },
        &|k| 200.0 * k as f64 / n as f64 - 100.0,
        &|k| [-30.0, 60.0, 64.5, -120.0][k / visit % 4] + (k % 3) as f64,
        &|k| if k % 4 < 2 { -1e9 } else { f64::from(f32::MIN) },
        &|k| if k == n / 2 { 3e37 } else { 2e37 },
    ];
    HostTensor::from_f64(dtype, &[5, n], &rows.iter().flat_map(|row| (0..n).map(row)).collect::<Vec<_>>())
}

pub(crate) fn cases() -> Vec<Case> {
    let by = |n: usize| index::TYPES[n % 3];
    let mut cases =
        for_lengths(DType::FLOATS, |dtype, n| cases_of(random(dtype, &[if n == 0 { 0 } else { 3 }, n]), by(n), (n % 2 == 0).then_some(0)));
    cases.extend(cases_of(random(DType::F32, &[2, 5, 40]), DType::I64, Some(-100)));
    cases.extend(cases_of(random(DType::BF16, &[2, 33_001]), DType::I32, None));
    cases.extend(cases_of(random(DType::F16, &[300, 70]), DType::U32, Some(7)));
    cases.extend(cases_of(random(DType::F32, &[5000, 3]), DType::I32, Some(1)));
    cases.extend(cases_of(random(DType::F32, &[2, 1]), DType::I32, Some(0)));
    for (dtype, n) in [(DType::F32, 20_003), (DType::BF16, 40_000), (DType::F32, 300), (DType::F32, 250)] {
        // Their sum is beyond f32.
        cases.extend(cases_of(far_apart(dtype, n), DType::I32, None).into_iter().take(6));
    }
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for n in [3, 300, 9000] {
        let row = |values: [f64; 3]| (0..n).map(move |k| values[k % 3]);
        let values: Vec<f64> = [[1.0, nan, 2.0], [-inf; 3], [inf, 0.0, 1.0]].into_iter().flat_map(row).collect();
        let [loss, _, given, _, found, _, mean, _] = cases_of(HostTensor::from_f64(DType::F32, &[3, n], &values), DType::I32, None);
        cases.extend([loss, given, found, mean]);
    }
    cases
}
