//! Which type each tensor gets.

use std::{fmt, str::FromStr};

use elinvar::{DType, Error, Result, kernels::quantized::Format};

use crate::gguf::TensorType;

/// The types of the tensors of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Plain tensors stay as they are, vectors become f32.
    Stored,
    /// Matrices become f32, f16 or bf16, vectors f32.
    Plain(DType),
    /// Matrices become blocks.
    Quantized(Mixture),
}

/// Formats of matrices, as llama.cpp mixes them: the output has Q6_K, widths that are no multiple of a block fall back, vectors are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    name: &'static str,
    /// The value of `general.file_type`.
    file_type: u32,
    base: Format,
    /// Whether values and down-projections get more bits, those of Q3_K_M outputs of attention too.
    medium: bool,
}

const fn uniform(name: &'static str, file_type: u32, base: Format) -> Mixture {
    Mixture { name, file_type, base, medium: false }
}

const fn medium(name: &'static str, file_type: u32, base: Format) -> Mixture {
    Mixture { name, file_type, base, medium: true }
}

const MIXTURES: [Mixture; 16] = [
    uniform("q4_0", 2, Format::Q4_0),
    uniform("q4_1", 3, Format::Q4_1),
    uniform("q5_0", 8, Format::Q5_0),
    uniform("q5_1", 9, Format::Q5_1),
    uniform("q8_0", 7, Format::Q8_0),
    uniform("q2_k", 10, Format::Q2K),
    uniform("q3_k", 11, Format::Q3K),
    medium("q3_k_m", 12, Format::Q3K),
    uniform("q4_k", 14, Format::Q4K),
    medium("q4_k_m", 15, Format::Q4K),
    uniform("q5_k", 16, Format::Q5K),
    medium("q5_k_m", 17, Format::Q5K),
    uniform("q6_k", 18, Format::Q6K),
    uniform("iq4_nl", 25, Format::Iq4Nl),
    uniform("iq4_xs", 30, Format::Iq4Xs),
    uniform("mxfp4", 38, Format::Mxfp4),
];

/// Small matrices that decide on much: routers of experts, embeddings of positions and of kinds of tokens.
const KEPT: [&str; 3] = ["ffn_gate_inp", "position_embd", "token_types"];

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.to_lowercase();
        match name.as_str() {
            "f32" => return Ok(Self::Plain(DType::F32)),
            "f16" => return Ok(Self::Plain(DType::F16)),
            "bf16" => return Ok(Self::Plain(DType::BF16)),
            _ => {}
        }
        MIXTURES.iter().find(|mixture| mixture.name == name).map(|mixture| Self::Quantized(*mixture)).ok_or_else(|| {
            let names: Vec<_> = MIXTURES.iter().map(|mixture| mixture.name).collect();
            Error::invalid_argument(format!("format '{text}' is unknown: expected f32, f16, bf16, {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored => f.write_str("stored"),
            Self::Plain(dtype) => dtype.fmt(f),
            Self::Quantized(mixture) => f.write_str(mixture.name),
        }
    }
}

/// The layer that a tensor is of.
pub(super) fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

impl Target {
    /// The value of `general.file_type`, if there is one for these types.
    pub(super) fn file_type(self) -> Option<u32> {
        match self {
            Self::Plain(DType::F32) => Some(0),
            Self::Plain(DType::F16) => Some(1),
            Self::Plain(DType::BF16) => Some(32),
            Self::Quantized(mixture) => Some(mixture.file_type),
            Self::Stored | Self::Plain(_) => None,
        }
    }

    /// What matrices in MLX's groups are decoded to before they get their types.
    pub(super) fn of_decoded(self) -> DType {
        match self {
            Self::Stored => DType::BF16,
            Self::Plain(dtype) => dtype,
            Self::Quantized(_) => DType::F32,
        }
    }

    pub(super) fn choose(self, name: &str, dims: &[usize], source: &'static TensorType, tied: bool, layers: usize) -> Result<&'static TensorType> {
        // Norms, biases and divisors of frequencies.
        if dims.len() < 2 {
            return if source.is_supported() && source.weights == 1 { TensorType::of_dtype(DType::F32) } else { Ok(source) };
        }
        let columns = dims.last().copied().unwrap_or(1);
        match self {
            Self::Stored => Ok(source),
            Self::Plain(dtype) => TensorType::of_dtype(dtype),
            Self::Quantized(_) if !name.ends_with("weight") || KEPT.contains(&name.rsplit('.').nth(1).unwrap_or_default()) => Ok(source),
            Self::Quantized(mixture) => {
                let mut chosen = Some(mixture.wanted(name, tied, layers));
                while let Some(format) = chosen {
                    if columns.is_multiple_of(format.weights()) {
                        return TensorType::of_format(format);
                    }
                    chosen = fallback(format);
                }
                TensorType::of_dtype(DType::F16)
            }
        }
    }
}

impl Mixture {
    fn wanted(self, name: &str, tied: bool, layers: usize) -> Format {
        if name == "output.weight" || (tied && name == "token_embd.weight") {
            return if self.base == Format::Q8_0 { Format::Q8_0 } else { Format::Q6K };
        }
        let (Some(layer), true) = (layer(name), self.medium) else { return self.base };
        let part = name.rsplit('.').nth(1).unwrap_or_default();
        // The first and the last eighth of the layers, and every third between.
        let eighth = layers / 8;
        let more = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
        let first = |count: usize| if layer < count { Format::Q5K } else { Format::Q4K };
        match (part, self.base == Format::Q3K) {
            ("attn_v", true) => first(2),
            ("ffn_down", true) => first(layers / 16),
            ("attn_output", true) => Format::Q4K,
            ("attn_v" | "ffn_down", false) if more => Format::Q6K,
            (_, true | false) => self.base,
        }
    }
}

/// What rows that are no multiple of 256 values get instead.
fn fallback(format: Format) -> Option<Format> {
    match format {
        Format::Q2K | Format::Q3K | Format::Iq4Xs => Some(Format::Iq4Nl),
        Format::Q4K => Some(Format::Q5_0),
        Format::Q5K => Some(Format::Q5_1),
        Format::Q6K => Some(Format::Q8_0),
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 | Format::Iq4Nl | Format::Mxfp4 => None,
        Format::Affine4Bf16 | Format::Affine8F16 | Format::Affine8Bf16 => None,
    }
}
