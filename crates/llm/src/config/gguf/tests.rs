use elinvar::{Result, kernels::rope::RopeScaling};

use super::super::*;
use crate::gguf::tests::{parse, tiny, writer::Writer};

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
    rejected(&tiny("llama").text("llama.rope.scaling.type", "yarn"), &["'llama.rope.scaling.type' is 'yarn', which is not supported"]);
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
