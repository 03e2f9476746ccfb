use std::collections::BTreeSet;

use super::*;

/// Logits without order, some of them equal.
fn logits(n: usize) -> Vec<f32> {
    let mut random = Random::new(9);
    (0..n).map(|_| (random.uniform() * 40.0).floor() as f32 / 4.0 - 5.0).collect()
}

/// The tokens each filter leaves, by sorting and f64.
fn kept(logits: &[f32], s: &Sampling) -> BTreeSet<u32> {
    let scaled: Vec<f64> = logits.iter().map(|&l| f64::from(l) / f64::from(s.temperature)).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| scaled[b].total_cmp(&scaled[a]).then(a.cmp(&b)));
    if s.top_k > 0 {
        order.truncate(s.top_k);
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
    order.into_iter().map(|i| i as u32).collect()
}

fn draws(logits: &[f32], sampling: Sampling, count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(sampling).unwrap();
    (0..count).map(|_| sampler.sample(logits, &[]).unwrap()).collect()
}

#[test]
fn greedy_takes_the_lowest_of_equal_logits() {
    let mut sampler = Sampler::new(Sampling::greedy()).unwrap();
    assert_eq!(sampler.sample(&[1.0, 3.0, -1.0, 3.0], &[]).unwrap(), 1);
    assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -1e30], &[]).unwrap(), 1);
}

#[test]
fn filters_keep_what_a_plain_computation_keeps() {
    let base = Sampling { temperature: 1.0, ..Sampling::default() };
    let settings = [
        Sampling { top_k: 5, ..base },
        Sampling { top_p: 0.6, ..base },
        Sampling { min_p: 0.2, ..base },
        Sampling { temperature: 3.0, top_k: 40, top_p: 0.7, min_p: 0.3, ..base },
        Sampling { temperature: 0.2, top_p: 0.999, ..base },
        Sampling { top_p: 0.0, ..base },
        Sampling { min_p: 1.0, ..base },
    ];
    for (n, sampling) in [7, 300, 3000].into_iter().flat_map(|n| settings.map(|s| (n, s))) {
        let logits = logits(n);
        let mut sampler = Sampler::new(sampling).unwrap();
        sampler.sample(&logits, &[]).unwrap();
        let found: BTreeSet<_> = sampler.order.iter().copied().collect();
        assert_eq!(found, kept(&logits, &sampling), "{n} {sampling:?}");
    }
}

#[test]
fn tokens_come_as_often_as_they_are_likely() {
    let logits = [0.0, 1.0, 2.0, -1.0, f32::NEG_INFINITY];
    let sampling = Sampling { temperature: 2.0, seed: 3, ..Sampling::default() };
    let count = 40_000;
    let mut found = [0; 5];
    draws(&logits, sampling, count).into_iter().for_each(|id| found[id as usize] += 1);
    let total: f64 = logits.iter().map(|&l| (f64::from(l) / 2.0).exp()).sum();
    for (id, &logit) in logits.iter().enumerate() {
        let expected = (f64::from(logit) / 2.0).exp() / total;
        let deviation = (expected * (1.0 - expected) / count as f64).sqrt();
        assert!((f64::from(found[id]) / count as f64 - expected).abs() <= 5.0 * deviation, "{id}: {found:?}");
    }
}

#[test]
fn a_seed_fixes_the_tokens() {
    let sampling = Sampling { temperature: 1.5, top_p: 0.9, seed: 42, ..Sampling::default() };
    let logits = logits(500);
    assert_eq!(draws(&logits, sampling, 50), draws(&logits, sampling, 50));
    assert_ne!(draws(&logits, sampling, 50), draws(&logits, Sampling { seed: 43, ..sampling }, 50));
    assert_eq!(draws(&logits, sampling, 6), [261, 75, 70, 302, 50, 1]);
}

#[test]
fn the_repetition_penalty_counts_each_token_once() {
    let sampling = Sampling { repetition_penalty: 2.0, ..Sampling::default() };
    let mut sampler = Sampler::new(sampling).unwrap();
    assert_eq!(sampler.sample(&[4.0, 3.0, -1.0], &[0, 0, 900]).unwrap(), 1);
    assert_eq!(sampler.scores, [2.0, 3.0, -1.0]);
    assert_eq!(sampler.sample(&[-1.0, -1.5, -5.0], &[0, 2]).unwrap(), 1);
    assert_eq!(sampler.scores, [-2.0, -1.5, -10.0]);
}

#[test]
fn logits_that_are_no_numbers_are_refused() {
    let mut sampler = Sampler::new(Sampling { temperature: 1.0, ..Sampling::default() }).unwrap();
    let mut refused = |logits: &[f32]| sampler.sample(logits, &[]).unwrap_err().to_string();
    assert!(refused(&[0.0, f32::NAN]).contains("logit of token 1 is NaN"));
    assert!(refused(&[f32::INFINITY]).contains("token 0 is inf"));
    assert!(refused(&[f32::NEG_INFINITY; 3]).contains("none of the 3 logits is finite"));
    assert!(refused(&[]).contains("none of the 0"));
    assert!(sampler.sample(&[3e38, -3e38, 0.0], &[]).is_ok());
}

#[test]
fn settings_outside_their_range_are_refused() {
    let base = Sampling::default();
    for (sampling, name) in [
        (Sampling { temperature: -1.0, ..base }, "temperature is -1"),
        (Sampling { temperature: f32::NAN, ..base }, "temperature is NaN"),
        (Sampling { top_p: 1.5, ..base }, "top-p is 1.5"),
        (Sampling { min_p: -0.1, ..base }, "min-p is -0.1"),
        (Sampling { repetition_penalty: 0.0, ..base }, "penalty is 0"),
    ] {
        assert!(Sampler::new(sampling).unwrap_err().to_string().contains(name), "{name}");
    }
}

#[test]
fn the_authors_settings_are_followed() {
    let config = GenerationConfig { temperature: Some(0.6), top_k: Some(20), ..GenerationConfig::default() };
    assert_eq!(Sampling::recommended(&config, 1).temperature, 0.0);
    let config = GenerationConfig { do_sample: Some(true), ..config };
    let expected = Sampling { temperature: 0.6, top_k: 20, seed: 1, ..Sampling::default() };
    assert_eq!(Sampling::recommended(&config, 1), expected);
}
