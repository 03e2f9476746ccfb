//! Weights in safetensors files, single or sharded.

mod header;

use std::collections::{BTreeMap, BTreeSet};

use ::safetensors::tensor::{Dtype, TensorInfo};
use elinvar::{DType, Error, HostMemory, Result};
use serde::Deserialize;

use super::{Archive, Weight, WeightType, words::aligned};
use crate::ModelFiles;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

pub(super) struct Safetensors {
    files: Vec<Shard>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
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
    pub(super) fn open(files: &ModelFiles) -> Result<Self> {
        if files.contains(SINGLE) {
            let mut weights = Self { files: Vec::new(), tensors: BTreeMap::new() };
            let tensors = weights.add(files, SINGLE)?;
            weights.tensors = tensors.into_iter().map(|(name, info)| (name, (0, info))).collect();
            return Ok(weights);
        }
        match files.read_json::<Index>(INDEX)? {
            Some(index) => Self::open_sharded(files, &index).map_err(|e| e.context(files.label(INDEX))),
            None => Err(Error::io(format!("{files} has neither {SINGLE} nor {INDEX}: other formats (.bin, .pth) must be converted first"))),
        }
    }

    fn open_sharded(files: &ModelFiles, index: &Index) -> Result<Self> {
        let mut weights = Self { files: Vec::new(), tensors: BTreeMap::new() };
        let shards: BTreeSet<_> = index.weight_map.values().map(String::as_str).collect();
        for (number, shard) in shards.into_iter().enumerate() {
            check_shard_name(shard)?;
            let mut tensors = weights.add(files, shard)?;
            for (name, _) in index.weight_map.iter().filter(|(_, s)| *s == shard) {
                let info = tensors.remove(name).ok_or_else(|| Error::invalid_data(format!("tensor '{name}' is not in its shard '{shard}'")))?;
                weights.tensors.insert(name.clone(), (number, info));
            }
        }
        Ok(weights)
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

impl Archive for Safetensors {
    fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.tensors.keys().map(String::as_str))
    }

    fn bytes(&self) -> u64 {
        self.tensors.values().map(|(_, info)| (info.data_offsets.1 - info.data_offsets.0) as u64).sum()
    }

    fn info(&self, name: &str) -> Option<(Vec<usize>, Option<WeightType>)> {
        self.tensors.get(name).map(|(_, info)| (info.shape.clone(), dtype(info.dtype).map(WeightType::Plain)))
    }

    fn get(&self, name: &str, dims: &[usize]) -> Result<Weight> {
        let (file, info) = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let shard = self.files.get(*file).ok_or_else(|| self.missing(name))?;
        let reject = |message: String| Error::invalid_data(format!("{}: tensor '{name}' {message}", shard.label));
        if info.shape != dims {
            return Err(reject(format!("has shape {:?}, the configuration asks for {dims:?}", info.shape)));
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
