use super::*;

#[test]
fn seed_and_place_fix_the_token() {
    let logits: Vec<f32> = (0..500).map(|i| (i * 7919 % 163) as f32 / 16.0).collect();
    let draws = |seed: u64| {
        let mut sampler = Sampler::new(Sampling { temperature: 1.5, top_p: 0.9, seed, ..Sampling::default() }).unwrap();
        let context = [0; 50];
        let mut found: Vec<u32> = (0..50).map(|place| sampler.sample(&logits, &context[..place]).unwrap()).collect();
        assert_eq!(sampler.sample(&logits, &context[..7]).unwrap(), found[7]);
        found.truncate(49);
        found
    };
    assert_eq!(draws(42), draws(42));
    assert_ne!(draws(42), draws(43));
    assert_eq!(draws(42)[..6], [336, 403, 149, 120, 34, 329]);
}

#[test]
fn greedy_takes_the_lowest_of_equal_logits() {
    let mut sampler = Sampler::new(Sampling::greedy()).unwrap();
    assert_eq!(sampler.sample(&[1.0, 3.0, -1.0, 3.0], &[]).unwrap(), 1);
    assert_eq!(sampler.sample(&[f32::NEG_INFINITY, -1e30], &[]).unwrap(), 1);
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
fn logits_that_are_no_numbers_are_rejected() {
    let mut sampler = Sampler::new(Sampling { temperature: 1.0, ..Sampling::default() }).unwrap();
    let mut rejected = |logits: &[f32]| sampler.sample(logits, &[]).unwrap_err().to_string();
    assert!(rejected(&[0.0, f32::NAN]).contains("logit of token 1 is NaN"));
    assert!(rejected(&[f32::INFINITY]).contains("token 0 is inf"));
    assert!(rejected(&[f32::NEG_INFINITY; 3]).contains("none of the 3 logits is finite"));
    assert!(rejected(&[]).contains("none of the 0"));
    assert!(sampler.sample(&[3e38, -3e38, 0.0], &[]).is_ok());
}

#[test]
fn settings_outside_their_range_are_rejected() {
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
