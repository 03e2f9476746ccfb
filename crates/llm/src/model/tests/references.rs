//! Logits of tiny models of every architecture against those that transformers computed: see `tests/references/make.py`.

use std::{borrow::Cow, collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use elinvar::{DType, Executor, Precision};
use safetensors::tensor::{Dtype, View};
use serde_json::{Map, Value};

use super::super::{Model, Session};
use crate::{
    Config, ModelFiles, Weights,
    gguf::tests::{parse, writer::Writer},
};

const TOKENS: usize = 40;

/// A model, the weights that follow from their names, and its logits.
pub(crate) struct Reference {
    pub(crate) name: String,
    config: Map<String, Value>,
    tensors: BTreeMap<String, (Vec<u64>, Vec<f32>)>,
    logits: Vec<f32>,
}

impl Reference {
    pub(crate) fn all() -> Vec<Self> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/references");
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Self {
        let Value::Object(mut file) = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap() else { panic!("{path:?}") };
        let dims: BTreeMap<String, Vec<u64>> = serde_json::from_value(file.remove("tensors").unwrap()).unwrap();
        let Some(Value::Object(config)) = file.remove("config") else { panic!("{path:?}") };
        let is_gemma = config["model_type"].as_str().unwrap().starts_with("gemma");
        let tensors = dims.into_iter().map(|(name, dims)| (name.clone(), (dims.clone(), values(&name, &dims, is_gemma)))).collect();
        let logits = fs::read(path.with_extension("f32")).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Self { name: path.file_stem().unwrap().to_str().unwrap().to_owned(), config, tensors, logits }
    }

    fn size(&self, key: &str) -> Option<u64> {
        self.config.get(key)?.as_u64()
    }

    /// Compares the logits of these files.
    #[track_caller]
    fn check(&self, form: &str, files: &ModelFiles) {
        let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| (i * i * 7 + i * 3 + 5) % 29).collect();
        let run = |threads: usize, chunk: usize| {
            let executor = Executor::new_cpu(threads.try_into().unwrap()).unwrap().with_precision(Precision::Strict);
            let model = Model::new(&executor, Config::read(files).unwrap(), &Weights::open(files).unwrap()).unwrap();
            let mut session = Session::new(Arc::new(model), TOKENS, DType::F32).unwrap();
            session.set_chunk(chunk);
            let all = session.feed_all(&tokens).unwrap();
            session.truncate(0);
            assert!(all.ends_with(&session.feed(&tokens).unwrap()), "{} as {form}: the last token's logits by themselves", self.name);
            all
        };
        let found = run(1, TOKENS);
        assert_eq!(found.len(), self.logits.len());
        let worst = found.iter().zip(&self.logits).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
        println!("{} as {form}: at most {worst:e} apart", self.name);
        assert!(worst <= 1e-4, "{} as {form}: {worst:e} apart", self.name);
        assert!(run(2, 7) == found, "{} as {form}: two threads and chunks of seven", self.name);
    }

    pub(crate) fn folder(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), serde_json::to_string(&self.config).unwrap()).unwrap();
        let tensors = self.tensors.iter().map(|(name, (dims, values))| (name, stored(dims, values)));
        fs::write(folder.path().join("model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
        folder
    }

    /// The file that llama.cpp's converter would write; `None` where a key is missing for what the model has.
    fn gguf(&self) -> Option<Writer> {
        let architecture = match self.config["model_type"].as_str()? {
            "gemma3_text" => "gemma3",
            other => other,
        };
        let rope = self.config["rope_parameters"].as_object()?;
        let full = rope.get("full_attention").and_then(Value::as_object).unwrap_or(rope);
        let float = |key: &str| full.get(key).and_then(Value::as_f64).map(|value| value as f32);
        let scaling = full["rope_type"].as_str()?;
        let head_dim = self.size("head_dim").unwrap_or_else(|| self.size("hidden_size").unwrap() / self.size("num_attention_heads").unwrap());
        let has_key = match architecture {
            "llama" => scaling != "llama3",
            "qwen3" => !full.contains_key("mscale"),
            "gemma2" | "gemma3" => self.size("query_pre_attn_scalar") == Some(head_dim),
            "phi3" => true,
            _ => false,
        };
        if !has_key {
            return None;
        }
        let key = |name: &str| format!("{architecture}.{name}");
        let sizes = [
            ("block_count", "num_hidden_layers"),
            ("context_length", "max_position_embeddings"),
            ("embedding_length", "hidden_size"),
            ("feed_forward_length", "intermediate_size"),
            ("attention.head_count", "num_attention_heads"),
            ("attention.head_count_kv", "num_key_value_heads"),
            ("attention.sliding_window", "sliding_window"),
            ("vocab_size", "vocab_size"),
        ];
        let writer = Writer::new().text("general.architecture", architecture).u32(&key("attention.key_length"), head_dim as u32);
        let sizes = sizes.iter().filter_map(|(theirs, ours)| Some((theirs, self.size(ours)?)));
        let mut writer = sizes.fold(writer, |writer, (name, size)| writer.u32(&key(name), size as u32));
        let partial = float("partial_rotary_factor").unwrap_or(1.0);
        let floats = [
            ("attention.layer_norm_rms_epsilon", self.config["rms_norm_eps"].as_f64().map(|value| value as f32)),
            ("rope.freq_base", float("rope_theta")),
            ("rope.scaling.factor", float("factor")),
            ("rope.scaling.yarn_beta_fast", float("beta_fast")),
            ("rope.scaling.yarn_beta_slow", float("beta_slow")),
            ("attn_logit_softcapping", self.config.get("attn_logit_softcapping").and_then(Value::as_f64).map(|value| value as f32)),
            ("final_logit_softcapping", self.config.get("final_logit_softcapping").and_then(Value::as_f64).map(|value| value as f32)),
            ("rope.freq_base_swa", rope.get("sliding_attention").and_then(|own| own["rope_theta"].as_f64()).map(|value| value as f32)),
        ];
        for (name, value) in floats {
            writer = value.into_iter().fold(writer, |writer, value| writer.f32(&key(name), value));
        }
        writer = writer.u32(&key("rope.dimension_count"), (head_dim as f32 * partial) as u32);
        if ["linear", "yarn"].contains(&scaling) {
            writer = writer.text(&key("rope.scaling.type"), scaling);
        }
        if let Some(original) = full.get("original_max_position_embeddings").and_then(Value::as_u64) {
            writer = writer.u32(&key("rope.scaling.original_context_length"), original as u32);
            if scaling == "longrope" {
                let ratio = self.size("max_position_embeddings")? as f32 / original as f32;
                writer = writer.f32(&key("rope.scaling.attn_factor"), (1.0 + ratio.ln() / (original as f32).ln()).sqrt());
                for form in ["short", "long"] {
                    let factors: Vec<f32> = serde_json::from_value(full[&format!("{form}_factor")].clone()).unwrap();
                    writer = writer.f32s(&format!("rope_factors_{form}.weight"), &[factors.len() as u64], &factors);
                }
            }
        }
        if let Some(types) = self.config.get("layer_types").and_then(Value::as_array).filter(|_| architecture == "gemma3") {
            let slides: Vec<_> = types.iter().map(|kind| vec![u8::from(kind == "sliding_attention")]).collect();
            writer = writer.array(&key("attention.sliding_window_pattern"), 7, &slides);
        }
        for (name, (dims, values)) in &self.tensors {
            let values = if architecture == "llama" && ["q_proj", "k_proj"].iter().any(|part| name.contains(part)) {
                interleaved(values, dims[1] as usize, head_dim as usize)
            } else if architecture.starts_with("gemma") && name.ends_with("norm.weight") {
                values.iter().map(|value| value + 1.0).collect()
            } else {
                values.clone()
            };
            writer = writer.f32s(&theirs(name, architecture), dims, &values);
        }
        Some(writer)
    }
}

