//! The naive reference, in f64, and the cases.

use elinvar_core::DType;

use super::{Sample, Settings, philox::philox};
use crate::conformance::case::{Bound, Case, HostTensor};

/// The token drawn: everything sorted, summed and drawn in f64.
fn token(logits: &[f64], s: &Settings, position: u32) -> usize {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    if s.temperature == 0.0 {
        return order[0];
    }
    let score = |i: usize| (logits[i] - logits[order[0]]) / f64::from(s.temperature);
    let mut kept = order.clone();
    kept.truncate(if s.top_k == 0 { kept.len() } else { s.top_k as usize });
    let enough = f64::from(s.top_p) * kept.iter().map(|&i| score(i).exp()).sum::<f64>();
    let mut mass = 0.0;
    kept.retain(|&i| {
        let before = mass;
        mass += score(i).exp();
        before == 0.0 || before < enough
    });
    kept.retain(|&i| score(i).exp() >= f64::from(s.min_p));
    let value = |i: usize| {
        let word = philox([i as u32 / 4, position, 0, 0], [s.seed as u32, (s.seed >> 32) as u32])[i % 4];
        score(i) - (-(-(f64::from(word) + 0.5) / 2f64.powi(32)).ln_1p()).ln()
    };
    kept.into_iter().max_by(|&a, &b| value(a).total_cmp(&value(b))).unwrap_or(order[0])
}

fn case(logits: HostTensor, position: i32, settings: Settings) -> Case {
    let state = HostTensor::new(&[2], &[7i32, position]);
    let (factors, numbers) = (HostTensor::new(&[3], &settings.factors()), HostTensor::new(&[3], &settings.numbers()));
    Case::new(Sample, [Some(state), Some(logits), Some(factors), Some(numbers)], Bound::EXACT, move |i| {
        let position = i[0][1] + 1.0;
        vec![vec![token(&i[1], &settings, position as u32) as f64, position]]
    })
    .updating(0)
}

/// Rows of their own settings and positions.
fn rows(dtype: DType, tokens: usize, positions: &[i32], settings: &[Settings]) -> Case {
    let logits = HostTensor::random(dtype, &[settings.len(), tokens], -9.0, 9.0, 77);
    let state: Vec<i32> = positions.iter().flat_map(|&position| [7, position]).collect();
    let factors = HostTensor::new(&[settings.len(), 3], settings.iter().flat_map(Settings::factors).collect::<Vec<_>>().as_slice());
    let numbers = HostTensor::new(&[settings.len(), 3], settings.iter().flat_map(Settings::numbers).collect::<Vec<_>>().as_slice());
    let settings = settings.to_vec();
    Case::new(Sample, [Some(HostTensor::new(&[settings.len(), 2], &state)), Some(logits), Some(factors), Some(numbers)], Bound::EXACT, move |i| {
        let row = |(row, settings): (usize, &Settings)| {
            let position = i[0][2 * row + 1] + 1.0;
            [token(&i[1][row * tokens..][..tokens], settings, position as u32) as f64, position]
        };
        vec![settings.iter().enumerate().flat_map(row).collect()]
    })
    .updating(0)
}

pub(crate) fn cases() -> Vec<Case> {
    let base = Settings { temperature: 1.5, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 0x1234_5678_9abc };
    let settings = [
        base,
        Settings { temperature: 0.0, ..base },
        Settings { temperature: 30.0, min_p: 0.9, seed: 1, ..base },
        Settings { top_k: 40, seed: 2, ..base },
        Settings { temperature: 4.0, top_p: 0.9, seed: 3, ..base },
        Settings { temperature: 2.0, top_k: 300, top_p: 0.7, min_p: 0.01, seed: 4 },
        Settings { top_p: 0.0, seed: 5, ..base },
    ];
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        for (n, settings) in [1, 13, 700, 9001].into_iter().flat_map(|n| settings.map(|s| (n, s))) {
            cases.push(case(HostTensor::random(dtype, &[1, n], -9.0, 9.0, n as u64), 40 + n as i32, settings));
        }
        // Few logits, each of many tokens, so that a filter ends among equals; and many tokens that cannot be drawn.
        let repeated: Vec<f64> = (0..9000).map(|k| f64::from(k * 7 % 4) - 3.0).collect();
        let rare: Vec<f64> = (0..3000).map(|k| if k % 100 == 7 { f64::from(k % 11) } else { f64::NEG_INFINITY }).collect();
        for values in [repeated, rare] {
            for settings in [Settings { top_k: 100, ..base }, Settings { top_k: 2500, top_p: 0.31, ..base }] {
                cases.push(case(HostTensor::from_f64(dtype, &[values.len()], &values), 3, settings));
            }
        }
    }
    cases.extend(boundaries());
    for (dtype, tokens) in [(DType::F32, 131), (DType::BF16, 2100)] {
        cases.push(rows(dtype, tokens, &[3, 900, 3, 0, 41], &settings[..5]));
    }
    cases
}

/// Draws that a boundary one token off would change, by seeds for which the token beside it would win.
fn boundaries() -> Vec<Case> {
    let base = Settings { temperature: 1.0, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 1 };
    let of = |logits: &[f32], settings| case(HostTensor::new(&[logits.len()], logits), 3, settings);
    let equal = |count, settings| of(&vec![0.0; count], settings);
    vec![
        // Two weights of 2^31 carry nothing into the next word, and half of them is the first.
        equal(2, Settings { top_p: 0.5, ..base }),
        // Top-p begins with the last token that top-k keeps.
        equal(2, Settings { top_k: 1, top_p: 0.6, ..base }),
        equal(2, Settings { min_p: 1.0, ..base }),
        // The last token kept is beyond the first 256, and the last of a lane's digits; one of the seven before it is drawn.
        equal(300, Settings { top_k: 264, seed: 26, ..base }),
        // With the least random word even a token that weighs nothing is drawn, unless a filter is on.
        of(&[-21.75, 0.0], Settings { seed: 2_008_465_408, ..base }),
    ]
}
