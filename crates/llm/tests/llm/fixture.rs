//! Small models with random weights, as folders.

use std::{borrow::Cow, collections::BTreeMap, fs, path::Path, sync::Arc};

use elinvar::{DType, Executor, Precision, Result};
use elinvar_llm::{Config, Model, ModelFiles, Weights};
use half::bf16;
use safetensors::tensor::{Dtype, View};
use tempfile::TempDir;

pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) config: Config,
    pub(crate) tensors: Tensors,
}

/// A configuration of three layers with these keys besides.
pub(crate) fn config(architecture: &str, more: &str) -> String {
    format!(
        r#"{{"architectures": ["{architecture}"], "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5 {more}}}"#
    )
}

impl Fixture {
    pub(crate) fn new(config: &str, dtype: DType) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), config).unwrap();
        let config = Config::parse(config).unwrap();
        let tensors = random_tensors(&config, dtype);
        let fixture = Self { folder, config, tensors };
        fixture.save(dtype);
        fixture
    }

    pub(crate) fn save(&self, dtype: DType) {
        write(&self.folder.path().join("model.safetensors"), &self.tensors, dtype);
    }

    pub(crate) fn open(&self, executor: &Executor) -> Result<Arc<Model>> {
        open(self.folder.path(), executor)
    }
}

pub(crate) fn open(folder: &Path, executor: &Executor) -> Result<Arc<Model>> {
    let files = ModelFiles::open(folder)?;
    Model::new(executor, Config::read(&files)?, &Weights::open(&files)?).map(Arc::new)
}

/// A CPU whose matrix products are strict.
pub(crate) fn strict(threads: usize) -> Executor {
    Executor::new_cpu(threads.try_into().unwrap()).unwrap().with_precision(Precision::Strict)
}

fn random_tensors(config: &Config, dtype: DType) -> Tensors {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut tensor = |name: &str, dims: Vec<usize>| {
        let (centre, spread) = match name {
            _ if name.contains("norm") => (1.0, 0.5),
            _ if name.ends_with("bias") => (0.0, 0.4),
            _ => (0.0, (3.0 / dims[1] as f32).sqrt()),
        };
        let round = |value: f32| if dtype == DType::BF16 { bf16::from_f32(value).to_f32() } else { value };
        (0..dims.iter().product()).map(|_| round(centre + spread * next())).collect::<Vec<_>>()
    };
    shapes(config).into_iter().map(|(name, dims)| (name.clone(), (dims.clone(), tensor(&name, dims)))).collect()
}

/// Names and shapes as transformers has them.
fn shapes(config: &Config) -> Vec<(String, Vec<usize>)> {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let mut all = vec![("model.embed_tokens.weight".to_owned(), vec![config.vocab_size, hidden]), ("model.norm.weight".to_owned(), vec![hidden])];
    if !config.tied_embeddings {
        all.push(("lm_head.weight".to_owned(), vec![config.vocab_size, hidden]));
    }
    for layer in 0..config.layers {
        let mut add = |name: &str, dims: &[usize]| all.push((format!("model.layers.{layer}.{name}"), dims.to_vec()));
        add("input_layernorm.weight", &[hidden]);
        add("post_attention_layernorm.weight", &[hidden]);
        for (name, rows, columns, bias) in [
            ("self_attn.q_proj", queries, hidden, config.qkv_bias),
            ("self_attn.k_proj", keys, hidden, config.qkv_bias),
            ("self_attn.v_proj", keys, hidden, config.qkv_bias),
            ("self_attn.o_proj", hidden, queries, config.output_bias),
            ("mlp.gate_proj", inner, hidden, config.mlp_bias),
            ("mlp.up_proj", inner, hidden, config.mlp_bias),
            ("mlp.down_proj", hidden, inner, config.mlp_bias),
        ] {
            add(&format!("{name}.weight"), &[rows, columns]);
            if bias {
                add(&format!("{name}.bias"), &[rows]);
            }
        }
        if config.qk_norm {
            add("self_attn.q_norm.weight", &[config.head_dim]);
            add("self_attn.k_norm.weight", &[config.head_dim]);
        }
    }
    all
}

struct Stored(Dtype, Vec<usize>, Vec<u8>);

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.0
    }
    fn shape(&self) -> &[usize] {
        &self.1
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.2)
    }
    fn data_len(&self) -> usize {
        self.2.len()
    }
}

fn write(path: &Path, tensors: &Tensors, dtype: DType) {
    let stored = |(dims, values): &(Vec<usize>, Vec<f32>)| match dtype {
        DType::BF16 => Stored(Dtype::BF16, dims.clone(), values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect()),
        _ => Stored(Dtype::F32, dims.clone(), values.iter().flat_map(|v| v.to_le_bytes()).collect()),
    };
    let all: Vec<_> = tensors.iter().map(|(name, tensor)| (name, stored(tensor))).collect();
    fs::write(path, safetensors::serialize(all, None).unwrap()).unwrap();
}
