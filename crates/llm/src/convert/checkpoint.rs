//! A folder as Hugging Face lays it out.

use std::path::Path;

use elinvar::{DType, Error, ErrorKind, HostMemory, Result, kernels::rope::RopeScaling};
use serde_json::{Map, Value as Json, json};

use super::{metadata, texts::Texts};
use crate::{
    Architecture, Config, Divisors, ModelFiles, Rope, Weights,
    config::{Quantization, gguf::DIVISORS},
    weights::{WeightType, gguf::translate},
    whole::{write_file, write_folder},
};

/// Writes a new folder of safetensors with `config.json` and `tokenizer.json`, whole or not at all, of a GGUF file or of a folder that MLX has quantised.
/// Quantised matrices are decoded to `dtype`, vectors of GGUF files to f32; others stay as they are. Reports the bytes of tensors written, and of all, to
/// `progress`.
///
/// # Errors
/// A model or a tokenizer that is not supported or that these files cannot express, a folder that exists, or the system's: a full disk, no permission.
pub fn write_checkpoint(files: &ModelFiles, dtype: DType, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let (texts, weights) = (Texts::of(files, dtype, None)?, Weights::open_decoded(files, dtype)?);
    let tensors = names(files, &weights)?.iter().map(|name| StoredTensor::of(&weights, name)).collect::<Result<Vec<_>>>()?;
    write_folder(path, |folder| {
        texts.write(folder, path)?;
        write_tensors(&folder.join("model.safetensors"), &tensors, &mut |tensor| Ok(weights.get(&tensor.name, &tensor.dims)?.memory), progress)
    })
}

/// Whether these are files of a folder whose matrices MLX has quantised.
///
/// # Errors
/// Its `config.json` is damaged, or quantised in a way that is not supported.
pub fn is_grouped(files: &ModelFiles) -> Result<bool> {
    Ok(Quantization::read(files)?.is_some())
}

/// The tensors of a model that a folder of it needs, in the order of the file.
pub(super) fn names(files: &ModelFiles, weights: &Weights) -> Result<Vec<String>> {
    let config = Config::read(files)?;
    Ok(match files {
        ModelFiles::Gguf(file) => {
            file.tensors().filter(|(name, _)| *name != DIVISORS).map(|(name, _)| translate(name, config.architecture)).collect()
        }
        ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => {
            weights.names().filter(|name| !is_redundant(name, config.tied_embeddings)).map(str::to_owned).collect()
        }
    })
}

/// Rotary frequencies follow from the configuration, and a tied output projection may be stored twice.
pub(super) fn is_redundant(name: &str, tied: bool) -> bool {
    name.ends_with("rotary_emb.inv_freq") || (tied && name == "lm_head.weight")
}

/// A tensor of a file to be written.
pub(crate) struct StoredTensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
}

impl StoredTensor {
    /// Bytes of its elements.
    pub(crate) fn bytes(&self) -> u64 {
        self.dims.iter().product::<usize>() as u64 * self.dtype.size() as u64
    }

    /// As weights have it.
    ///
    /// # Errors
    /// It is not there, or not of floating-point numbers.
    pub(crate) fn of(weights: &Weights, name: &str) -> Result<Self> {
        match weights.info(name) {
            Some((dims, Some(WeightType::Plain(dtype)))) => Ok(Self { name: name.to_owned(), dtype, dims }),
            Some((_, Some(WeightType::Block(format)))) => {
                Err(Error::unsupported(format!("tensor '{name}' is in {format}: f32, f16 and bf16 are supported")))
            }
            other => {
                let (dims, _) = other.unwrap_or_default();
                Err(weights.get(name, &dims).err().unwrap_or_else(|| Error::internal(format!("tensor '{name}' is there and not there"))))
            }
        }
    }
}

