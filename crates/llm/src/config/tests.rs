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
    assert!(
        rejected(r#"{"rope_scaling": {"rope_type": "dynamic", "factor": 2}}"#).contains("'dynamic' is not supported: default, linear, llama3, yarn")
    );
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

const GEMMA3: &str = r#"{
    "architectures": ["Gemma3ForCausalLM"], "vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 7, "head_dim": 256,
    "num_attention_heads": 4, "num_key_value_heads": 1, "max_position_embeddings": 32768, "sliding_window": 512, "query_pre_attn_scalar": 168,
    "rope_theta": 1000000.0, "rope_local_base_freq": 20000, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rms_norm_eps": 1e-06,
    "hidden_activation": "gelu_pytorch_tanh", "bos_token_id": 2, "eos_token_id": 1, "attn_logit_softcapping": null, "final_logit_softcapping": null
}"#;

/// [`GEMMA3`] with these keys, of which the last of a name counts.
fn gemma3(keys: &str) -> Result<Config> {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(GEMMA3).unwrap();
    object.extend(serde_json::from_str::<serde_json::Map<_, _>>(keys).unwrap());
    Config::parse(&serde_json::to_string(&object).unwrap())
}

#[test]
fn a_gemma_3_in_the_words_of_transformers_4_and_5() {
    let old = gemma3("{}").unwrap();
    assert_eq!(old.windows, [Some(512), Some(512), Some(512), Some(512), Some(512), None, Some(512)]);
    assert_eq!(old.rope, Rope::new(1e6, 256, RopeScaling::Linear { factor: 8.0 }));
    assert_eq!(old.window_rope, Some(Rope::new(20_000.0, 256, RopeScaling::None)));
    assert_eq!((old.embedding_scale, old.attention_scale), (Some(640f32.sqrt()), Some(168f64.powf(-0.5) as f32)));
    assert!(old.tied_embeddings && old.qk_norm && old.post_norms && old.norms_less_one && old.activation == Activation::GeluTanh);
    let types = format!(r#"["{0}", "{0}", "{0}", "{0}", "{0}", "full_attention", "{0}"]"#, "sliding_attention");
    let rope = r#"{"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}, "sliding_attention": {"rope_theta": 20000.0}}"#;
    let without = r#""rope_theta": null, "rope_local_base_freq": null, "rope_scaling": null"#;
    let new = format!(r#"{{"layer_types": {types}, "rope_parameters": {rope}, {without}}}"#);
    assert_eq!(gemma3(&new).unwrap(), old);
    assert_eq!(gemma3(r#"{"sliding_window_pattern": 2}"#).unwrap().windows[..3], [Some(512), None, Some(512)]);
}

#[test]
fn the_text_part_of_a_gemma_3_with_vision() {
    let text = GEMMA3.replace(r#""architectures": ["Gemma3ForCausalLM"],"#, "");
    let whole =
        format!(r#"{{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {text}, "vision_config": {{}}, "eos_token_id": [1, 106]}}"#);
    let expected = Config { tensor_prefix: "language_model.", eos: vec![1, 106], ..gemma3("{}").unwrap() };
    assert_eq!(Config::parse(&whole).unwrap(), expected);
    let short = r#"{"architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}}"#;
    let config = Config::parse(short).unwrap();
    assert_eq!((config.vocab_size, config.heads, config.kv_heads, config.head_dim, config.max_context), (262_208, 8, 4, 256, 131_072));
}

#[test]
fn gemma_2_has_soft_caps_unless_they_are_null() {
    let gemma2 = |keys: &str| with(&format!(r#"{{"architectures": ["Gemma2ForCausalLM"], "tie_word_embeddings": "remove" {keys}}}"#)).unwrap();
    let config = gemma2("");
    assert_eq!((config.attention_softcap, config.final_softcap, config.attention_scale), (Some(50.0), Some(30.0), Some(1.0 / 16.0)));
    assert_eq!((&config.windows[..], config.tied_embeddings, config.window_rope), (&[Some(4096), None, Some(4096)][..], true, None));
    let plain = gemma2(r#", "attn_logit_softcapping": null, "final_logit_softcapping": null"#);
    assert_eq!((plain.attention_softcap, plain.final_softcap), (None, None));
}

#[test]
fn longrope_and_yarn_sharpen_attention() {
    let longrope = |more: &str| {
        let factors = |value: f32| serde_json::to_string(&[value; 32]).unwrap();
        let dictionary = format!(r#"{{"type": "su", "short_factor": {}, "long_factor": {} {more}}}"#, factors(1.5), factors(4.0));
        let keys = r#""architectures": ["Phi3ForCausalLM"], "rope_theta": "remove", "original_max_position_embeddings": 4096"#;
        with(&format!(r#"{{{keys}, "rope_scaling": {dictionary}}}"#)).map(|config| config.rope)
    };
    let rope = longrope("").unwrap();
    assert_eq!(rope.divisors, Divisors::ByContext { original: 4096, short: vec![1.5; 32], long: vec![4.0; 32] });
    assert_eq!(rope.attention_factor, (1.0 + 32f64.ln() / 4096f64.ln()).sqrt() as f32);
    assert_eq!(longrope(r#", "attention_factor": 1.25"#).unwrap().attention_factor, 1.25);
    assert!(longrope(r#", "long_mscale": 1.25"#).unwrap_err().to_string().contains("'long_mscale', which may change the result"));
    let rate = |context| rope.frequencies(context).unwrap()[0];
    assert_eq!((rate(4096), rate(4097)), (1.0 / 1.5, 1.0 / 4.0));
    let yarn = with(r#"{"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}"#).unwrap().rope;
    assert_eq!(yarn.attention_factor, (0.1 * 4f64.ln() + 1.0) as f32);
    let named = r#"{"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "original_max_position_embeddings": 64}}"#;
    assert!(rejected(named).contains("'short_factor' has 1 entries for 32 rotary frequencies"));
}

#[test]
fn what_gemma_asks_for_in_vain_is_named() {
    let rejected = |keys: &str| gemma3(keys).unwrap_err().to_string();
    assert!(rejected(r#"{"use_bidirectional_attention": true}"#).contains("'use_bidirectional_attention' is set"));
    assert!(rejected(r#"{"attn_logit_softcapping": 50.0}"#).contains("'attn_logit_softcapping' is not supported in Gemma 3"));
    assert!(rejected(r#"{"hidden_activation": "gelu"}"#).contains("'gelu' is not supported: gelu_pytorch_tanh"));
    assert!(rejected(r#"{"query_pre_attn_scalar": 0}"#).contains("'query_pre_attn_scalar' is 0"));
    assert!(rejected(r#"{"rope_parameters": {"rope_type": "default"}}"#).contains("one dictionary for each layer type"));
}
