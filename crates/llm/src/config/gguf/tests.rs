use elinvar::{Result, kernels::rope::RopeScaling};

use super::super::*;
use crate::gguf::tests::{parse, tiny, with_layers, writer::Writer};

fn read(writer: &Writer) -> Result<Config> {
    super::read(&parse(writer)?)
}

#[track_caller]
fn rejected(writer: &Writer, expected: &[&str]) {
    let message = read(writer).unwrap_err().to_string();
    assert!(message.starts_with("m.gguf: ") && expected.iter().all(|part| message.contains(part)) && !message.contains('\n'), "{message}");
}

#[test]
fn the_metadata_of_a_llama() {
    let config = read(&tiny("llama").f32("llama.rope.freq_base", 5e5).u32("llama.rope.dimension_count", 2)).unwrap();
    let rope = Rope::new(5e5, 2, RopeScaling::None);
    let expected = Config {
        kv_heads: 2,
        intermediate_size: 32,
        head_dim: 4,
        max_context: 64,
        tied_embeddings: true,
        rope,
        ..Config::llama3(2, [8, 32], [4, 2], 16)
    };
    assert_eq!(config, expected);
}

#[test]
fn tensors_decide_on_biases_and_the_output() {
    let tensor = |writer: Writer, name: &str| writer.f32s(name, &[1], &[1.0]);
    let config = read(&tensor(tensor(tiny("qwen2"), "blk.0.attn_q.bias"), "output.weight")).unwrap();
    assert_eq!((config.architecture, config.qkv_bias, config.output_bias, config.tied_embeddings), (Architecture::Qwen2, true, false, false));
    let config = read(&tiny("qwen3")).unwrap();
    assert_eq!((config.architecture, config.qkv_bias, config.qk_norm, config.tied_embeddings), (Architecture::Qwen3, false, true, true));
}

#[test]
fn frequencies_are_stretched_by_factor_or_tensor() {
    let linear = tiny("llama").text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4.0);
    assert_eq!(read(&linear).unwrap().rope.scaling, RopeScaling::Linear { factor: 4.0 });
    let divided = |divisors: &[f32]| tiny("llama").f32s("rope_freqs.weight", &[divisors.len() as u64], divisors);
    assert_eq!(read(&divided(&[1.0, 8.0])).unwrap().rope.divisors, Divisors::Fixed(vec![1.0, 8.0]));
    rejected(&divided(&[1.0, 8.0, 8.0]), &["'rope_freqs.weight' has shape [3]: 2 divisors expected"]);
    rejected(&divided(&[1.0, 0.0]), &["'rope_freqs.weight' has the divisor 0"]);
    rejected(&tiny("llama").text("llama.rope.scaling.type", "longrope"), &["'llama.rope.scaling.type' is 'longrope', which is not supported"]);
    let yarn = || tiny("llama").text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4.0);
    let scaling = RopeScaling::Yarn { factor: 4.0, beta_fast: 32.0, beta_slow: 1.0, original_max_position: 64, truncate: true };
    let rope = read(&yarn().f32("llama.rope.scaling.yarn_ext_factor", 1.0)).unwrap().rope;
    assert_eq!((rope.scaling, rope.attention_factor), (scaling, (0.1 * 4f64.ln() + 1.0) as f32));
    rejected(&yarn().f32("llama.rope.scaling.yarn_ext_factor", 0.5), &["'llama.rope.scaling.yarn_ext_factor' is not 1"]);
    rejected(&yarn().f32("llama.rope.scaling.yarn_log_multiplier", 0.1), &["'llama.rope.scaling.yarn_log_multiplier' may change the result"]);
    rejected(&yarn().f32("llama.rope.scaling.yarn_beta_slow", 40.0), &["YaRN from 40 to 32 turns"]);
    let short = tiny("phi3").f32s("rope_factors_short.weight", &[2], &[1.0, 2.0]);
    rejected(&short, &["it needs 'rope_freqs.weight', or both 'rope_factors_short.weight' and 'rope_factors_long.weight', or none of them"]);
    let long = short.f32s("rope_factors_long.weight", &[2], &[4.0, 8.0]);
    rejected(&long, &["'phi3.rope.scaling.original_context_length' is missing"]);
    let rope = read(&long.u32("phi3.rope.scaling.original_context_length", 16).f32("phi3.rope.scaling.attn_factor", 1.25)).unwrap().rope;
    assert_eq!(rope.divisors, Divisors::ByContext { original: 16, short: vec![1.0, 2.0], long: vec![4.0, 8.0] });
    assert_eq!((rope.scaling, rope.attention_factor), (RopeScaling::None, 1.25));
}

