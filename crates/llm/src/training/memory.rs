//! The memory that a training needs, known before its first step.

use elinvar::{DType, Error, MemoryInfo, Result, format_bytes};

use super::{
    batch::padded,
    data::Dataset,
    parameters::TOGETHER,
    trainer::{MAX_SHAPES, TrainerOptions},
};
use crate::{
    adapter::AdapterConfig,
    model::{Change, Checkpointing, Model},
};

/// Bytes that a training needs beside the model's weights, about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingMemory {
    /// What is trained, with its gradient and the optimiser's states.
    pub parameters: u64,
    /// What layers keep for the way back, and what the way back takes.
    pub activations: u64,
    /// Logits and their gradients, of as many tokens as are computed together.
    pub logits: u64,
}

impl TrainingMemory {
    /// Of batches of `batch` samples, or pairs, of a data set.
    ///
    /// # Errors
    /// An adapter that does not fit the model.
    pub fn of(model: &Model, adapter: &AdapterConfig, options: &TrainerOptions, data: &Dataset, batch: usize) -> Result<Self> {
        let (config, changes) = (model.config(), adapter.changes(&model.places())?);
        let tensors = changes.iter().flat_map(|(place, change)| place.tensors(*change)).map(|(_, dims)| dims.iter().product::<usize>());
        let (trained, largest) = (tensors.clone().sum::<usize>(), tensors.max().unwrap_or(0));
        // Of gradients that are added together, those of every replica.
        let together = largest.max(trained.min(TOGETHER));
        let gathered = Some(model.executor().replicas()).filter(|replicas| *replicas > 1).map_or(0, |replicas| replicas * together);
        // A batch has the length of its longest sample; each length that occurs keeps what was recorded for it.
        let mut lengths: Vec<_> = data.samples().iter().map(padded).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let texts = batch * data.width();
        let rows = texts as u64 * lengths.iter().rev().take(MAX_SHAPES).sum::<usize>() as u64;
        let (hidden, inner) = (config.hidden_size as u64, config.intermediate_size as u64);
        let (queries, keys) = ((config.heads * config.head_dim) as u64, (config.kv_heads * config.head_dim) as u64);
        // Inputs of norms and linear layers, rotated queries and keys, values, what is attended, and what is gated.
        let layer = 4 * hidden + 2 * queries + 2 * keys + 3 * inner;
        let layers = config.layers as u64;
        let kept = match options.checkpointing {
            Checkpointing::None => layer * layers,
            Checkpointing::Layers => hidden * layers + layer,
            Checkpointing::FeedForward => (2 * hidden + queries + 2 * keys) * layers + layer,
        };
        // The values of a layer and their gradients on the way back; a pass without one takes no more.
        let passing = 2 * layer;
        let (float, stream) = (DType::F32.size() as u64, model.stream_type().size() as u64);
        // What low-rank matrices read where a dropout leaves elements out, and which elements: of all layers, or of one.
        let is_low_rank = |change: &Change| matches!(change, Change::LowRank { .. });
        let read: usize = changes.iter().filter(|(_, change)| is_low_rank(change)).map(|(place, _)| place.extents[1]).sum();
        let of_layers = if options.checkpointing == Checkpointing::None { 1 } else { layers.max(1) };
        let dropped = if adapter.dropout > 0.0 { (stream + 1) * (read as u64).div_ceil(of_layers) } else { 0 };
        // Logits and their gradient; in 16 bits, which go through in parts, the next part's logits beside them.
        let of_logit = if stream == float { 2 * float } else { 3 * stream };
        let of_shape = |length: &usize| (texts * length).min(model.rows_of_logits()) as u64;
        let logits: u64 = lengths.iter().rev().take(MAX_SHAPES).map(of_shape).sum();
        Ok(Self {
            parameters: ((2 + options.optimizer.states()) * trained + gathered) as u64 * float,
            activations: rows * ((kept + passing) * stream + dropped),
            logits: logits * config.vocab_size as u64 * of_logit,
        })
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.parameters + self.activations + self.logits
    }

    /// Rejects what does not fit into the memory that is available.
    ///
    /// # Errors
    /// It does not; the message has the figures.
    pub fn check(&self, memory: MemoryInfo) -> Result<()> {
        if self.total() <= memory.available as u64 {
            return Ok(());
        }
        let [need, parameters, activations, logits] = [self.total(), self.parameters, self.activations, self.logits].map(format_bytes);
        let [available, total] = [memory.available, memory.total].map(|bytes| format_bytes(bytes as u64));
        Err(Error::out_of_memory(format!(
            "training needs about {need} (parameters {parameters}, activations {activations}, logits {logits}), {available} of {total} are free: compute \
             layers again on the way back (--grad-checkpoint), use smaller batches, shorter samples or fewer layers, or free memory"
        )))
    }
}
