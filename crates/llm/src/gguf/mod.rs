//! GGUF files, versions 2 and 3: metadata and tensors, single or split, mapped and borrowed.
//!
//! Only the header is read. It is checked as a whole: every count, length and product against the file, so that what it describes lies in the file and
//! memory is bounded by the file's size.

mod header;
#[cfg(test)]
pub(crate) mod tests;
mod types;
mod value;
mod vocabulary;
mod writer;

use std::{collections::BTreeMap, path::Path};

use elinvar::{Error, HostMemory, Result};

use crate::map::Mapped;
pub use header::TensorInfo;
use header::{Entry, Header};
pub use types::TensorType;
pub use value::{Array, Kind, Value};
pub(crate) use vocabulary::{TokenKind, Vocabulary};
pub use writer::Writer;

/// A GGUF file, or the parts of a split one.
pub struct Gguf {
    parts: Vec<Part>,
    version: u32,
    metadata: BTreeMap<String, Entry>,
    tensors: BTreeMap<String, TensorInfo>,
}

struct Part {
    label: String,
    memory: HostMemory,
    /// The file, where the memory is a map of it.
    file: Option<Mapped>,
}

const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

impl Gguf {
    /// Opens a file, or all parts of which it is the first (`NAME-00001-of-00003.gguf`). They must not be changed while they are in use.
    ///
    /// # Errors
    /// A file that is missing, damaged, or of a version or type that is not supported; parts that do not belong together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut first = Self::read(path, 0)?;
        let count = first.unsigned(COUNT)?.unwrap_or(1);
        if count > 1 {
            first.add_parts(path, count)?;
        }
        Ok(first)
    }

    /// A file in memory that is no part of a split one.
    ///
    /// # Errors
    /// As [`Gguf::open`].
    pub fn parse(label: &str, memory: HostMemory) -> Result<Self> {
        Self::part(Part { label: label.to_owned(), memory, file: None }, 0)
    }

    fn read(path: &Path, number: usize) -> Result<Self> {
        let file = Mapped::open(path)?;
        Self::part(Part { label: path.display().to_string(), memory: file.memory(), file: Some(file) }, number)
    }

    fn part(part: Part, number: usize) -> Result<Self> {
        let Header { version, metadata, tensors } = header::read(part.memory.bytes(), number).map_err(|e| e.context(&part.label))?;
        Ok(Self { parts: vec![part], version, metadata, tensors })
    }

    fn add_parts(&mut self, path: &Path, count: u64) -> Result<()> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = self.unsigned(NUMBER)?.ok_or_else(|| self.reject(format!("key '{NUMBER}' is missing beside '{COUNT}'")))?;
        let stem = name.strip_suffix(&part_name(number.saturating_add(1), count)).ok_or_else(|| {
            self.reject(format!("it is part {} of {count}, whose names end in '{}'", number.saturating_add(1), part_name(1, count)))
        })?;
        if number != 0 {
            return Err(self.reject(format!("it is part {} of {count}: give the first, '{stem}{}'", number + 1, part_name(1, count))));
        }
        for number in 1..count {
            let path = path.with_file_name(format!("{stem}{}", part_name(number + 1, count)));
            let part = Self::read(&path, self.parts.len())?;
            let found = (part.unsigned(NUMBER)?, part.unsigned(COUNT)?);
            if found != (Some(number), Some(count)) {
                return Err(part.reject(format!("its metadata do not say that it is part {} of {count}", number + 1)));
            }
            if let Some(name) = part.tensors.keys().find(|&name| self.tensors.contains_key(name)) {
                return Err(part.reject(format!("tensor '{name}' is in an earlier part too")));
            }
            self.parts.extend(part.parts);
            self.tensors.extend(part.tensors);
        }
        match self.unsigned(TENSORS)? {
            Some(total) if total != self.tensors.len() as u64 => {
                Err(self.reject(format!("key '{TENSORS}' is {total}, but the parts have {} tensors", self.tensors.len())))
            }
            _ => Ok(()),
        }
    }

    /// What messages call it: the path of the (first) file.
    pub fn label(&self) -> &str {
        self.parts.first().map_or("", |part| &part.label)
    }

    /// The paths of all parts, in their order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| Path::new(&part.label))
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// An error about this file.
    pub(crate) fn reject(&self, message: impl std::fmt::Display) -> Error {
        Error::invalid_data(format!("{}: {message}", self.label()))
    }

    /// All keys with the types of their values, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.metadata.iter().map(|(key, entry)| (key.as_str(), entry.kind))
    }

    /// The value of a key, if it is there.
    ///
    /// # Errors
    /// The value is damaged.
    pub fn value(&self, key: &str) -> Result<Option<Value<'_>>> {
        let (Some(entry), Some(first)) = (self.metadata.get(key), self.parts.first()) else { return Ok(None) };
        let bytes = first.memory.bytes().get(entry.range.clone()).unwrap_or_default();
        let value = match entry.array {
            Some((kind, len)) => Ok(Value::Array(Array { kind, len, bytes })),
            None => value::scalar(entry.kind, bytes).map(|(value, _)| value),
        };
        value.map(Some).map_err(|e| e.context(format!("{}: key '{key}'", self.label())))
    }

    /// A value that `convert` makes something of; `expected` names what that is.
    fn typed<'a, T>(&'a self, key: &str, expected: &str, convert: impl FnOnce(Value<'a>) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.value(key)? else { return Ok(None) };
        let found = || match value {
            Value::Array(Array { kind, len, .. }) => format!("an array of {len} {kind}"),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) | Value::Text(_) => format!("{value:?}").to_lowercase(),
        };
        convert(value).map(Some).ok_or_else(|| self.reject(format!("key '{key}' is {}: {expected} expected", found())))
    }

    /// A number that is not negative.
    ///
    /// # Errors
    /// The value is something else.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a number that is not negative", |value| match value {
            Value::Unsigned(n) => Some(n),
            Value::Signed(n) => n.try_into().ok(),
            Value::Float(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_) => None,
        })
    }

    /// A number with a fraction.
    ///
    /// # Errors
    /// The value is something else.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a floating-point number", |value| match value {
            Value::Float(x) => Some(x),
            Value::Unsigned(_) | Value::Signed(_) | Value::Bool(_) | Value::Text(_) | Value::Array(_) => None,
        })
    }

    /// True or false.
    ///
    /// # Errors
    /// The value is something else.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |value| match value {
            Value::Bool(b) => Some(b),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) => None,
        })
    }

    /// A text.
    ///
    /// # Errors
    /// The value is something else.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", |value| match value {
            Value::Text(text) => Some(text),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) | Value::Array(_) => None,
        })
    }

    /// An array's values, each made something of by `convert`; `expected` names what they are.
    pub(crate) fn list<'a, T>(&'a self, key: &str, expected: &str, convert: impl Fn(Value<'a>) -> Option<T>) -> Result<Option<Vec<T>>> {
        self.typed(key, expected, |value| match value {
            Value::Array(array) => array.values().map(|value| value.ok().and_then(&convert)).collect(),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) | Value::Text(_) => None,
        })
    }

    /// An array of texts.
    ///
    /// # Errors
    /// The value is something else.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<&str>>> {
        self.list(key, "an array of texts", |value| match value {
            Value::Text(text) => Some(text),
            Value::Unsigned(_) | Value::Signed(_) | Value::Float(_) | Value::Bool(_) | Value::Array(_) => None,
        })
    }

    /// All tensors, in alphabetical order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.tensors.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// A tensor's place, if it is there.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// The bytes of its parts.
    pub(crate) fn memory(&self) -> impl Iterator<Item = &HostMemory> {
        self.parts.iter().map(|part| &part.memory)
    }

    /// A tensor's bytes, in the map.
    ///
    /// # Errors
    /// `tensor` is another file's.
    pub fn data(&self, tensor: &TensorInfo) -> Result<HostMemory> {
        let part = self.parts.get(tensor.part).ok_or_else(|| self.reject("the tensor is of another file"))?;
        part.memory.slice(tensor.range.clone())
    }

    /// The file that is mapped where a tensor's bytes lie.
    pub(crate) fn file(&self, tensor: &TensorInfo) -> Option<&Mapped> {
        self.parts.get(tensor.part)?.file.as_ref()
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gguf({})", self.label())
    }
}

/// How the name of a part ends.
fn part_name(number: u64, count: u64) -> String {
    format!("-{number:05}-of-{count:05}.gguf")
}
