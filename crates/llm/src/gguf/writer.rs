//! Writes GGUF files of version 3: little-endian, aligned to 32 bytes.

use std::{collections::BTreeSet, path::Path};

use elinvar::{Error, ErrorKind, Result};

use super::{
    types::TensorType,
    value::{Array, Kind, Value},
};
use crate::whole::write_file;

const VERSION: u32 = 3;
const ALIGNMENT: u64 = 32;
/// The longest name of a tensor that readers accept, and the most dimensions.
const MAX_NAME_LENGTH: usize = 63;
const MAX_DIMS: usize = 4;

/// A file in the making: its metadata, and the tensors that it will have.
#[derive(Default)]
pub struct Writer {
    names: BTreeSet<String>,
    keys: Vec<u8>,
    key_count: u64,
    tensors: Vec<Planned>,
    /// Bytes of data so far, padded.
    data: u64,
}

struct Planned {
    name: String,
    kind: &'static TensorType,
    dims: Vec<usize>,
    bytes: u64,
    offset: u64,
}

impl Writer {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key of type `kind`.
    ///
    /// # Errors
    /// The key is empty or there already, or `value` is none of `kind`.
    pub fn set(&mut self, key: &str, kind: Kind, value: Value<'_>) -> Result<()> {
        let mut bytes = kind.id().to_le_bytes().to_vec();
        put(&mut bytes, kind, &value).map_err(|e| e.context(format!("key '{key}'")))?;
        self.add(key, &bytes)
    }

