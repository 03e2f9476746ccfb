//! The naive references, in f64.

use elinvar_core::DType;

use super::{ArgReduce, Reduce, Reduction};
use crate::conformance::case::{Bound, Case, HostTensor, for_lengths};

/// One output from its elements.
pub(crate) fn reduce(reduction: Reduction, x: &[f64]) -> f64 {
    let nan = x.iter().any(|x| x.is_nan());
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match reduction {
        Reduction::Sum => x.iter().sum(),
        Reduction::Mean => x.iter().sum::<f64>() / x.len() as f64,
        Reduction::Max | Reduction::Min | Reduction::LogSumExp if nan => f64::NAN,
        Reduction::Max => largest,
        Reduction::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
        Reduction::Prod => x.iter().product(),
        Reduction::SumSquare => x.iter().map(|x| x * x).sum(),
        Reduction::L2 => x.iter().map(|x| x * x).sum::<f64>().sqrt(),
        Reduction::LogSumExp if largest.is_infinite() => largest,
        Reduction::LogSumExp => x.iter().map(|x| (x - largest).exp()).sum::<f64>().ln() + largest,
    }
}

pub(crate) fn arg(largest: bool, last: bool, x: &[f64]) -> f64 {
    let beats = |a: f64, b: f64| (if largest { a > b } else { a < b }) || a.is_nan() && !b.is_nan();
    let ties = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
    (1..x.len()).fold(0, |best, k| if beats(x[k], x[best]) || last && ties(x[k], x[best]) { k } else { best }) as f64
}

/// The elements of every output, in row-major order over the reduced axes.
fn gather(x: &[f64], dims: &[usize], reduced: &[bool]) -> Vec<Vec<f64>> {
    let outputs = dims.iter().zip(reduced).filter(|(_, r)| !**r).map(|(n, _)| n).product();
    let mut rows = vec![Vec::new(); outputs];
    for (flat, &x) in x.iter().enumerate() {
        let (mut rest, mut output, mut scale) = (flat, 0, 1);
        for (&n, &r) in dims.iter().zip(reduced).rev() {
            if !r {
                output += rest % n * scale;
                scale *= n;
            }
            rest /= n;
        }
        rows[output].push(x);
    }
    rows
}

const FLOAT: [Reduction; 8] =
    [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Prod, Reduction::SumSquare, Reduction::L2, Reduction::LogSumExp];

fn bound(reduction: Reduction, n: usize) -> Bound {
    match reduction {
        Reduction::Max | Reduction::Min => Bound::EXACT,
        // Elements are below 4: the sum of their magnitudes is below 4 n.
        Reduction::Sum => Bound::relative(1e-7).with_absolute(44.0 * 6e-8 * 4.0 * n as f64),
        Reduction::Mean => Bound::relative(1e-7).with_absolute(44.0 * 6e-8 * 4.0),
        Reduction::Prod => Bound::relative(6e-8 * n as f64).with_absolute(1e-37),
        Reduction::SumSquare | Reduction::L2 => Bound::relative(3e-6),
        Reduction::LogSumExp => Bound::relative(2.4e-7).with_absolute(3e-6),
    }
}

fn case(reduction: Reduction, x: HostTensor, axes: &[isize], keepdims: bool) -> Case {
    let dims = x.dims().to_vec();
    let axis = |a: isize| if a < 0 { a + dims.len() as isize } else { a };
    let reduced: Vec<bool> = (0..dims.len()).map(|i| axes.is_empty() || axes.iter().any(|&a| axis(a) == i as isize)).collect();
    let n = dims.iter().zip(&reduced).filter(|(_, r)| **r).map(|(n, _)| n).product();
    let bound = if x.dtype().is_float() { bound(reduction, n) } else { Bound::EXACT };
    Case::new(Reduce { reduction, axes: axes.to_vec(), keepdims }, [Some(x)], bound, move |i| {
        vec![gather(&i[0], &dims, &reduced).iter().map(|row| reduce(reduction, row)).collect()]
    })
}

/// Factors near one, so that products stay in range.
fn values(reduction: Reduction, dtype: DType, dims: &[usize], seed: u64) -> HostTensor {
    let (low, high) = if reduction == Reduction::Prod { (0.99, 1.01) } else { (-4.0, 4.0) };
    HostTensor::random(dtype, dims, low, high, seed)
}