/// As `values` of `make.py`.
pub(crate) fn values(name: &str, dims: &[u64], is_gemma: bool) -> Vec<f32> {
    let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let (factor, offset) = match dims {
        _ if name.contains("norm") => (0.5, if is_gemma { 0.0 } else { 1.0 }),
        [_, columns] => ((3.0 / *columns as f32).sqrt(), 0.0),
        _ => (0.25, 0.0),
    };
    (0..dims.iter().product::<u64>()).map(|_| factor * next() + offset).collect()
}

/// The two halves of each head, row by row in turn.
fn interleaved(values: &[f32], columns: usize, head: usize) -> Vec<f32> {
    let rows: Vec<_> = values.chunks(columns).collect();
    rows.chunks(head).flat_map(|rows| (0..head).flat_map(|row| rows[row / 2 + row % 2 * (head / 2)])).copied().collect()
}

/// The name in GGUF files.
fn theirs(name: &str, architecture: &str) -> String {
    let is_gemma = architecture.starts_with("gemma");
    let parts = [
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", if is_gemma { "post_attention_norm" } else { "ffn_norm" }),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("embed_tokens", "token_embd"),
        ("lm_head", "output"),
    ];
    let name = name.strip_prefix("model.").unwrap_or(name).replace("layers.", "blk.");
    match parts.iter().find(|(ours, _)| name.contains(&format!("{ours}."))) {
        Some((ours, theirs)) => name.replace(ours, theirs),
        None => name.replace("norm.", "output_norm."),
    }
}

/// A tensor to be written.
pub(crate) fn stored<'a>(dims: &[u64], values: &'a [f32]) -> impl View + use<'a> {
    Stored(dims.iter().map(|&n| n as usize).collect(), values)
}

struct Stored<'a>(Vec<usize>, &'a [f32]);

impl View for Stored<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.0
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(self.1))
    }
    fn data_len(&self) -> usize {
        4 * self.1.len()
    }
}

#[test]
fn every_architecture_has_the_logits_of_transformers() {
    let references = Reference::all();
    assert_eq!(references.len(), 14);
    for reference in references {
        let folder = reference.folder();
        reference.check("a folder", &ModelFiles::open(folder.path()).unwrap());
    }
}

#[test]
fn a_gemma_3_with_vision_has_the_logits_of_its_text_part() {
    let mut reference = Reference::all().into_iter().find(|reference| reference.name == "gemma3").unwrap();
    reference.config = Map::from_iter([
        ("architectures".to_owned(), Value::from(vec!["Gemma3ForConditionalGeneration"])),
        ("text_config".to_owned(), Value::Object(reference.config)),
    ]);
    reference.tensors = reference.tensors.into_iter().map(|(name, tensor)| (format!("language_model.{name}"), tensor)).collect();
    reference.tensors.insert("vision_tower.embeddings.weight".to_owned(), (vec![2], vec![1.0, 2.0]));
    reference.check("a part", &ModelFiles::open(reference.folder().path()).unwrap());
}

#[test]
fn gguf_files_have_the_logits_of_transformers() {
    let files: Vec<_> = Reference::all().into_iter().filter_map(|reference| reference.gguf().map(|writer| (reference, writer))).collect();
    assert_eq!(files.len(), 9);
    for (reference, writer) in files {
        reference.check("a GGUF file", &ModelFiles::Gguf(Arc::new(parse(&writer).unwrap())));
    }
}
