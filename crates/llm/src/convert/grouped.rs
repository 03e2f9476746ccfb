//! A folder whose matrices are quantised as MLX does it: in groups of neighbours that share a scale and a bias.

use std::{collections::HashMap, path::Path, sync::Arc};

use elinvar::{DType, Error, HostMemory, Result, kernels::quantized::encode_group};
use rayon::prelude::*;
use serde_json::json;

use super::{
    checkpoint::{StoredTensor, names, write_tensors},
    texts::Texts,
};
use crate::{
    ModelFiles, Weights,
    config::Groups,
    gguf::TensorType,
    weights::{WeightType, write_floats},
    whole::write_folder,
};

/// A folder that is to be written: which tensors it will have. Nothing but headers has been read.
pub struct GroupedOutput {
    texts: Texts,
    weights: Weights,
    tensors: Vec<StoredTensor>,
    groups: Groups,
    requantized: usize,
    /// The files it reads.
    label: String,
}

impl GroupedOutput {
    /// Plans the folder: all matrices whose rows are made of whole groups, the embedding too, have integers of a few bits, with scales and biases of the type
    /// that the matrix is stored in, or bf16 where that is f32. Other tensors stay as they are.
    ///
    /// # Errors
    /// Files that are missing or damaged, a model or a tokenizer that the format cannot express, or no matrix with rows of whole groups.
    pub fn plan(files: &ModelFiles, groups: Groups) -> Result<Self> {
        let described = json!({"group_size": groups.size, "bits": groups.bits, "mode": "affine"});
        let texts = Texts::of(files, DType::BF16, Some(&described))?;
        let (stored, weights) = (Weights::open(files)?, Weights::open_decoded(files, DType::F32)?);
        let (mut tensors, mut quantised, mut requantized) = (Vec::new(), 0, 0);
        for name in names(files, &weights)? {
            let tensor = StoredTensor::of(&weights, &name).map_err(|e| e.context(files))?;
            match (name.strip_suffix(".weight"), &*tensor.dims) {
                (Some(layer), &[rows, columns]) if columns.is_multiple_of(groups.size) && columns > 0 => {
                    let numbers = if tensor.dtype == DType::F32 { DType::BF16 } else { tensor.dtype };
                    let part = |part: &str, dtype, columns| StoredTensor { name: format!("{layer}.{part}"), dtype, dims: vec![rows, columns] };
                    tensors.push(part("weight", DType::U32, columns / 32 * groups.bits));
                    tensors.extend(["scales", "biases"].map(|number| part(number, numbers, columns / groups.size)));
                    quantised += 1;
                    requantized += usize::from(matches!(stored.info(&name), Some((_, Some(WeightType::Block(_))))));
                }
                (Some(_) | None, _) => tensors.push(tensor),
            }
        }
        if quantised == 0 {
            return Err(Error::unsupported(format!("{files}: no matrix has rows of whole groups of {}", groups.size)));
        }
        Ok(Self { texts, weights, tensors, groups, requantized, label: files.to_string() })
    }