fn special() -> Vec<Case> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows = [1.0, nan, 2.0, -inf, -inf, -inf, inf, 0.0, inf, -inf, 1.0, 0.0, inf, 3.0, nan, 0.0, -0.0, -0.0];
    let x = |dtype| HostTensor::from_f64(dtype, &[6, 3], &rows);
    let reductions = [Reduction::Max, Reduction::Min, Reduction::LogSumExp];
    let axes = [0, 1].into_iter().flat_map(|axis| reductions.map(|r| (axis, r)));
    let mut cases: Vec<_> = axes.map(|(axis, r)| case(r, x(DType::F32), &[axis], true)).collect();
    for (axis, largest) in [(0, true), (0, false), (1, true), (1, false)] {
        cases.push(arg_case(largest, false, x(DType::BF16), Some(axis), DType::I64));
    }
    cases.push(arg_case(true, false, x(DType::F32), Some(1), DType::I64));
    cases
}

fn arg_case(largest: bool, last: bool, x: HostTensor, axis: Option<isize>, dtype: DType) -> Case {
    let dims = x.dims().to_vec();
    let operator = ArgReduce { largest, axis, keepdims: false, select_last_index: last, dtype };
    Case::new(operator, [Some(x)], Bound::EXACT, move |i| {
        let reduced: Vec<bool> = (0..dims.len()).map(|d| axis.is_none_or(|a| a == d as isize)).collect();
        vec![gather(&i[0], &dims, &reduced).iter().map(|row| arg(largest, last, row)).collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = for_lengths(DType::FLOATS, |dtype, n| FLOAT.map(|r| case(r, values(r, dtype, &[2, n], 1), &[-1], n % 2 == 0)));
    for reduction in FLOAT {
        // Columns of one and of several simdgroups, a tile and a ragged one, several groups of axes, all axes, a lone long row, nothing.
        for (dims, axes) in [
            (&[1025, 600][..], &[0][..]),
            (&[3, 40, 5], &[1]),
            (&[40, 3, 50, 7], &[0, 2]),
            (&[4, 9, 5, 30], &[1, 3]),
            (&[7, 1, 11], &[]),
            (&[40_001], &[0]),
            (&[3, 0, 2], &[1]),
            (&[0, 3], &[1]),
        ] {
            cases.push(case(reduction, values(reduction, DType::F32, dims, 2), axes, true));
        }
    }
    for dtype in DType::ALL.iter().copied().filter(|d| d.is_integer()) {
        for reduction in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            for (dims, axes) in [(&[3, 700, 5][..], &[1][..]), (&[30, 1000], &[1]), (&[3, 4, 5], &[0, 2])] {
                let low = if reduction == Reduction::Sum { 0.0 } else { -100.0 };
                let high = if reduction == Reduction::Sum { 1.2 } else { 100.0 };
                if dtype.size() > 1 || reduction != Reduction::Sum {
                    cases.push(case(reduction, HostTensor::random(dtype, dims, low, high, 3), axes, false));
                }
            }
        }
        cases.push(case(Reduction::Prod, HostTensor::from_f64(dtype, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), &[-1], false));
        cases.push(arg_case(true, false, HostTensor::random(dtype, &[70, 300], 0.0, 9.0, 4), Some(1), DType::U32));
    }
    for reduction in [Reduction::Max, Reduction::Min] {
        cases.push(case(reduction, HostTensor::from_f64(DType::Bool, &[3, 2], &[0.0, 1.0, 0.0, 0.0, 1.0, 1.0]), &[1], true));
    }
    for &dtype in DType::FLOATS {
        for (largest, last) in [(true, false), (true, true), (false, false), (false, true)] {
            // Few values, so that there are ties.
            let x = |dims: &[usize]| {
                let whole = HostTensor::random(DType::I8, dims, -20.0, 20.0, 5).to_f64();
                HostTensor::from_f64(dtype, dims, &whole)
            };
            cases.push(arg_case(largest, last, x(&[3, 1]), Some(1), DType::I32));
            cases.push(arg_case(largest, last, x(&[20, 1000]), Some(1), DType::I64));
            cases.push(arg_case(largest, last, x(&[5, 100, 70]), Some(1), DType::U32));
            cases.push(arg_case(largest, last, x(&[50, 700]), None, DType::I64));
        }
    }
    cases.extend(special());
    cases
}
