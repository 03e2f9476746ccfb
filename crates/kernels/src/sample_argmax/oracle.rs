//! The naive reference, and the cases.

use elinvar_core::DType;

use super::SampleArgmax;
use crate::conformance::case::{Bound, Case, HostTensor};

fn case(logits: HostTensor) -> Case {
    let state = HostTensor::new(&[2], &[7i32, 41]);
    Case::new(SampleArgmax, [Some(state), Some(logits)], Bound::EXACT, |i| {
        let first = (0..i[1].len()).fold(0, |best, k| if i[1][k] > i[1][best] { k } else { best });
        vec![vec![first as f64, i[0][1] + 1.0]]
    })
    .updating(0)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        for n in [1, 9, 513, 9000] {
            cases.push(case(HostTensor::random(dtype, &[1, n], -9.0, 9.0, n as u64)));
        }
        // Many of the greatest, and the greatest last.
        let repeated: Vec<f64> = (0..9000).map(|k| f64::from(k * 7 % 64)).collect();
        cases.push(case(HostTensor::from_f64(dtype, &[9000], &repeated)));
        let rising: Vec<f64> = (0..300).map(|k| if k == 299 { -1.0 } else { f64::NEG_INFINITY }).collect();
        cases.push(case(HostTensor::from_f64(dtype, &[300], &rising)));
    }
    // More than the threadgroups take at once: the greatest, and its equals, beyond.
    let many: Vec<f64> = (0..530_001).map(|k| if k > 524_300 { 3.0 } else { f64::from(k % 3) }).collect();
    cases.push(case(HostTensor::from_f64(DType::BF16, &[530_001], &many)));
    cases
}
