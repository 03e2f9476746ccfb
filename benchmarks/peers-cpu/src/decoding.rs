//! Prefill and decoding of a Llama: the same random weights, read from the same file by both sides.

use std::{
    borrow::Cow,
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use candle_core::{DType as CandleType, Device, Tensor as CandleTensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config as CandleConfig, Llama, LlamaConfig};
use elinvar::DType;
use elinvar_llm::{Config, Model, ModelFiles, Session, Weights};
use half::bf16;
use rayon::prelude::*;
use safetensors::{Dtype, View};

use crate::harness::{Bench, Result, Side, deviation, verify};

const LAYERS: usize = 16;
const HIDDEN: usize = 2048;
const INNER: usize = 8192;
const KEYS: usize = 512;
const VOCABULARY: usize = 128_256;

/// The shape of Llama 3.2 1B.
const CONFIG: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 128256,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "max_position_embeddings": 8192, "tie_word_embeddings": true, "hidden_act": "silu"
}"#;

/// Prefill of a prompt and decoding from an empty context: Elinvar with bf16 weights, candle with its weights in bf16 and in f32.
pub fn decoding(bench: &Bench) -> Result<()> {
    let (prompt, tokens) = (bench.options.prompt, bench.options.tokens);
    let lines = [(format!("llama-1b bf16 prefill {prompt}"), true), (format!("llama-1b bf16 decode {tokens}"), false)];
    let lines: Vec<_> = lines.into_iter().filter(|(title, _)| bench.wants(title)).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let folder = Folder::write()?;
    let files = ModelFiles::open(&folder.0)?;
    let model = Arc::new(Model::new(&bench.executor, Config::read(&files)?, &Weights::open(&files)?)?);
    let mut session = Session::new(model, prompt.max(tokens), DType::F16)?;
    let peers = [Peer::open(&folder.0, CandleType::BF16)?, Peer::open(&folder.0, CandleType::F32)?];

    let ids: Vec<u32> = (0..prompt as u32).map(|i| i * 31 % 1000).collect();
    let (ours, [half, full]) =
        (session.feed(&ids[..4.min(prompt)])?, [peers[0].logits(&ids[..4.min(prompt)])?, peers[1].logits(&ids[..4.min(prompt)])?]);
    // candle computes on bf16 activations where its weights are bf16.
    println!("llama-1b: candle's bf16 logits differ by {:.1e} of the largest", deviation(&half, ours.iter().map(|&v| v.into())));
    verify("llama-1b logits", &ours, &full, 1e-3)?;

    for (title, prefill) in lines {
        let amount = if prefill { prompt } else { tokens } as f64;
        let mut sides = vec![Side::new("elinvar", amount, || {
            session.truncate(0);
            if prefill {
                session.feed(&ids).map(drop)?
            } else {
                decode(tokens, |_, id| Ok(session.feed(&[id])?))?
            }
            Ok(())
        })];
        for (peer, name) in peers.iter().zip(["candle bf16", "candle f32"]) {
            sides.push(Side::new(name, amount, || {
                if prefill {
                    return peer.logits(&ids).map(drop);
                }
                let mut cache = peer.cache()?;
                decode(tokens, |position, id| peer.step(&[id], position, &mut cache))
            }));
        }
        bench.compare(&title, "tokens/s", sides)?;
        // One read of the weights is one token.
        let weights = fs::metadata(folder.0.join(WEIGHTS))?.len();
        bench.compare("reading those weights", "GB/s", vec![bench.read(weights as usize)?])?;
    }
    Ok(())
}

/// Each token is chosen greedily, as in generation.
fn decode(tokens: usize, mut step: impl FnMut(usize, u32) -> Result<Vec<f32>>) -> Result<()> {
    let mut id = 1;
    for position in 0..tokens {
        let logits = step(position, id)?;
        id = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i as u32);
    }
    Ok(())
}

/// candle's side.
struct Peer {
    config: CandleConfig,
    dtype: CandleType,
    model: Llama,
}

