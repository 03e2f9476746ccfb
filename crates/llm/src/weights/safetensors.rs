//! Weights in safetensors files, single or sharded.

mod grouped;
mod header;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ::safetensors::tensor::{Dtype, TensorInfo};
use elinvar::{DType, Error, HostMemory, Result};
use rayon::prelude::*;
use serde::Deserialize;

use super::{
    Archive, Weight, WeightType,
    words::{Words, aligned},
};
use crate::{ModelFiles, config::Quantization};
use grouped::{Grouped, Room};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

pub(super) struct Safetensors {
    files: Vec<Shard>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
    quantization: Option<Quantization>,
    /// What quantised matrices are decoded to, unless they stay.
    decoded: Option<DType>,
}

struct Shard {
    label: String,
    /// The file behind its header.
    data: HostMemory,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Safetensors {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names. Only headers are read.
    ///
    /// # Errors
    /// No such file, a damaged one, or an index that contradicts its shards.
    pub(super) fn open(files: &ModelFiles, decoded: Option<DType>) -> Result<Self> {
        let mut weights = Self { files: Vec::new(), tensors: BTreeMap::new(), quantization: Quantization::read(files)?, decoded };
        if files.contains(SINGLE) {
            let tensors = weights.add(files, SINGLE)?;
            weights.tensors = tensors.into_iter().map(|(name, info)| (name, (0, info))).collect();
            return Ok(weights);
        }
        match files.read_json::<Index>(INDEX)? {
            Some(index) => weights.open_sharded(files, &index).map_err(|e| e.context(files.label(INDEX))),
            None => Err(Error::io(format!("{files} has neither {SINGLE} nor {INDEX}: other formats (.bin, .pth) must be converted first"))),
        }
    }

    fn open_sharded(mut self, files: &ModelFiles, index: &Index) -> Result<Self> {
        let shards: BTreeSet<_> = index.weight_map.values().map(String::as_str).collect();
        for (number, shard) in shards.into_iter().enumerate() {
            check_shard_name(shard)?;
            let mut tensors = self.add(files, shard)?;
            for (name, _) in index.weight_map.iter().filter(|(_, s)| *s == shard) {
                let info = tensors.remove(name).ok_or_else(|| Error::invalid_data(format!("tensor '{name}' is not in its shard '{shard}'")))?;
                self.tensors.insert(name.clone(), (number, info));
            }
        }
        Ok(self)
    }

    /// Maps a file; its tensors.
    fn add(&mut self, files: &ModelFiles, name: &str) -> Result<BTreeMap<String, TensorInfo>> {
        let (label, memory) = (files.label(name), files.map(name)?);
        let (start, tensors) = header::read(memory.bytes()).map_err(|e| e.context(&label))?;
        let data = memory.slice(start..memory.bytes().len())?;
        self.files.push(Shard { label, data });
        Ok(tensors)
    }

    fn missing(&self, name: &str) -> Error {
        let labels: Vec<_> = self.files.iter().take(2).map(|s| s.label.as_str()).collect();
        let more = if self.files.len() > 2 { format!(" and {} more", self.files.len() - 2) } else { String::new() };
        Error::invalid_data(format!("{}{more}: tensor '{name}' is missing, which the configuration asks for", labels.join(", ")))
    }
}

impl Safetensors {
    /// A matrix that MLX has quantised.
    fn grouped(&self, name: &str) -> Option<Grouped<'_>> {
        let (quantization, layer) = (self.quantization.as_ref()?, name.strip_suffix(".weight")?);
        let part = |part: &str| self.tensors.get(&format!("{layer}.{part}"));
        Some(Grouped { words: part("weight")?, scales: part("scales")?, biases: part("biases"), groups: quantization.of(layer) })
    }

    /// Whether a tensor is a part of such a matrix, and not what the matrix is called by.
    fn is_beside(&self, name: &str) -> bool {
        let layer = name.strip_suffix(".scales").or_else(|| name.strip_suffix(".biases"));
        layer.is_some_and(|layer| self.grouped(&format!("{layer}.weight")).is_some())
    }

