//! Weights of GGUF files: other names, block formats, and in Llama's models rows of queries and keys in another order.

mod encoder;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use elinvar::{DType, Error, HostMemory, Result};
use rayon::prelude::*;

use super::{
    Archive, Weight, WeightType,
    words::{Words, aligned, write},
};
use crate::{
    Architecture, Config,
    config::{
        EncoderConfig,
        gguf::{is_configuration, read},
    },
    gguf::{Gguf, TensorInfo},
};

#[cfg(test)]
pub(crate) use encoder::translate_back as translate_encoder_back;

pub(super) struct Quantised {
    file: Arc<Gguf>,
    /// What blocks are decoded to, unless they stay.
    decoded: Option<DType>,
    /// The file's name of each tensor.
    names: BTreeMap<String, String>,
    order: Order,
}

/// The order of rows in files. Those of Llama's models interleave the two halves of what rotates of queries and keys.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    /// Elements of a head, and how many of them rotate as adjacent pairs.
    pairs: Option<(usize, usize)>,
}

impl Order {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            pairs: match config.architecture {
                Architecture::Llama | Architecture::Mistral => Some((config.head_dim, config.rope.dimensions)),
                Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Phi3 => None,
            },
        }
    }

    /// Whether rows of a tensor of this name (ours) move.
    pub(crate) fn moves(self, name: &str) -> bool {
        let rotates = ["q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias"].iter().any(|suffix| name.ends_with(suffix));
        self.pairs.is_some() && rotates
    }

    /// Rejects rows of a tensor of this name that are not whole heads.
    pub(crate) fn check(self, name: &str, rows: usize) -> Result<()> {
        let Some((head, _)) = self.pairs.filter(|(head, _)| self.moves(name) && !rows.is_multiple_of(*head)) else { return Ok(()) };
        Err(Error::invalid_data(format!("tensor '{name}' has {rows} rows: whole heads of {head} expected")))
    }

    /// Where a row of the checkpoint is in the file.
    pub(crate) fn in_file(self, row: usize) -> usize {
        let Some((head, rotated)) = self.pairs else { return row };
        let (first, within) = (row / head * head, row % head);
        match within.checked_sub(rotated / 2) {
            _ if within >= rotated => row,
            None => first + 2 * within,
            Some(second) => first + 2 * second + 1,
        }
    }

    /// Where a row of the file is in the checkpoint.
    pub(crate) fn in_checkpoint(self, row: usize) -> usize {
        let Some((head, rotated)) = self.pairs else { return row };
        let (first, within) = (row / head * head, row % head);
        if within >= rotated { row } else { first + within / 2 + within % 2 * (rotated / 2) }
    }
}

/// Tensors of no layer: the file's name and ours.
const WHOLE: [(&str, &str); 3] =
    [("token_embd.weight", "model.embed_tokens.weight"), ("output_norm.weight", "model.norm.weight"), ("output.weight", "lm_head.weight")];

/// Parts of a layer: the file's name and ours.
const PARTS: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Parts that an architecture has besides, or that mean something else in it.
fn own_parts(architecture: Architecture) -> &'static [(&'static str, &'static str)] {
    match architecture {
        Architecture::Llama | Architecture::Mistral | Architecture::Qwen2 | Architecture::Qwen3 => &[],
        Architecture::Gemma2 | Architecture::Gemma3 => &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("ffn_norm", "pre_feedforward_layernorm"),
            ("post_ffw_norm", "post_feedforward_layernorm"),
        ],
        Architecture::Phi3 => &[("attn_qkv", "self_attn.qkv_proj"), ("ffn_up", "mlp.gate_up_proj")],
    }
}

