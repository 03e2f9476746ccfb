//! Keys and values in blocks.

use elinvar::DType;
use elinvar_llm::{CacheType, Session};
use half::f16;

use crate::{
    fixture::{Fixture, config, strict},
    oracle,
};

/// What q8_0 keeps of a row, as ggml quantises it.
fn rounded(row: &[f64]) -> Vec<f64> {
    let block = |block: &[f64]| {
        let scale = block.iter().fold(0f32, |most, x| most.max(x.abs() as f32)) / 127.0;
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        let kept = f16::from_f32(scale).to_f64();
        block.iter().map(|x| kept * f64::from((*x as f32 * inverse).round())).collect::<Vec<_>>()
    };
    row.chunks(32).flat_map(block).collect()
}

#[test]
fn a_cache_in_blocks_is_that_of_rounded_keys_and_values() {
    let fixture = Fixture::new(&config("LlamaForCausalLM", r#", "head_dim": 64"#), DType::F32);
    let tokens: Vec<u32> = (0..40).map(|i| (i * i * 7 + i * 3 + 5) % 97).collect();
    let model = fixture.open(&strict(2)).unwrap();
    let run = |cache: CacheType, chunk: usize| {
        let mut session = Session::new(model.clone(), 64, cache).unwrap();
        session.set_chunk(chunk);
        session.feed_all(&tokens).unwrap()
    };
    let apart = |a: &[f32], b: &mut dyn Iterator<Item = f64>| a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0f64, f64::max);
    let found = run(CacheType::Q8_0, 64);
    let expected = oracle::logits_of_cache(&fixture.config, &fixture.tensors, &tokens, rounded);
    let plain = oracle::logits(&fixture.config, &fixture.tensors, &tokens);
    let [error, cost] = [&expected, &plain].map(|logits| apart(&found, &mut logits.iter().flatten().copied()));
    assert!(error < 3e-5 && (1e-3..0.2).contains(&cost), "{error:.2e} from the oracle, {cost:.2e} from that of a cache of floats");
    let halves = run(DType::F16.into(), 64);
    assert!(apart(&halves, &mut found.iter().map(|&x| x.into())) < 0.2);
    for chunk in [1, 3] {
        assert!(run(CacheType::Q8_0, chunk) == found, "chunks of {chunk}");
    }
}

#[test]
fn heads_that_are_no_whole_blocks_are_rejected() {
    let fixture = Fixture::new(&config("LlamaForCausalLM", ""), DType::F32);
    let error = Session::new(fixture.open(&strict(1)).unwrap(), 8, CacheType::Q8_0).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "a cache of q8_0 for heads of 8 elements: a multiple of 32 expected, use a cache of f16");
    assert_eq!("q8_0".parse::<CacheType>().unwrap().to_string(), "q8_0");
    let unknown = "q4_0".parse::<CacheType>().unwrap_err().to_string();
    assert_eq!(unknown, "unknown type of cache 'q4_0': expected f32, f16, bf16 or q8_0");
}