/// Writes a safetensors file of tensors whose elements `get` gives, and reports the bytes written, and of all, to `progress`.
///
/// # Errors
/// Those of `get`; the system's.
pub(crate) fn write_tensors(
    path: &Path,
    tensors: &[StoredTensor],
    get: &mut dyn FnMut(&StoredTensor) -> Result<HostMemory>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let (mut header, mut end) = (Map::new(), 0u64);
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    for tensor in tensors {
        let (start, dtype) = (end, tensor.dtype.name().to_uppercase());
        end += tensor.bytes();
        header.insert(tensor.name.clone(), json!({"dtype": dtype, "shape": tensor.dims, "data_offsets": [start, end]}));
    }
    let mut header = Json::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    write_file(path, |out| {
        let mut put =
            |bytes: &[u8]| out.write_all(bytes).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e));
        put(&(header.len() as u64).to_le_bytes())?;
        put(&header)?;
        let mut done = 0;
        for tensor in tensors {
            let memory = get(tensor)?;
            put(memory.bytes())?;
            done += memory.bytes().len() as u64;
            progress(done, end);
        }
        Ok(())
    })
}

/// Llama 3's stretching of frequencies, as its models have it: factor 8 in 3.1, 32 in 3.2.
fn stretched(rope: &Rope, divisors: &[f32], config: &Config) -> Result<RopeScaling> {
    let known = [8.0, 32.0].map(|factor| RopeScaling::Llama3 { factor, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192 });
    for scaling in known {
        let candidate = Config { rope: Rope { scaling, divisors: Divisors::None, ..rope.clone() }, ..config.clone() };
        let expected = metadata::divisors(&candidate)?.unwrap_or_default();
        if expected.iter().zip(divisors).all(|(a, b)| (a - b).abs() <= 1e-4 * b) {
            return Ok(scaling);
        }
    }
    Err(Error::unsupported(format!("tensor '{DIVISORS}' is no stretching of frequencies that config.json can name")))
}

/// What `config.json` calls a type of floats.
pub(super) fn dtype_name(dtype: DType) -> &'static str {
    if dtype == DType::F16 {
        "float16"
    } else if dtype == DType::BF16 {
        "bfloat16"
    } else {
        "float32"
    }
}

/// What `config.json` has, which reads as `config`.
pub(super) fn config_json(config: &Config, dtype: DType) -> Result<Map<String, Json>> {
    let mut config = config.clone();
    match std::mem::replace(&mut config.rope.divisors, Divisors::None) {
        Divisors::None => {}
        Divisors::Fixed(divisors) => config.rope.scaling = stretched(&config.rope, &divisors, &config)?,
        Divisors::ByContext { .. } => return Err(metadata::not_converted(config.architecture)),
    }
    let scaling = match &config.rope.scaling {
        RopeScaling::None => Json::Null,
        RopeScaling::Yarn { .. } => return Err(Error::unsupported("frequencies scaled by YaRN are not converted")),
        RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position } => json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low_freq_factor,
            "high_freq_factor": high_freq_factor,
            "original_max_position_embeddings": original_max_position,
        }),
    };
    let kind = match config.architecture {
        Architecture::Llama => "llama",
        Architecture::Mistral => "mistral",
        Architecture::Qwen2 => "qwen2",
        Architecture::Qwen3 => "qwen3",
        Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Phi3 => return Err(metadata::not_converted(config.architecture)),
    };
    // The shortest decimal that reads as this f32.
    let decimal = |x: f32| x.to_string().parse::<f64>().unwrap_or(x.into());
    let described = json!({
        "architectures": [config.architecture.name()],
        "model_type": kind,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_context,
        "hidden_act": "silu",
        "rms_norm_eps": decimal(config.norm_epsilon),
        "rope_theta": config.rope.theta,
        "rope_scaling": scaling,
        "partial_rotary_factor": config.rope.dimensions as f64 / config.head_dim as f64,
        "attention_bias": config.output_bias || (config.qkv_bias && config.architecture != Architecture::Qwen2),
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": config.tied_embeddings,
        "bos_token_id": config.bos,
        "eos_token_id": config.eos,
        "torch_dtype": dtype_name(dtype),
    });
    match (Config::parse(&described.to_string())? == config, described) {
        (true, Json::Object(described)) => Ok(described),
        (_, _) => Err(Error::unsupported("config.json cannot express this combination of biases and rotary parameters")),
    }
}