/// The file's name of a tensor of ours, if it has one.
pub(crate) fn translate_back(name: &str) -> Option<String> {
    if let Some((theirs, _)) = WHOLE.iter().find(|(_, ours)| *ours == name) {
        return Some((*theirs).to_owned());
    }
    let (index, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (part, kind) = rest.rsplit_once('.')?;
    let (part, _) = PARTS.iter().find(|(_, ours)| *ours == part)?;
    Some(format!("blk.{index}.{part}.{kind}"))
}

/// Our name of a tensor; its own if it has none here.
pub(crate) fn translate(name: &str, architecture: Architecture) -> String {
    let layer = || -> Option<String> {
        let (index, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        let (part, kind) = rest.rsplit_once('.')?;
        let (_, part) = own_parts(architecture).iter().chain(&PARTS).find(|(theirs, _)| *theirs == part)?;
        Some(format!("model.layers.{index}.{part}.{kind}"))
    };
    let whole = WHOLE.iter().find(|(theirs, _)| *theirs == name).map(|(_, ours)| (*ours).to_owned());
    whole.or_else(layer).unwrap_or_else(|| name.to_owned())
}

impl Quantised {
    pub(super) fn open(file: &Arc<Gguf>, decoded: Option<DType>) -> Result<Self> {
        if EncoderConfig::is_in(file)? {
            let names = file.tensors().map(|(name, _)| (encoder::translate(name), name.to_owned())).collect();
            return Ok(Self { file: file.clone(), decoded, names, order: Order { pairs: None } });
        }
        let config = read(file)?;
        let (order, architecture) = (Order::of(&config), config.architecture);
        let names =
            file.tensors().filter(|(name, _)| !is_configuration(name)).map(|(name, _)| (translate(name, architecture), name.to_owned())).collect();
        Ok(Self { file: file.clone(), decoded, names, order })
    }

    /// The type a tensor gets.
    fn kind(&self, info: &TensorInfo) -> WeightType {
        match (info.kind.format(), self.decoded) {
            _ if info.dims.len() < 2 => WeightType::Plain(DType::F32),
            (Some(format), None) => WeightType::Block(format),
            (Some(_), Some(dtype)) => WeightType::Plain(dtype),
            (None, _) => WeightType::Plain(info.kind.dtype().unwrap_or(DType::F32)),
        }
    }

    /// Where a row of the checkpoint is in the file.
    fn row(&self, name: &str, row: usize) -> usize {
        if self.order.moves(name) { self.order.in_file(row) } else { row }
    }
}

impl Archive for Quantised {
    fn memory(&self) -> Vec<&HostMemory> {
        self.file.memory().collect()
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.names.keys().map(String::as_str))
    }

    fn bytes(&self) -> u64 {
        let size = |name: &String| {
            let info = self.file.tensor(name)?;
            let columns = info.dims.last().copied().unwrap_or(1);
            let rows = info.dims.iter().product::<usize>() / columns.max(1);
            Some(self.kind(info).row_bytes(columns).ok()?.saturating_mul(rows) as u64)
        };
        self.names.values().filter_map(size).sum()
    }

    fn info(&self, name: &str) -> Option<(Vec<usize>, Option<WeightType>)> {
        let info = self.file.tensor(self.names.get(name)?)?;
        Some((info.dims.clone(), Some(self.kind(info))))
    }

    fn get(&self, name: &str, dims: &[usize]) -> Result<Weight> {
        let theirs = self.names.get(name).map_or(name, String::as_str);
        let reject = |message: String| self.file.reject(format!("tensor '{theirs}' {message}"));
        let info = self.file.tensor(theirs).ok_or_else(|| reject("is missing, which the configuration asks for".to_owned()))?;
        if info.dims != dims {
            return Err(reject(format!("has shape {:?}, the configuration asks for {dims:?}", info.dims)));
        }
        if !info.kind.is_supported() {
            return Err(Error::unsupported(format!(
                "{}: tensor '{theirs}' is of type {}, which is not supported",
                self.file.label(),
                info.kind.name
            )));
        }
        let (kind, memory, file) = (self.kind(info), self.file.data(info)?, self.file.file(info));
        if let Some(file) = file {
            file.announce(&info.range);
        }
        // A vector has rows of one element.
        let (rows, columns) = match dims {
            [rows, rest @ ..] if !rest.is_empty() || info.kind.weights == 1 => (*rows, rest.iter().product::<usize>()),
            _ => (1, dims.iter().product::<usize>()),
        };
        self.order.check(name, rows).map_err(|e| e.context(self.file.label()))?;
        let in_place = (0..rows).all(|row| self.row(name, row) == row);
        if let WeightType::Plain(dtype) = kind
            && info.kind.dtype() == Some(dtype)
            && in_place
        {
            return Ok(Weight { kind, memory: aligned(memory, dtype.size()) });
        }
        let (stored, target) = (memory.bytes().len() / rows.max(1), kind.row_bytes(columns)?);
        let mut words = Words::zeros(rows * target);
        let convert = |values: &mut Vec<f32>, (row, target): (usize, &mut [u8])| -> Result<()> {
            let from = self.row(name, row) * stored;
            let source = memory.bytes().get(from..from + stored).unwrap_or_default();
            match kind {
                WeightType::Block(format) => format.pack(source, target),
                WeightType::Plain(dtype) if info.kind.dtype() == Some(dtype) => {
                    target.copy_from_slice(source);
                    Ok(())
                }
                WeightType::Plain(dtype) => {
                    values.resize(columns, 0.0);
                    info.kind.decode(source, values)?;
                    write(values, dtype, target)
                }
            }
        };
        let targets = words.bytes_mut().par_chunks_mut(target.max(1)).enumerate();
        // What follows is asked for beside the work: the system takes its time to find memory for it.
        let ahead = || file.inspect(|file| file.announce_after(&info.range));
        let convert = || targets.map_init(Vec::new, convert).collect::<Result<()>>();
        rayon::join(ahead, convert).1.map_err(|e| e.context(format!("tensor '{theirs}'")))?;
        if let Some(file) = file {
            file.release(&info.range);
        }
        Ok(Weight { kind, memory: words.into_memory() })
    }
}
