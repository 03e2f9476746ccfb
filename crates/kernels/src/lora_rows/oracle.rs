//! The naive reference, in f64.

use elinvar_core::DType;

use super::{LoraRows, operands::AT};
use crate::{
    conformance::case::{Bound, Case, HostTensor},
    matmul::oracle::product,
};

/// Rows of these adapters, of which each has a rank.
fn case([n, k, r]: [usize; 3], ranks: &[i32], adapters: &[i32]) -> Case {
    let (m, count) = (adapters.len(), ranks.len());
    let uniform = |dims: &[usize], seed| Some(HostTensor::random(DType::F32, dims, -1.0, 1.0, seed));
    let inputs = [
        uniform(&[m, n], 1),
        uniform(&[m, k], 2),
        uniform(&[count, r, k], 3),
        uniform(&[count, r, n], 4),
        uniform(&[count], 5),
        Some(HostTensor::new(&[count], ranks)),
        Some(HostTensor::new(&[m], adapters)),
    ];
    let size = 1.0 + ((k * r.max(1)) as f64).sqrt();
    let bound = Bound::relative(3e-7).with_absolute((k.div_ceil(256) + 80) as f64 * 2f64.powi(-24) * size);
    Case::new(LoraRows, inputs, bound, move |i| {
        let mut y = i[AT.base].clone();
        for (row, y) in y.chunks_exact_mut(n.max(1)).enumerate() {
            let number = i[AT.adapters][row];
            if !(0.0..count as f64).contains(&number) {
                continue;
            }
            let number = number as usize;
            let rank = i[AT.ranks][number] as usize;
            let projected = product([1, rank, k], |_, l| i[AT.x][row * k + l], |column, l| i[AT.a][(number * r + column) * k + l]);
            let delta = product([1, n, rank], |_, l| projected[l], |column, l| i[AT.b][(number * r + l) * n + column]);
            y.iter_mut().zip(delta).for_each(|(y, delta)| *y += i[AT.scales][number] * delta);
        }
        vec![y]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        // Neighbours of one adapter, rows without any, and an adapter that this layer does not have.
        case([257, 300, 16], &[16, 3, 0], &[1, 1, 0, -1, 2, 3, 0]),
        case([33, 40, 9], &[9], &[0]),
        case([16, 512, 70], &[70, 64], &[0, 1, 1, -1, 0, 0, 0, 0, 0, 0]),
        case([5, 64, 300], &[300, 257, 0], &[2, 0, 1]),
        case([8, 16, 4], &[4, 2], &[]),
        case([40, 32, 0], &[0], &[0, -1]),
    ]
}