    fn data(&self, (file, info): &(usize, TensorInfo)) -> Result<HostMemory> {
        let shard = self.files.get(*file).ok_or_else(|| Error::internal("a tensor in no file"))?;
        shard.data.slice(info.data_offsets.0..info.data_offsets.1)
    }

    /// A quantised matrix of these extents, decoded or packed by all threads.
    fn convert(&self, matrix: &Grouped<'_>, [rows, columns]: [usize; 2], kind: WeightType) -> Result<Weight> {
        let biases = matrix.biases.ok_or_else(|| Error::internal("a matrix without biases"))?;
        let (words, scales, biases) = (self.data(matrix.words)?, self.data(matrix.scales)?, self.data(biases)?);
        let target = kind.row_bytes(columns)?;
        let mut memory = Words::zeros(rows * target);
        let convert = |room: &mut Room, (row, target): (usize, &mut [u8])| {
            let parts = [&words, &scales, &biases].map(|part| {
                let length = part.bytes().len() / rows.max(1);
                part.bytes().get(row * length..(row + 1) * length).unwrap_or_default()
            });
            matrix.convert(parts, kind, room, target)
        };
        memory.bytes_mut().par_chunks_mut(target.max(1)).enumerate().map_init(Room::default, convert).collect::<Result<()>>()?;
        Ok(Weight { kind, memory: memory.into_memory() })
    }
}

impl Archive for Safetensors {
    fn memory(&self) -> Vec<&HostMemory> {
        self.files.iter().map(|shard| &shard.data).collect()
    }

    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.tensors.keys().map(String::as_str).filter(|name| !self.is_beside(name)))
    }

    fn bytes(&self) -> u64 {
        let stored = |(_, info): &(usize, TensorInfo)| (info.data_offsets.1 - info.data_offsets.0) as u64;
        let size = |name: &str| match self.grouped(name).map(|matrix| (matrix.dims(), matrix.kind(self.decoded))) {
            Some((Ok([rows, columns]), kind)) => kind.row_bytes(columns).ok().map(|bytes| bytes.saturating_mul(rows) as u64),
            Some((Err(_), _)) | None => self.tensors.get(name).map(stored),
        };
        self.names().filter_map(size).sum()
    }

    fn info(&self, name: &str) -> Option<(Vec<usize>, Option<WeightType>)> {
        if let Some(matrix) = self.grouped(name) {
            return Some((matrix.dims().ok()?.to_vec(), Some(matrix.kind(self.decoded))));
        }
        self.tensors.get(name).map(|(_, info)| (info.shape.clone(), dtype(info.dtype).map(WeightType::Plain)))
    }

    fn get(&self, name: &str, dims: &[usize]) -> Result<Weight> {
        let (file, info) = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let shard = self.files.get(*file).ok_or_else(|| self.missing(name))?;
        let reject = |message: String| Error::invalid_data(format!("{}: tensor '{name}' {message}", shard.label));
        let misshapen = |found: &[usize]| reject(format!("has shape {found:?}, the configuration asks for {dims:?}"));
        if let Some(matrix) = self.grouped(name) {
            let found = matrix.dims().map_err(reject)?;
            return if found == dims { self.convert(&matrix, found, matrix.kind(self.decoded)) } else { Err(misshapen(&found)) };
        }
        if info.shape != dims {
            return Err(misshapen(&info.shape));
        }
        let dtype = dtype(info.dtype).ok_or_else(|| reject(format!("is of type {}: F32, F16 and BF16 are supported", info.dtype)))?;
        let memory = shard.data.slice(info.data_offsets.0..info.data_offsets.1).map_err(|e| e.context(name))?;
        Ok(Weight { kind: WeightType::Plain(dtype), memory: aligned(memory, dtype.size()) })
    }
}

/// The library's type of floats.
fn dtype(stored: Dtype) -> Option<DType> {
    match stored {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        _ => None,
    }
}

/// A shard lies beside its index: anything but a plain file name could reach elsewhere.
fn check_shard_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains(['/', '\\', ':', '\0']) || name.starts_with('.') {
        return Err(Error::invalid_data(format!("shard '{}' is no plain file name: rejected", name.escape_debug())));
    }
    Ok(())
}
