//! The metadata of a GGUF file: copied from another, or from a folder's `config.json` and `tokenizer.json`.

use elinvar::{
    Error, Result,
    kernels::rope::{RopeScaling, frequencies},
};

use super::{Target, number};
use crate::{
    Architecture, Config, Divisors, ModelFiles,
    gguf::{Gguf, Kind, Value, Writer},
    text::gguf::write::write as write_tokenizer,
};

const FILE_TYPE: &str = "general.file_type";
const VERSION: &str = "general.quantization_version";

/// What a file says about its types; the version of the block formats is 2 since 2023.
fn types(target: Target, writer: &mut Writer) -> Result<()> {
    if let Some(file_type) = target.file_type() {
        number(writer, FILE_TYPE, file_type as usize)?;
    }
    match target {
        Target::Quantized(_) => number(writer, VERSION, 2),
        Target::Stored | Target::Plain(_) => Ok(()),
    }
}

/// All keys but those of the types and of how the file is split and aligned.
pub(super) fn copy(file: &Gguf, target: Target, writer: &mut Writer) -> Result<()> {
    let kept = |key: &str| key != FILE_TYPE && key != VERSION && key != "general.alignment" && !key.starts_with("split.");
    for (key, kind) in file.keys().filter(|(key, _)| kept(key)) {
        if let Some(value) = file.value(key)? {
            writer.set(key, kind, value)?;
        }
    }
    types(target, writer)
}

/// What Llama 3's stretching divides the frequencies by, which files have as a tensor.
pub(super) fn divisors(config: &Config) -> Result<Option<Vec<f32>>> {
    match (&config.rope.divisors, &config.rope.scaling) {
        (Divisors::Fixed(divisors), _) => Ok(Some(divisors.clone())),
        (Divisors::ByContext { .. }, _) => Err(Error::unsupported("frequencies divided by context (LongRoPE) are not converted")),
        (Divisors::None, RopeScaling::Yarn { .. }) => Err(Error::unsupported("frequencies scaled by YaRN are not converted")),
        (Divisors::None, RopeScaling::Llama3 { .. }) => {
            let rates = |scaling: &RopeScaling| frequencies(scaling, config.rope.theta, config.rope.dimensions);
            let (plain, stretched) = (rates(&RopeScaling::None)?, rates(&config.rope.scaling)?);
            Ok(Some(plain.iter().zip(&stretched).map(|(plain, stretched)| plain / stretched).collect()))
        }
        (Divisors::None, RopeScaling::None | RopeScaling::Linear { .. }) => Ok(None),
    }
}

pub(super) fn not_converted(architecture: Architecture) -> Error {
    Error::unsupported(format!("models of {} are not converted yet: llama, mistral, qwen2 and qwen3 are", architecture.name()))
}

/// The keys of a model in a folder.
pub(super) fn write(files: &ModelFiles, config: &Config, target: Target, writer: &mut Writer) -> Result<()> {
    let architecture = match config.architecture {
        Architecture::Llama | Architecture::Mistral => "llama",
        Architecture::Qwen2 => "qwen2",
        Architecture::Qwen3 => "qwen3",
        Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Phi3 => return Err(not_converted(config.architecture)),
    };
    if let Some(window) = config.windows.iter().flatten().find(|window| **window < config.max_context) {
        return Err(Error::unsupported(format!(
            "{}: a sliding window of {window} of {} tokens, which GGUF files of '{architecture}' cannot express",
            files.label("config.json"),
            config.max_context
        )));
    }
    writer.set("general.architecture", Kind::Text, Value::Text(architecture))?;
    let name = std::path::absolute(files.to_string()).ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    writer.set("general.name", Kind::Text, Value::Text(name.as_deref().unwrap_or("model")))?;
    types(target, writer)?;
    let key = |name: &str| format!("{architecture}.{name}");
    for (name, value) in [
        ("vocab_size", config.vocab_size),
        ("context_length", config.max_context),
        ("embedding_length", config.hidden_size),
        ("block_count", config.layers),
        ("feed_forward_length", config.intermediate_size),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_dim),
        ("attention.value_length", config.head_dim),
        ("rope.dimension_count", config.rope.dimensions),
    ] {
        number(writer, &key(name), value)?;
    }
    writer.set(&key("attention.layer_norm_rms_epsilon"), Kind::F32, Value::Float(config.norm_epsilon.into()))?;
    writer.set(&key("rope.freq_base"), Kind::F32, Value::Float(config.rope.theta))?;
    if let RopeScaling::Linear { factor } = config.rope.scaling {
        writer.set(&key("rope.scaling.type"), Kind::Text, Value::Text("linear"))?;
        writer.set(&key("rope.scaling.factor"), Kind::F32, Value::Float(factor.into()))?;
    }
    write_tokenizer(files, config, writer)
}
