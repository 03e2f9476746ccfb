//! Tensors in safetensors files.

use std::{borrow::Cow, collections::HashMap, fs, path::Path};

use elinvar::{DType, Error, ErrorKind, Executor, Result, Tensor};
use safetensors::{Dtype, SafeTensors, View};

/// The library's names of the data types.
const TYPES: &[(DType, Dtype)] = &[
    (DType::F32, Dtype::F32),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::Bool, Dtype::BOOL),
    (DType::F64, Dtype::F64),
];

/// The library's data type for a file's.
pub(crate) fn dtype(stored: Dtype) -> Option<DType> {
    TYPES.iter().find(|(_, theirs)| *theirs == stored).map(|(ours, _)| *ours)
}

/// Every tensor of a file, by name.
pub(crate) fn read(executor: &Executor, file: &Path) -> Result<HashMap<String, Tensor>> {
    let shown = file.display();
    let bytes = fs::read(file).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {shown}"), e))?;
    let tensors =
        SafeTensors::deserialize(&bytes).map_err(|e| Error::with_source(ErrorKind::InvalidData, format!("{shown} is no safetensors file"), e))?;
    let load = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let known = dtype(view.dtype());
        let known = known.ok_or_else(|| Error::unsupported(format!("{shown}: tensor '{name}' has type {:?}: convert it first", view.dtype())))?;
        let tensor = executor.tensor_from_bytes(known, view.shape(), view.data()).map_err(|e| e.context(format!("{shown}: tensor '{name}'")))?;
        Ok((name, tensor))
    };
    tensors.tensors().into_iter().map(load).collect()
}

/// A tensor to be written to a file.
struct Stored {
    dtype: Dtype,
    dims: Vec<usize>,
    bytes: Vec<u8>,
}

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.dims
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }
    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

impl Stored {
    fn new(name: &str, ours: DType, dims: Vec<usize>, bytes: Vec<u8>) -> Result<Self> {
        let found = TYPES.iter().find(|(known, _)| *known == ours);
        let (_, dtype) = found.ok_or_else(|| Error::unsupported(format!("'{name}' has type {ours}, which safetensors files cannot hold")))?;
        Ok(Self { dtype: *dtype, dims, bytes })
    }
}

/// Writes tensors to a file, whole or not at all.
pub(crate) fn write(file: &Path, tensors: Vec<(String, Tensor)>) -> Result<()> {
    let store = |(name, tensor): (String, Tensor)| {
        let stored = Stored::new(&name, tensor.dtype(), tensor.shape().to_vec(), tensor.to_bytes()?)?;
        Ok((name, stored))
    };
    save(file, tensors.into_iter().map(store).collect::<Result<Vec<_>>>()?)
}

/// A file's bytes that hold arrays of elements.
pub(crate) fn bytes_of(arrays: impl Iterator<Item = (String, DType, Vec<u8>)>) -> Result<Vec<u8>> {
    let store = |(name, dtype, bytes): (String, DType, Vec<u8>)| {
        let stored = Stored::new(&name, dtype, vec![bytes.len() / dtype.size()], bytes)?;
        Ok((name, stored))
    };
    let stored = arrays.map(store).collect::<Result<Vec<_>>>()?;
    safetensors::serialize(stored, None).map_err(|e| Error::with_source(ErrorKind::InvalidData, "cannot write these tensors", e))
}

/// Writes such a file.
pub(crate) fn write_bytes(file: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(file, bytes).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", file.display()), e))
}

fn save(file: &Path, stored: Vec<(String, Stored)>) -> Result<()> {
    safetensors::serialize_to_file(stored, None, file).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", file.display()), e))
}
