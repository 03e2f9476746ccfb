//! The naive reference, in f64.

use elinvar_core::DType;

use super::{LoraRows, OF_LAYER, operands::AT};
use crate::{
    conformance::case::{Bound, Case, HostTensor},
    matmul::oracle::product,
};

/// Layers of these columns and ranks, of which each adapter has some, with these adapters of the rows.
fn case(k: usize, layers: &[(usize, usize, &[i32])], adapters: &[i32]) -> Case {
    let m = adapters.len();
    let uniform = |dims: &[usize], seed| Some(HostTensor::random(DType::F32, dims, -1.0, 1.0, seed));
    let mut inputs = vec![uniform(&[m, k], 1), Some(HostTensor::new(&[m], adapters))];
    for (&(n, r, ranks), seed) in layers.iter().zip((2..).step_by(4)) {
        let count = ranks.len();
        let own = [uniform(&[m, n], seed), uniform(&[count, r, k], seed + 1), uniform(&[count, r, n], seed + 2), uniform(&[count], seed + 3)];
        inputs.extend(own.into_iter().chain([Some(HostTensor::new(&[count], ranks))]));
    }
    let most = layers.iter().map(|&(_, r, _)| r).max().unwrap_or(0);
    let size = 1.0 + ((k * most.max(1)) as f64).sqrt();
    let bound = Bound::relative(3e-7).with_absolute((k.div_ceil(256) + 80) as f64 * 2f64.powi(-24) * size);
    let layers: Vec<_> = layers.iter().map(|&(n, r, ranks)| (n, r, ranks.len())).collect();
    Case::new(LoraRows, inputs, bound, move |i| {
        let result = |(layer, &(n, r, count)): (usize, &(usize, usize, usize))| {
            let at = |first: usize| &i[first + layer * OF_LAYER];
            let mut y = at(AT.base0).clone();
            for (row, y) in y.chunks_exact_mut(n.max(1)).enumerate() {
                let number = i[AT.adapters][row];
                if !(0.0..count as f64).contains(&number) {
                    continue;
                }
                let number = number as usize;
                let rank = at(AT.ranks0)[number] as usize;
                let projected = product([1, rank, k], |_, l| i[AT.x][row * k + l], |column, l| at(AT.a0)[(number * r + column) * k + l]);
                let delta = product([1, n, rank], |_, l| projected[l], |column, l| at(AT.b0)[(number * r + l) * n + column]);
                y.iter_mut().zip(delta).for_each(|(y, delta)| *y += at(AT.scales0)[number] * delta);
            }
            y
        };
        layers.iter().enumerate().map(result).collect()
    })
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        // Neighbours of one adapter, rows without any, and an adapter that this layer does not have.
        case(300, &[(257, 16, &[16, 3, 0])], &[1, 1, 0, -1, 2, 3, 0]),
        case(40, &[(33, 9, &[9])], &[0]),
        case(512, &[(16, 70, &[70, 64])], &[0, 1, 1, -1, 0, 0, 0, 0, 0, 0]),
        case(64, &[(5, 300, &[300, 257, 0])], &[2, 0, 1]),
        case(16, &[(8, 4, &[4, 2])], &[]),
        case(32, &[(40, 0, &[0])], &[0, -1]),
        // Layers together: of several widths and ranks, one of which some adapters do not have; so long a row that its elements come in turns.
        case(2100, &[(300, 8, &[8, 4]), (40, 5, &[0, 5]), (257, 12, &[12, 1, 3])], &[1, 0, -1, 2, 1]),
        // Rows whose last elements are not as many as are in flight at once, for all threads but the last.
        case(1990, &[(3, 2, &[2])], &[0, -1]),
        case(96, &[(64, 8, &[8, 8]), (64, 8, &[8, 0])], &[1, 0]),
    ]
}
