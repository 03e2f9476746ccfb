//! Named arrays of f32 in safetensors files.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use elinvar::{Error, ErrorKind, Result};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, View};

use crate::whole::write_file;

/// Extents and elements by name.
pub(crate) type Arrays = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The arrays of a file, f32, and its notes.
///
/// # Errors
/// It is missing or damaged, or holds another type than f32, f16 and bf16.
pub(crate) fn read_arrays(path: &Path) -> Result<(Arrays, HashMap<String, String>)> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {shown}"), e))?;
    let damaged = |e| Error::with_source(ErrorKind::InvalidData, format!("{shown} is no safetensors file, or damaged"), e);
    let file = SafeTensors::deserialize(&bytes).map_err(damaged)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(damaged)?;
    let array = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            Dtype::F16 => data.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            Dtype::BF16 => data.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            other => return Err(Error::unsupported(format!("{shown}: tensor '{name}' is of type {other}: F32, F16 and BF16 are supported"))),
        };
        Ok((name, (view.shape().to_vec(), values)))
    };
    let arrays = file.tensors().into_iter().map(array).collect::<Result<_>>()?;
    Ok((arrays, header.metadata().clone().unwrap_or_default()))
}

struct Array<'a>(&'a [usize], &'a [f32]);

impl View for Array<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.0
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.1.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn data_len(&self) -> usize {
        4 * self.1.len()
    }
}

/// Writes arrays with notes, whole or not at all.
///
/// # Errors
/// The system's: a full disk, no permission.
pub(crate) fn write_arrays(path: &Path, arrays: &Arrays, notes: &BTreeMap<String, String>) -> Result<()> {
    let views = arrays.iter().map(|(name, (dims, values))| (name, Array(dims, values)));
    let notes = notes.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let bytes = safetensors::serialize(views, Some(notes))
        .map_err(|e| Error::with_source(ErrorKind::Internal, format!("cannot write {}", path.display()), e))?;
    write_file(path, |out| out.write_all(&bytes).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e)))
}
