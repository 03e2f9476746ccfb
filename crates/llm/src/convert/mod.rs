//! Conversion between Hugging Face's folders and GGUF files, and quantisation.

mod checkpoint;
mod grouped;
mod importance;
mod metadata;
mod mixture;
#[cfg(test)]
mod tests;
mod texts;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use elinvar::{DType, Error, HostMemory, Result};
use rayon::prelude::*;

use crate::{
    Config, ModelFiles, Weights,
    gguf::{Gguf, Kind, TensorType, Value, Writer},
    weights::gguf::{Order, translate_back},
};
use checkpoint::is_redundant;
pub(crate) use checkpoint::{StoredTensor, write_tensors};
pub use checkpoint::{is_grouped, write_checkpoint};
pub use grouped::GroupedOutput;
pub use importance::Importance;
pub use mixture::Target;
pub(crate) use texts::Texts;

/// A GGUF file that is to be written: every tensor with the type it will have. Nothing but headers has been read.
pub struct GgufOutput {
    writer: Writer,
    tensors: Vec<Task>,
    importance: Importance,
    /// The files it reads.
    label: String,
}

/// A tensor to be written.
struct Task {
    name: String,
    kind: &'static TensorType,
    dims: Vec<usize>,
    source: &'static TensorType,
    elements: Elements,
    /// Which rows of the source the rows are, if they move.
    order: Option<Order>,
}

/// Where the elements of a tensor are.
enum Elements {
    /// In memory, or mapped.
    There(HostMemory),
    /// In a folder, by their name there; groups of MLX are decoded when they are needed.
    Named(Weights, String),
}

/// Bytes that are encoded before they are written.
const BATCH: usize = 16 << 20;

impl GgufOutput {
    /// Plans the file: weights of a folder with `config.json`, safetensors and `tokenizer.json`, or of another GGUF file, in the types of `target`.
    ///
    /// # Errors
    /// Files that are missing or damaged, a model or a tokenizer that the format cannot express, a tensor of a type that is not supported, or an
    /// importance that does not fit the tensors.
    pub fn plan(files: &ModelFiles, target: Target, importance: Importance) -> Result<Self> {
        let mut writer = Writer::new();
        let (inputs, tied, layers) = match files {
            ModelFiles::Gguf(file) => {
                metadata::copy(file, target, &mut writer)?;
                (of_gguf(file)?, file.tensor("output.weight").is_none(), Config::read(files).map(|config| config.layers).ok())
            }
            ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => {
                let config = Config::read(files)?;
                metadata::write(files, &config, target, &mut writer)?;
                (of_folder(files, &config, target)?, config.tied_embeddings, Some(config.layers))
            }
        };
        let layers = layers.unwrap_or_else(|| 1 + inputs.iter().filter_map(|task| mixture::layer(&task.name)).max().unwrap_or(0));
        let mut tensors = inputs;
        for task in &mut tensors {
            let reject = |e: Error| e.context(format!("{}: tensor '{}'", files.label("model.safetensors"), task.name));
            task.kind = target.choose(&task.name, &task.dims, task.source, tied, layers).map_err(reject)?;
            if task.kind != task.source && !task.source.is_supported() {
                return Err(reject(Error::unsupported(format!("type {} is not supported", task.source.name))));
            }
            writer.tensor(&task.name, task.kind, &task.dims).map_err(reject)?;
        }
        importance.check(tensors.iter().map(|task| (task.name.as_str(), task.dims.as_slice())))?;
        Ok(Self { writer, tensors, importance, label: files.to_string() })
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Bytes of the tensors that are read.
    pub fn source_bytes(&self) -> u64 {
        self.tensors.iter().map(Task::source_bytes).sum()
    }

    /// How many tensors have each type.
    pub fn types(&self) -> BTreeMap<&'static str, usize> {
        let mut types = BTreeMap::new();
        self.tensors.iter().for_each(|task| *types.entry(task.kind.name).or_default() += 1);
        types
    }

    /// Tensors that were quantised before and change their type: each time some of what is left is lost.
    pub fn requantized(&self) -> usize {
        self.tensors.iter().filter(|task| task.kind != task.source && task.source.format().is_some()).count()
    }

