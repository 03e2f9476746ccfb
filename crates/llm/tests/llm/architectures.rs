use std::ops::ControlFlow;

use elinvar::DType;
use elinvar_llm::Session;

use crate::{
    fixture::{Fixture, config, strict},
    oracle,
};

/// Every variation of the family: biases, head normalisation, windows, tied and untied embeddings, rotary scalings, partial rotation.
fn variations() -> Vec<(String, DType)> {
    let llama3 = r#", "attention_bias": true, "mlp_bias": true, "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}"#;
    let linear = r#", "head_dim": 16, "tie_word_embeddings": true, "rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 4.0}"#;
    vec![
        (config("LlamaForCausalLM", llama3), DType::F32),
        (config("LlamaForCausalLM", linear), DType::BF16),
        (config("LlamaForCausalLM", r#", "head_dim": 12, "partial_rotary_factor": 0.5"#), DType::F32),
        (config("MistralForCausalLM", r#", "sliding_window": 13, "head_dim": 10"#), DType::BF16),
        (config("Qwen2ForCausalLM", r#", "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1"#), DType::F32),
        (config("Qwen3ForCausalLM", r#", "head_dim": 12, "attention_bias": true, "tie_word_embeddings": true"#), DType::BF16),
    ]
}

fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| (i * i * 7 + i * 3 + 5) % 97).collect()
}

#[test]
fn logits_are_those_of_a_plain_computation() {
    let executor = strict(2);
    for (config, dtype) in variations() {
        let fixture = Fixture::new(&config, dtype);
        let model = fixture.open(&executor).unwrap();
        let tokens = tokens(40);
        let expected = oracle::logits(&fixture.config, &fixture.tensors, &tokens);
        let found = Session::new(model, 64, DType::F32).unwrap().feed_all(&tokens).unwrap();
        let most = expected.iter().flatten().fold(0f64, |m, v| m.max(v.abs()));
        // Products with weights of 16 bits have x in 16 bits.
        let relative = if dtype == DType::F32 { 2e-6 } else { 1e-3 };
        for (index, (found, expected)) in found.iter().zip(expected.iter().flatten()).enumerate() {
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= relative * most + 1e-5, "{config}: logit {index} is {found}, expected {expected}");
        }
    }
}

#[test]
fn chunks_threads_and_the_cache_change_no_bit() {
    for (config, dtype) in variations() {
        let fixture = Fixture::new(&config, dtype);
        let tokens = tokens(50);
        let run = |threads: usize, chunk: usize| {
            let mut session = Session::new(fixture.open(&strict(threads)).unwrap(), 64, DType::F16).unwrap();
            session.set_chunk(chunk);
            let all = session.feed_all(&tokens[..30]).unwrap();
            let last = session.feed(&tokens[30..]).unwrap();
            all.into_iter().chain(last).map(f32::to_bits).collect::<Vec<_>>()
        };
        let expected = run(1, 1);
        for (threads, chunk) in [(1, 3), (1, 64), (2, 7), (7, 16)] {
            assert!(run(threads, chunk) == expected, "{config}: {threads} threads, chunks of {chunk}");
        }
    }
}

#[test]
fn a_truncated_text_continues_as_if_it_had_never_been_longer() {
    let fixture = Fixture::new(&config("LlamaForCausalLM", ""), DType::F32);
    let mut session = Session::new(fixture.open(&strict(2)).unwrap(), 64, DType::BF16).unwrap();
    let tokens = tokens(20);
    let expected = session.feed(&tokens).unwrap();
    session.feed(&[1, 2, 3]).unwrap();
    session.truncate(11);
    assert_eq!(session.feed(&tokens[11..]).unwrap(), expected);
}

#[test]
fn a_prompt_that_is_broken_off_keeps_the_steps_that_were_made() {
    let fixture = Fixture::new(&config("LlamaForCausalLM", ""), DType::F32);
    let mut session = Session::new(fixture.open(&strict(2)).unwrap(), 64, DType::F32).unwrap();
    session.set_chunk(8);
    let tokens = tokens(20);
    let mut feed = |from: usize, most: usize| {
        let mut seen = Vec::new();
        let logits = session.feed_with(&tokens[from..], &mut |appended| {
            seen.push(appended);
            if seen.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (seen, logits.unwrap(), session.len())
    };
    assert_eq!(feed(0, 2), (vec![8, 16], None, 16));
    let (seen, rest, length) = feed(16, 2);
    assert_eq!((seen, length), (vec![4], 20));
    session.truncate(0);
    assert_eq!(Some(session.feed(&tokens).unwrap()), rest);
}
