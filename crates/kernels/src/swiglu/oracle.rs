//! The naive reference, in f64.

use elinvar_core::DType;

use super::SwiGlu;
use crate::conformance::case::{Bound, Case, HostTensor};

fn gate(a: f64, b: f64, alpha: f64) -> f64 {
    a / (1.0 + (-alpha * a).exp()) * b
}

pub(crate) fn cases() -> Vec<Case> {
    let bound = Bound::relative(6e-7).with_absolute(1e-36);
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        for dims in [&[0][..], &[1], &[5, 77], &[3, 40, 211]] {
            let [a, b] = [1, 2].map(|seed| HostTensor::random(dtype, dims, -20.0, 20.0, seed));
            cases.push(Case::new(SwiGlu { alpha: 1.0 }, [Some(a), Some(b)], bound, |i| {
                vec![i[0].iter().zip(&i[1]).map(|(&a, &b)| gate(a, b, 1.0)).collect()]
            }));
        }
        for (rows, n) in [(0, 3), (3, 0), (1, 5000), (301, 33), (5, 24), (40, 3)] {
            let both = HostTensor::random(dtype, &[rows, 2 * n], -20.0, 20.0, 3);
            cases.push(Case::new(SwiGlu { alpha: 1.0 }, [Some(both), None], bound, move |i| {
                let halves = i[0].chunks(2 * n.max(1)).map(|row| row.split_at(n));
                vec![halves.flat_map(|(a, b)| a.iter().zip(b).map(|(&a, &b)| gate(a, b, 1.0))).collect()]
            }));
        }
        let [a, b] = [4, 5].map(|seed| HostTensor::random(dtype, &[600], -8.0, 8.0, seed));
        cases.push(Case::new(SwiGlu { alpha: 1.702 }, [Some(a), Some(b)], Bound::relative(1.5e-6), |i| {
            vec![i[0].iter().zip(&i[1]).map(|(&a, &b)| gate(a, b, 1.702f32.into())).collect()]
        }));
    }
    cases
}