impl Peer {
    fn open(folder: &Path, dtype: CandleType) -> Result<Self> {
        let config = serde_json::from_str::<LlamaConfig>(CONFIG)?.into_config(false);
        // SAFETY: nobody changes the file meanwhile.
        let weights = unsafe { VarBuilder::from_mmaped_safetensors(&[folder.join(WEIGHTS)], dtype, &Device::Cpu)? };
        Ok(Self { model: Llama::load(weights, &config)?, config, dtype })
    }

    fn cache(&self) -> Result<Cache> {
        Ok(Cache::new(true, self.dtype, &self.config, &Device::Cpu)?)
    }

    fn step(&self, ids: &[u32], position: usize, cache: &mut Cache) -> Result<Vec<f32>> {
        let ids = CandleTensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        Ok(self.model.forward(&ids, position, cache)?.flatten_all()?.to_vec1()?)
    }

    fn logits(&self, ids: &[u32]) -> Result<Vec<f32>> {
        self.step(ids, 0, &mut self.cache()?)
    }
}

const WEIGHTS: &str = "model.safetensors";

/// A temporary folder in the layout of Hugging Face.
struct Folder(PathBuf);

impl Folder {
    fn write() -> Result<Self> {
        let folder = Self(env::temp_dir().join(format!("peers-cpu-{}", process::id())));
        fs::create_dir_all(&folder.0)?;
        fs::write(folder.0.join("config.json"), CONFIG)?;
        let path = folder.0.join(WEIGHTS);
        safetensors::serialize_to_file(tensors(), None, &path)?;
        // Written back now, not while the sides are timed.
        fs::File::open(path)?.sync_all()?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tensors() -> Vec<(String, Random)> {
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, HIDDEN]), ("model.norm.weight".to_owned(), vec![HIDDEN])];
    let layer: [(&str, &[usize]); 9] = [
        ("input_layernorm", &[HIDDEN]),
        ("post_attention_layernorm", &[HIDDEN]),
        ("self_attn.q_proj", &[HIDDEN, HIDDEN]),
        ("self_attn.k_proj", &[KEYS, HIDDEN]),
        ("self_attn.v_proj", &[KEYS, HIDDEN]),
        ("self_attn.o_proj", &[HIDDEN, HIDDEN]),
        ("mlp.gate_proj", &[INNER, HIDDEN]),
        ("mlp.up_proj", &[INNER, HIDDEN]),
        ("mlp.down_proj", &[HIDDEN, INNER]),
    ];
    for index in 0..LAYERS {
        tensors.extend(layer.iter().map(|(part, dims)| (format!("model.layers.{index}.{part}.weight"), dims.to_vec())));
    }
    tensors.into_iter().enumerate().map(|(seed, (name, dims))| (name, Random { dims, seed })).collect()
}

/// bf16 weights made when they are written: ones, or uniform with the variance `1 / columns`.
struct Random {
    dims: Vec<usize>,
    seed: usize,
}

impl View for Random {
    fn dtype(&self) -> Dtype {
        Dtype::BF16
    }

    fn shape(&self) -> &[usize] {
        &self.dims
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let scale = self.dims.get(1).map_or(0.0, |&columns| (3.0 / columns as f32).sqrt());
        let value = |i: usize| {
            // The finaliser of SplitMix64.
            let mut z = ((self.seed << 40 | i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z ^= z >> 27;
            if scale == 0.0 { 1.0 } else { ((z >> 40) as f32 * 2f32.powi(-23) - 1.0) * scale }
        };
        let mut bytes = vec![0; self.data_len()];
        bytes.par_chunks_exact_mut(2).enumerate().for_each(|(i, half)| half.copy_from_slice(&bf16::from_f32(value(i)).to_le_bytes()));
        bytes.into()
    }

    fn data_len(&self) -> usize {
        self.dims.iter().product::<usize>() * 2
    }
}