    /// Bytes of the tensors.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(StoredTensor::bytes).sum()
    }

    /// Matrices that were quantised before: each time some of what is left is lost.
    pub fn requantized(&self) -> usize {
        self.requantized
    }

    /// Writes the folder, whole or not at all, and reports the bytes of tensors written, and of all, to `progress`.
    ///
    /// # Errors
    /// A folder that exists, a weight that is not finite or that needs a scale beyond its type, or the system's: a full disk, no permission.
    pub fn write(&self, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        write_folder(path, |folder| {
            self.texts.write(folder, path)?;
            // Scales and biases follow the integers that they were found with.
            let mut following = HashMap::new();
            let mut get = |tensor: &StoredTensor| match (following.remove(&tensor.name), tensor.dtype) {
                (Some(memory), _) => Ok(memory),
                (None, DType::U32) => {
                    let [integers, numbers @ ..] = self.encode(tensor).map_err(|e| e.context(format!("{}: tensor '{}'", self.label, tensor.name)))?;
                    let layer = tensor.name.strip_suffix("weight").unwrap_or_default();
                    following.extend(["scales", "biases"].map(|part| format!("{layer}{part}")).into_iter().zip(numbers));
                    Ok(integers)
                }
                (None, _) => Ok(self.weights.get(&tensor.name, &tensor.dims)?.memory),
            };
            write_tensors(&folder.join("model.safetensors"), &self.tensors, &mut get, progress)
        })
    }

    /// The integers, scales and biases of a matrix, found by all threads.
    fn encode(&self, StoredTensor { name, dims, .. }: &StoredTensor) -> Result<[HostMemory; 3]> {
        let Groups { size, bits } = self.groups;
        let dims: Vec<usize> = dims.iter().enumerate().map(|(axis, extent)| if axis == 1 { extent / bits * 32 } else { *extent }).collect();
        let &[rows, columns] = &*dims else { return Err(Error::internal(format!("{dims:?} elements in groups"))) };
        let weight = self.weights.get(name, &dims)?;
        let WeightType::Plain(dtype) = weight.kind else { return Err(Error::internal(format!("groups of {}", weight.kind))) };
        let numbers = if dtype == DType::F32 { DType::BF16 } else { dtype };
        let (source, groups, bytes) = (TensorType::of_dtype(dtype)?, columns / size, weight.memory.bytes());
        let [word_bytes, number_bytes, source_bytes] = [columns / 8 * bits, groups * numbers.size(), columns * dtype.size()];
        let mut integers = vec![0; rows * word_bytes];
        let [mut scales, mut biases] = [(); 2].map(|()| vec![0; rows * number_bytes]);
        let targets = integers.par_chunks_mut(word_bytes).zip(scales.par_chunks_mut(number_bytes)).zip(biases.par_chunks_mut(number_bytes));
        let encode = |room: &mut Row, (row, ((words, scales), biases)): (usize, Parts<'_>)| {
            source.decode(bytes.get(row * source_bytes..(row + 1) * source_bytes).unwrap_or_default(), &mut room.values)?;
            for (group, (values, integers)) in room.values.chunks(size).zip(room.integers.chunks_mut(size)).enumerate() {
                let found = encode_group(values, bits as u32, numbers, integers).map_err(|e| e.context(format!("row {row}, group {group}")))?;
                room.numbers.iter_mut().zip(found).for_each(|(numbers, number)| numbers[group] = number);
            }
            put_bits(&room.integers, bits, words);
            write_floats(&room.numbers[0], numbers, scales)?;
            write_floats(&room.numbers[1], numbers, biases)
        };
        let room = || Row { values: vec![0.0; columns], integers: vec![0; columns], numbers: [(); 2].map(|()| vec![0.0; groups]) };
        targets.enumerate().map_init(room, encode).collect::<Result<()>>()?;
        Ok([integers, scales, biases].map(|bytes| HostMemory::new(Arc::new(bytes))))
    }
}

/// A row's integers, scales and biases.
type Parts<'a> = ((&'a mut [u8], &'a mut [u8]), &'a mut [u8]);

/// Room for a row.
struct Row {
    values: Vec<f32>,
    integers: Vec<u8>,
    /// Scales and biases.
    numbers: [Vec<f32>; 2],
}

/// Integers of a few bits after each other, the lowest bits first.
fn put_bits(integers: &[u8], bits: usize, bytes: &mut [u8]) {
    // Eight of them are whole bytes.
    for (integers, bytes) in integers.chunks_exact(8).zip(bytes.chunks_exact_mut(bits)) {
        let word = integers.iter().rev().fold(0u64, |word, integer| word << bits | u64::from(*integer));
        bytes.copy_from_slice(&word.to_le_bytes()[..bits]);
    }
}