#[test]
fn windows_soft_caps_and_bases_of_gemma() {
    let gemma2 = read(&tiny("gemma2")).unwrap();
    assert_eq!((&gemma2.windows[..], gemma2.attention_softcap, gemma2.final_softcap), (&[Some(4096), None][..], Some(50.0), Some(30.0)));
    assert_eq!((gemma2.attention_scale, gemma2.embedding_scale, gemma2.norms_less_one), (Some(0.5), Some(8f32.sqrt()), false));
    assert_eq!(read(&tiny("gemma2").f32("gemma2.attn_logit_softcapping", 20.0)).unwrap().attention_softcap, Some(20.0));
    let gemma3 = || tiny("gemma3").f32("gemma3.rope.freq_base", 1e6);
    // The models of 27 billion parameters: 8 elements for 4 heads, not the 4 of a head.
    let largest = |architecture, layers| read(&with_layers(architecture, layers).f32(&format!("{architecture}.rope.freq_base"), 1e6)).unwrap();
    let root = Some(2f64.powf(-0.5) as f32);
    assert_eq!([largest("gemma2", 46).attention_scale, largest("gemma3", 62).attention_scale], [root; 2]);
    let plain = read(&gemma3()).unwrap();
    assert_eq!((plain.rope.theta, plain.window_rope.unwrap().theta, &plain.windows[..]), (1e6, 1e4, &[None; 2][..]));
    let windowed = || gemma3().u32("gemma3.attention.sliding_window", 8).f32("gemma3.rope.freq_base_swa", 5e4);
    let config = read(&windowed()).unwrap();
    assert_eq!((config.window_rope.unwrap().theta, &config.windows[..]), (5e4, &[Some(8); 2][..]));
    let pattern =
        |slides: &[u8]| windowed().array("gemma3.attention.sliding_window_pattern", 7, &slides.iter().map(|&s| vec![s]).collect::<Vec<_>>());
    assert_eq!(read(&pattern(&[0, 1])).unwrap().windows, [None, Some(8)]);
    rejected(&pattern(&[0, 1, 1]), &["'gemma3.attention.sliding_window_pattern' has 3 entries for 2 layers"]);
    rejected(&tiny("gemma3"), &["'gemma3.rope.freq_base' is missing"]);
    rejected(&gemma3().f32("gemma3.attn_logit_softcapping", 50.0), &["'gemma3.attn_logit_softcapping' may change the result"]);
    assert_eq!(read(&tiny("phi3").u32("phi3.attention.sliding_window", 7)).unwrap().windows, [Some(7); 2]);
}

#[test]
fn tokens_that_end_a_text_are_found_by_key_and_by_text() {
    let texts = ["a", "<|im_end|>", "</s>", "<|eot_id|>"];
    let writer = tiny("llama").texts("tokenizer.ggml.tokens", &texts);
    let config = read(&writer.clone().u32("tokenizer.ggml.eos_token_id", 2).u32("tokenizer.ggml.bos_token_id", 0)).unwrap();
    assert_eq!((config.vocab_size, config.bos, config.eos), (4, Some(0), vec![1, 2, 3]));
    rejected(&writer.u32("tokenizer.ggml.eos_token_id", 4), &["'tokenizer.ggml.eos_token_id' is 4, outside the vocabulary of 4 tokens"]);
}

#[test]
fn what_is_not_understood_is_rejected_by_name() {
    rejected(&Writer::new(), &["'general.architecture' is missing"]);
    rejected(&tiny("gemma4"), &["architecture 'gemma4' is not supported: llama, qwen2, qwen3, gemma2, gemma3, phi3 are"]);
    rejected(&tiny("llama").f32("llama.attention.scale", 0.5), &["'llama.attention.scale' may change the result"]);
    rejected(&tiny("llama").u32("llama.expert_count", 8), &["'llama.expert_count' asks for a mixture of experts"]);
    rejected(&tiny("llama").u32("llama.attention.sliding_window", 32), &["'llama.attention.sliding_window' is shorter than the context"]);
    assert!(read(&tiny("llama").u32("llama.attention.sliding_window", 0).u32("llama.expert_count", 0)).is_ok());
    rejected(&tiny("llama").u32("llama.attention.value_length", 2), &["'llama.attention.value_length' differs from the keys' length"]);
    rejected(&tiny("llama").u32("llama.rope.dimension_count", 3), &["'llama.rope.dimension_count' is 3 of heads of 4"]);
    let layers = |sizes: [u32; 2]| sizes.map(|n| n.to_le_bytes().to_vec());
    let of = |sizes| Writer::new().array("qwen2.feed_forward_length", 4, &layers(sizes));
    let without = |writer: Writer| writer.text("general.architecture", "qwen2").u32("qwen2.context_length", 8).u32("qwen2.embedding_length", 8);
    let whole = |sizes| without(of(sizes)).u32("qwen2.block_count", 2).u32("qwen2.attention.head_count", 2).u32("qwen2.vocab_size", 2);
    let whole = |sizes| whole(sizes).f32("qwen2.attention.layer_norm_rms_epsilon", 1e-6);
    assert_eq!(read(&whole([32, 32])).unwrap().intermediate_size, 32);
    rejected(&whole([32, 64]), &["'qwen2.feed_forward_length' differs by layer"]);
}