    /// Writes the file, whole or not at all, and reports the bytes of tensors read so far to `progress`.
    ///
    /// # Errors
    /// `path` is one of the files that are read, a value that a type cannot hold, or the system's: a full disk, no permission.
    pub fn write(&self, files: &ModelFiles, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<()> {
        check_distinct(files, path)?;
        let mut done = 0;
        self.writer
            .write(path, |number, put| {
                let Some(task) = self.tensors.get(number) else { return Err(Error::internal("a tensor that was not planned")) };
                task.write(self.importance.of(&task.name), put)?;
                done += task.source_bytes();
                progress(done);
                Ok(())
            })
            .map_err(|e| e.context(&self.label))
    }
}

/// Rejects an output that would take the place of what is read.
fn check_distinct(files: &ModelFiles, path: &Path) -> Result<()> {
    let ModelFiles::Gguf(file) = files else { return Ok(()) };
    let Ok(output) = path.canonicalize() else { return Ok(()) };
    match file.paths().find(|input| input.canonicalize().is_ok_and(|input| input == output)) {
        Some(input) => Err(Error::invalid_argument(format!("{} is read and cannot be written: give another name", input.display()))),
        None => Ok(()),
    }
}

fn of_gguf(file: &Gguf) -> Result<Vec<Task>> {
    let task = |(name, info): (&str, &crate::gguf::TensorInfo)| {
        Ok(Task {
            name: name.to_owned(),
            kind: info.kind,
            dims: info.dims.clone(),
            source: info.kind,
            elements: Elements::There(file.data(info)?),
            order: None,
        })
    };
    file.tensors().map(task).collect()
}

fn of_folder(files: &ModelFiles, config: &Config, target: Target) -> Result<Vec<Task>> {
    let order = Order::of(config);
    let weights = if is_grouped(files)? { Weights::open_decoded(files, target.of_decoded())? } else { Weights::open(files)? };
    let mut tasks = Vec::new();
    for name in weights.names().filter(|name| !is_redundant(name, config.tied_embeddings)) {
        let theirs = translate_back(name).ok_or_else(|| Error::unsupported(format!("{files}: tensor '{name}' has no name in GGUF files")))?;
        let StoredTensor { dtype, dims, .. } = StoredTensor::of(&weights, name).map_err(|e| e.context(files))?;
        order.check(name, dims.first().copied().unwrap_or(1)).map_err(|e| e.context(files))?;
        let (source, elements) = (TensorType::of_dtype(dtype)?, Elements::Named(weights.clone(), name.to_owned()));
        let order = order.moves(name).then_some(order);
        tasks.push(Task { name: theirs, kind: source, dims, source, elements, order });
    }
    if let Some(divisors) = metadata::divisors(config)? {
        let source = TensorType::of_dtype(DType::F32)?;
        let memory = HostMemory::new(Arc::new(divisors.iter().flat_map(|d| d.to_le_bytes()).collect::<Vec<_>>()));
        let name = crate::config::gguf::DIVISORS.to_owned();
        tasks.push(Task { name, kind: source, dims: vec![divisors.len()], source, elements: Elements::There(memory), order: None });
    }
    Ok(tasks)
}

impl Task {
    fn source_bytes(&self) -> u64 {
        let (rows, columns) = self.extents();
        (rows * (columns / self.source.weights * self.source.bytes)) as u64
    }

    /// Rows and columns. A vector whose elements move has rows of one element.
    fn extents(&self) -> (usize, usize) {
        match self.dims.as_slice() {
            [n] if self.order.is_some() => (*n, 1),
            [rows @ .., columns] => (rows.iter().product(), *columns),
            [] => (1, 1),
        }
    }

    /// Passes the tensor's bytes on, encoded by all threads, row by row.
    fn write(&self, importance: Option<&[f32]>, put: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let memory = match &self.elements {
            Elements::There(memory) => memory.clone(),
            Elements::Named(weights, name) => weights.get(name, &self.dims)?.memory,
        };
        let bytes = memory.bytes();
        if self.kind == self.source && self.order.is_none() {
            return put(bytes);
        }
        let (rows, columns) = self.extents();
        let [stored, row_bytes] = [self.source, self.kind].map(|kind| columns / kind.weights * kind.bytes);
        let batch = (BATCH / row_bytes.max(1)).max(1);
        let mut buffer = vec![0; batch.min(rows) * row_bytes];
        for start in (0..rows).step_by(batch) {
            let count = batch.min(rows - start);
            let targets = buffer.get_mut(..count * row_bytes).unwrap_or_default();
            let encode = |values: &mut Vec<f32>, (index, target): (usize, &mut [u8])| {
                let row = self.order.map_or(start + index, |order| order.in_checkpoint(start + index));
                let source = bytes.get(row * stored..(row + 1) * stored).unwrap_or_default();
                if self.kind == self.source {
                    target.copy_from_slice(source);
                    return Ok(());
                }
                self.source.decode(source, values)?;
                self.kind.encode(values, importance, target).map_err(|e| e.context(format!("row {row}")))
            };
            targets.par_chunks_mut(row_bytes.max(1)).enumerate().map_init(|| vec![0.0; columns], encode).collect::<Result<()>>()?;
            put(targets)?;
        }
        Ok(())
    }
}

/// What is set as a number of 32 bits.
fn number(writer: &mut Writer, key: &str, value: usize) -> Result<()> {
    writer.set(key, Kind::U32, Value::Unsigned(value as u64))
}
