use std::collections::BTreeSet;

use super::{cpu::Row, *};

const ALL: Settings = Settings { temperature: 1.0, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 3 };

/// Logits without order, some of them equal.
fn logits(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 163) as f32 / 4.0 - 5.0).collect()
}

/// The tokens that the filters leave, by sorting and f64.
fn kept(logits: &[f32], s: &Settings) -> BTreeSet<usize> {
    let scaled: Vec<f64> = logits.iter().map(|&l| f64::from(l) / f64::from(s.temperature)).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if s.top_k > 0 {
        order.truncate(s.top_k as usize);
    }
    let total: f64 = order.iter().map(|&i| scaled[i].exp()).sum();
    let mut mass = 0.0;
    order.retain(|&i| {
        let before = mass;
        mass += scaled[i].exp() / total;
        before == 0.0 || before < f64::from(s.top_p)
    });
    let most = scaled[order[0]].exp();
    order.retain(|&i| scaled[i].exp() / most >= f64::from(s.min_p));
    order.into_iter().collect()
}

fn drawn(logits: &[f32], settings: &Settings, count: u32) -> Vec<usize> {
    (0..count).map(|position| choose(logits, settings, position).unwrap()).collect()
}

#[test]
fn filters_keep_what_a_plain_computation_keeps() {
    let settings = [
        Settings { top_k: 5, ..ALL },
        Settings { top_p: 0.6, ..ALL },
        Settings { temperature: 3.0, top_k: 40, top_p: 0.7, min_p: 0.3, ..ALL },
        Settings { temperature: 0.2, top_p: 0.999, ..ALL },
        Settings { top_p: 0.0, ..ALL },
        Settings { temperature: 20.0, min_p: 0.2, ..ALL },
        Settings { min_p: 1.0, ..ALL },
    ];
    for (n, settings) in [7, 300, 3000].into_iter().flat_map(|n| settings.map(|s| (n, s))) {
        let logits = logits(n);
        let row = Row { logits: &logits, most: logits.iter().copied().fold(f32::MIN, f32::max), temperature: settings.temperature };
        let least = row.least(&settings);
        let likely = |token: usize| f64::from(row.score(logits[token])).exp() >= f64::from(settings.min_p);
        let found: BTreeSet<_> = (0..n).filter(|&token| row.key(token) >= least && likely(token)).collect();
        let expected = kept(&logits, &settings);
        assert_eq!(found, expected, "{n} {settings:?}");
        let drawn: BTreeSet<_> = drawn(&logits, &settings, 200).into_iter().collect();
        assert!(drawn.is_subset(&expected), "{n} {settings:?}: {drawn:?}");
    }
}

#[test]
fn tokens_come_as_often_as_they_are_likely() {
    let logits = [0.0, 1.0, 2.0, -1.0, f32::NEG_INFINITY];
    let (settings, count) = (Settings { temperature: 2.0, ..ALL }, 40_000);
    let mut found = [0; 5];
    drawn(&logits, &settings, count).into_iter().for_each(|token| found[token] += 1);
    let total: f64 = logits.iter().map(|&l| (f64::from(l) / 2.0).exp()).sum();
    for (token, &logit) in logits.iter().enumerate() {
        let expected = (f64::from(logit) / 2.0).exp() / total;
        let deviation = (expected * (1.0 - expected) / f64::from(count)).sqrt();
        assert!((f64::from(found[token]) / f64::from(count) - expected).abs() <= 5.0 * deviation, "{token}: {found:?}");
    }
}

#[test]
fn seed_and_position_fix_the_token() {
    let (logits, settings) = (logits(500), Settings { temperature: 9.0, top_p: 0.9, ..ALL });
    assert_eq!(drawn(&logits, &settings, 50), drawn(&logits, &settings, 50));
    for seed in [4, 3 + (1 << 32)] {
        assert_ne!(drawn(&logits, &settings, 50), drawn(&logits, &Settings { seed, ..settings }, 50));
    }
}

#[test]
fn a_temperature_of_zero_takes_the_first_of_the_greatest() {
    let settings = Settings { temperature: 0.0, ..ALL };
    assert_eq!(choose(&[1.0f32, 3.0, -1.0, 3.0], &settings, 5).unwrap(), 1);
    assert!(choose(&[1.0f32, f32::NAN], &settings, 0).is_err());
    // No temperature overflows, and what is far from the greatest is not drawn.
    assert_eq!(choose(&[3e38f32, -3e38, 0.0], &ALL, 0).unwrap(), 0);
    assert_eq!(choose(&[3e38f32, -3e38, 0.0], &Settings { temperature: 1e-30, ..ALL }, 0).unwrap(), 0);
}

#[test]
fn misfits_are_refused() {
    let info = |dtype, dims: &[usize]| Some(TensorInfo::new(dtype, dims).unwrap());
    let fitting = [info(DType::I32, &[2]), info(DType::BF16, &[1, 5]), info(DType::F32, &[3]), info(DType::U32, &[3])];
    assert!(Sample.infer(&fitting).unwrap().is_empty());
    for (index, wrong, expected) in [
        (0, info(DType::I32, &[3]), "[2]"),
        (1, info(DType::F32, &[0]), "not empty"),
        (2, info(DType::F32, &[2]), "factors have shape [2]: [3]"),
        (3, info(DType::I32, &[3]), "numbers is i32"),
        (3, None, "'numbers' is missing"),
    ] {
        let mut inputs = fitting;
        inputs[index] = wrong;
        let message = Sample.infer(&inputs).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