    /// Adds an array of values of type `kind`.
    ///
    /// # Errors
    /// As [`Writer::set`], or `kind` is an array.
    pub fn set_array<'a>(&mut self, key: &str, kind: Kind, values: impl IntoIterator<Item = Value<'a>>) -> Result<()> {
        let (mut bytes, mut len) = (Vec::new(), 0);
        for value in values {
            if kind == Kind::Array {
                return Err(Error::unsupported(format!("key '{key}': an array of arrays is not supported")));
            }
            put(&mut bytes, kind, &value).map_err(|e| e.context(format!("key '{key}'")))?;
            len += 1;
        }
        self.set(key, Kind::Array, Value::Array(Array { kind, len, bytes: &bytes }))
    }

    fn add(&mut self, key: &str, value: &[u8]) -> Result<()> {
        if key.is_empty() || !self.names.insert(key.to_owned()) {
            return Err(Error::invalid_argument(format!("key '{key}' is empty or there already")));
        }
        put_text(&mut self.keys, key);
        self.keys.extend(value);
        self.key_count += 1;
        Ok(())
    }

    /// Adds a tensor of extents `dims`, row-major. Its data come with [`Writer::write`], in the order of these calls.
    ///
    /// # Errors
    /// A name that is too long or there already, or extents that no file can have.
    pub fn tensor(&mut self, name: &str, kind: &'static TensorType, dims: &[usize]) -> Result<()> {
        let reject = |message: String| Error::invalid_argument(format!("tensor '{name}': {message}"));
        if name.is_empty() || name.len() > MAX_NAME_LENGTH {
            return Err(reject(format!("a name of {} bytes: 1 to {MAX_NAME_LENGTH} expected", name.len())));
        }
        if self.tensors.iter().any(|tensor| tensor.name == name) {
            return Err(reject("it is there already".to_owned()));
        }
        let row = dims.last().copied().unwrap_or(1);
        if dims.len() > MAX_DIMS || dims.contains(&0) || !row.is_multiple_of(kind.weights) {
            return Err(reject(format!(
                "extents {dims:?} are impossible: up to {MAX_DIMS}, rows of whole blocks of {} ({})",
                kind.weights, kind.name
            )));
        }
        let elements = dims.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent as u64));
        let bytes = elements.and_then(|n| (n / kind.weights as u64).checked_mul(kind.bytes as u64));
        let end = bytes.and_then(|bytes| self.data.checked_add(bytes)?.checked_next_multiple_of(ALIGNMENT));
        let (Some(bytes), Some(end)) = (bytes, end) else { return Err(reject(format!("extents {dims:?} overflow"))) };
        self.tensors.push(Planned { name: name.to_owned(), kind, dims: dims.to_vec(), bytes, offset: self.data });
        self.data = end;
        Ok(())
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.header().len() as u64 + self.data
    }

    /// Everything before the data, padded.
    pub(crate) fn header(&self) -> Vec<u8> {
        let mut header = b"GGUF".to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend(self.key_count.to_le_bytes());
        header.extend(&self.keys);
        for tensor in &self.tensors {
            put_text(&mut header, &tensor.name);
            header.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().rev().for_each(|&extent| header.extend((extent as u64).to_le_bytes()));
            header.extend(tensor.kind.id().to_le_bytes());
            header.extend(tensor.offset.to_le_bytes());
        }
        header.resize(header.len().next_multiple_of(ALIGNMENT as usize), 0);
        header
    }

    /// Writes the file. `data` is called for each tensor by its number and passes its bytes, in pieces if it likes, to the function that it is given.
    /// The file is written beside `path` and renamed when it is complete; after an error nothing is left.
    ///
    /// # Errors
    /// Those of `data`, more or fewer bytes than the tensor has, or the system's.
    pub fn write(&self, path: &Path, mut data: impl FnMut(usize, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>) -> Result<()> {
        write_file(path, |file| {
            let mut put =
                |bytes: &[u8]| file.write_all(bytes).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e));
            put(&self.header())?;
            for (number, tensor) in self.tensors.iter().enumerate() {
                let mut written = 0;
                data(number, &mut |bytes| {
                    written += bytes.len() as u64;
                    put(bytes)
                })
                .map_err(|e| e.context(format!("tensor '{}'", tensor.name)))?;
                if written != tensor.bytes {
                    return Err(Error::internal(format!("tensor '{}' has {} bytes, {written} were written", tensor.name, tensor.bytes)));
                }
                let padding = (written.next_multiple_of(ALIGNMENT) - written) as usize;
                put(&[0; ALIGNMENT as usize][..padding])?;
            }
            Ok(())
        })
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn put(bytes: &mut Vec<u8>, kind: Kind, value: &Value<'_>) -> Result<()> {
    let reject = || Error::invalid_argument(format!("{value:?} is no {kind}"));
    macro_rules! number {
        ($type:ty, $n:expr) => {
            bytes.extend(<$type>::try_from($n).map_err(|_| reject())?.to_le_bytes())
        };
    }
    match (kind, *value) {
        (Kind::U8, Value::Unsigned(n)) => number!(u8, n),
        (Kind::U16, Value::Unsigned(n)) => number!(u16, n),
        (Kind::U32, Value::Unsigned(n)) => number!(u32, n),
        (Kind::U64, Value::Unsigned(n)) => bytes.extend(n.to_le_bytes()),
        (Kind::I8, Value::Signed(n)) => number!(i8, n),
        (Kind::I16, Value::Signed(n)) => number!(i16, n),
        (Kind::I32, Value::Signed(n)) => number!(i32, n),
        (Kind::I64, Value::Signed(n)) => bytes.extend(n.to_le_bytes()),
        (Kind::F32, Value::Float(x)) => bytes.extend((x as f32).to_le_bytes()),
        (Kind::F64, Value::Float(x)) => bytes.extend(x.to_le_bytes()),
        (Kind::Bool, Value::Bool(b)) => bytes.push(b.into()),
        (Kind::Text, Value::Text(text)) => put_text(bytes, text),
        (Kind::Array, Value::Array(Array { kind, len, bytes: values })) => {
            bytes.extend(kind.id().to_le_bytes());
            bytes.extend((len as u64).to_le_bytes());
            bytes.extend(values);
        }
        (_, Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_)) => return Err(reject()),
    }
    Ok(())
}
