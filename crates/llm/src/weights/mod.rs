//! Weights in safetensors files, single or sharded, mapped into memory: a device can adopt a tensor without a copy.

mod header;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use elinvar::{DType, Error, HostMemory, Result};
use safetensors::tensor::{Dtype, TensorInfo};
use serde::Deserialize;

use crate::files::ModelFiles;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The tensors of a model's files, by name.
#[derive(Clone)]
pub struct Weights {
    files: Vec<Shard>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

#[derive(Clone)]
struct Shard {
    label: String,
    /// The file behind its header.
    data: HostMemory,
}

/// A tensor as stored.
#[derive(Clone)]
pub struct Weight {
    /// f32, f16 or bf16.
    pub dtype: DType,
    /// Extents, row-major.
    pub dims: Vec<usize>,
    /// Its bytes, aligned for `dtype`: in the mapped file, or a copy where the file has them at an odd place.
    pub memory: HostMemory,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Opens `model.safetensors`, or the shards that `model.safetensors.index.json` names. Only headers are read.
    ///
    /// # Errors
    /// No such file, a damaged one, or an index that contradicts its shards.
    pub fn open(files: &ModelFiles) -> Result<Self> {
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

    /// Names of all tensors, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.values().map(|(_, info)| (info.data_offsets.1 - info.data_offsets.0) as u64).sum()
    }

    /// The tensor called `name`, which must have the extents `dims`.
    ///
    /// # Errors
    /// It is missing, has another shape, or a type that is not supported.
    pub fn get(&self, name: &str, dims: &[usize]) -> Result<Weight> {
        let (file, info) = self.tensors.get(name).ok_or_else(|| self.missing(name))?;
        let shard = self.files.get(*file).ok_or_else(|| self.missing(name))?;
        let reject = |message: String| Error::invalid_data(format!("{}: tensor '{name}' {message}", shard.label));
        if info.shape != dims {
            return Err(reject(format!("has shape {:?}, the configuration asks for {dims:?}", info.shape)));
        }
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(reject(format!("is of type {other}: F32, F16 and BF16 are supported"))),
        };
        let memory = shard.data.slice(info.data_offsets.0..info.data_offsets.1).map_err(|e| e.context(name))?;
        Ok(Weight { dtype, dims: dims.to_vec(), memory: aligned(memory, dtype) })
    }

    fn missing(&self, name: &str) -> Error {
        let labels: Vec<_> = self.files.iter().take(2).map(|s| s.label.as_str()).collect();
        let more = if self.files.len() > 2 { format!(" and {} more", self.files.len() - 2) } else { String::new() };
        Error::invalid_data(format!("{}{more}: tensor '{name}' is missing, which the configuration asks for", labels.join(", ")))
    }
}

/// A shard lies beside its index: anything but a plain file name could reach elsewhere.
fn check_shard_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains(['/', '\\', ':', '\0']) || name.starts_with('.') {
        return Err(Error::invalid_data(format!("shard '{}' is no plain file name: rejected", name.escape_debug())));
    }
    Ok(())
}

/// Bytes at a multiple of eight.
struct Words(Vec<u64>, usize);

impl AsRef<[u8]> for Words {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0).get(..self.1).unwrap_or_default()
    }
}

fn aligned(memory: HostMemory, dtype: DType) -> HostMemory {
    let bytes = memory.bytes();
    if bytes.as_ptr().addr().is_multiple_of(dtype.size()) {
        return memory;
    }
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    if let Some(target) = bytemuck::cast_slice_mut(&mut words).get_mut(..bytes.len()) {
        target.copy_from_slice(bytes);
    }
    HostMemory::new(Arc::new(Words(words, bytes.len())))
}
