use elinvar::kernels::rope::RopeScaling;

use super::*;

const LLAMA: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 3,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "hidden_act": "silu",
    "rope_theta": 500000.0, "tie_word_embeddings": true, "bos_token_id": 128000, "eos_token_id": [128001, 128008], "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
}"#;

/// [`LLAMA`] with keys replaced (a `null` value removes one).
fn with(changes: &str) -> Result<Config> {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(LLAMA).unwrap();
    let changes: serde_json::Map<String, serde_json::Value> = serde_json::from_str(changes).unwrap();
    for (key, value) in changes {
        if value == "remove" {
            object.remove(&key);
        } else {
            object.insert(key, value);
        }
    }
    Config::parse(&serde_json::to_string(&object).unwrap())
}

fn rejected(changes: &str) -> String {
    let message = with(changes).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn a_llama_of_transformers_4() {
    let config = with("{}").unwrap();
    assert_eq!((config.head_dim, config.kv_heads, config.bos, &config.eos[..]), (64, 8, Some(128000), &[128001, 128008][..]));
    let scaling = RopeScaling::Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192 };
    assert_eq!(config.rope, Rope::new(500_000.0, 64, scaling));
    assert_eq!((config.tied_embeddings, config.qkv_bias, config.qk_norm, &config.windows[..]), (true, false, false, &[None; 3][..]));
}

#[test]
fn transformers_5_keeps_everything_rotary_in_one_dictionary() {
    let new = r#"{"rope_theta": "remove", "rope_scaling": "remove", "torch_dtype": "remove", "dtype": "bfloat16",
        "rope_parameters": {"rope_theta": 500000.0, "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                            "original_max_position_embeddings": 8192, "rope_type": "llama3"}}"#;
    assert_eq!(with(new).unwrap(), with("{}").unwrap());
}

#[test]
fn linear_scaling_by_its_old_name_and_partial_rotation() {
    let config = with(r#"{"rope_scaling": {"type": "linear", "factor": 4}, "partial_rotary_factor": 0.5}"#).unwrap();
    assert_eq!(config.rope, Rope::new(500_000.0, 32, RopeScaling::Linear { factor: 4.0 }));
    assert_eq!(with(r#"{"rope_scaling": null, "rope_theta": "remove"}"#).unwrap().rope.theta, 10_000.0);
}

#[test]
fn architectures_differ_in_biases_windows_and_defaults() {
    let mistral = with(r#"{"architectures": ["MistralForCausalLM"], "num_key_value_heads": "remove"}"#).unwrap();
    assert_eq!((mistral.kv_heads, &mistral.windows[..]), (8, &[Some(4096); 3][..]));
    assert_eq!(with(r#"{"architectures": ["MistralForCausalLM"], "sliding_window": null}"#).unwrap().windows, [None; 3]);
    let qwen2 = with(r#"{"architectures": ["Qwen2ForCausalLM"]}"#).unwrap();
    assert_eq!((qwen2.qkv_bias, qwen2.output_bias, qwen2.qk_norm, &qwen2.windows[..]), (true, false, false, &[None; 3][..]));
    let qwen3 = with(r#"{"architectures": "remove", "model_type": "qwen3", "attention_bias": true}"#).unwrap();
    assert_eq!((qwen3.qkv_bias, qwen3.output_bias, qwen3.qk_norm, qwen3.head_dim), (true, true, true, 128));
    let llama = with(r#"{"attention_bias": true, "mlp_bias": true, "num_key_value_heads": "remove"}"#).unwrap();
    assert_eq!((llama.qkv_bias, llama.output_bias, llama.mlp_bias, llama.kv_heads), (true, true, true, 32));
}

#[test]
fn qwen_slides_in_the_upper_layers_or_in_those_named() {
    let upper = r#"{"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true, "sliding_window": 32, "max_window_layers": 2}"#;
    assert_eq!(with(upper).unwrap().windows, [None, None, Some(32)]);
    let named = r#"{"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": true, "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention", "full_attention"]}"#;
    assert_eq!(with(named).unwrap().windows, [Some(32), None, None]);
    assert!(rejected(&named.replace("true", "false")).contains("none is enabled"));
}

#[test]
fn what_is_not_supported_is_named_with_what_is() {
    assert!(rejected(r#"{"architectures": ["GemmaForCausalLM"]}"#).contains("'GemmaForCausalLM' is not supported: LlamaForCausalLM, Mistral"));
    assert!(rejected(r#"{"hidden_act": "gelu"}"#).contains("'gelu' is not supported: silu"));
    assert!(rejected(r#"{"rope_scaling": {"rope_type": "dynamic", "factor": 2}}"#).contains("'dynamic' is not supported: default, linear, llama3, yarn"));
    assert!(rejected(r#"{"quantization_config": {"quant_method": "awq"}}"#).contains("quantised"));
}

#[test]
fn contradictions_are_rejected() {
    assert!(rejected(r#"{"hidden_size": "remove"}"#).contains("'hidden_size' is missing"));
    assert!(rejected(r#"{"vocab_size": 0}"#).contains("'vocab_size' is 0"));
    assert!(rejected(r#"{"num_hidden_layers": 5000}"#).contains("at most 4096"));
    assert!(rejected(r#"{"num_key_value_heads": 5}"#).contains("evenly"));
    assert!(rejected(r#"{"hidden_size": 2049}"#).contains("no multiple"));
    assert!(rejected(r#"{"head_dim": 63}"#).contains("even number"));
    assert!(rejected(r#"{"rope_scaling": {"rope_type": "llama3", "factor": 8}}"#).contains("lack 'low_freq_factor'"));
    assert!(rejected(r#"{"rope_theta": -1}"#).contains("positive"));
    assert!(rejected(r#"{"vocab_size": "many"}"#).contains("invalid type"));
    assert!(Config::parse("{").unwrap_err().is_invalid_data());
}
