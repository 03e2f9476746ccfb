//! Values of metadata, borrowed from the file.

use std::fmt;

use elinvar::{Error, Result};

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

impl Kind {
    /// In the order of their numbers in files.
    const ALL: [(Kind, &'static str, usize); 13] = [
        (Kind::U8, "u8", 1),
        (Kind::I8, "i8", 1),
        (Kind::U16, "u16", 2),
        (Kind::I16, "i16", 2),
        (Kind::U32, "u32", 4),
        (Kind::I32, "i32", 4),
        (Kind::F32, "f32", 4),
        (Kind::Bool, "bool", 1),
        (Kind::Text, "string", 8),
        (Kind::Array, "array", 12),
        (Kind::U64, "u64", 8),
        (Kind::I64, "i64", 8),
        (Kind::F64, "f64", 8),
    ];

    pub(super) fn find(id: u32) -> Result<Self> {
        let found = usize::try_from(id).ok().and_then(|id| Self::ALL.get(id));
        found.map(|(kind, ..)| *kind).ok_or_else(|| Error::invalid_data(format!("value type {id} is unknown")))
    }

    /// The number of it in files.
    pub(super) fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of a value, at least.
    pub(super) fn bytes(self) -> usize {
        Self::ALL[self as usize].2
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[*self as usize].1)
    }
}

/// A value of metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// u8 to u64.
    Unsigned(u64),
    /// i8 to i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(&'a str),
    /// Values of one type.
    Array(Array<'a>),
}

/// Values of one type, which is no array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    /// Their type.
    pub kind: Kind,
    /// How many.
    pub len: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The values in order.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>>> + use<'a> {
        let (kind, mut rest) = (self.kind, self.bytes);
        (0..self.len).map(move |_| {
            let (value, bytes) = scalar(kind, rest)?;
            rest = rest.get(bytes..).unwrap_or_default();
            Ok(value)
        })
    }
}

/// The value that `bytes` begin with, which is no array, and the bytes it takes.
pub(super) fn scalar(kind: Kind, bytes: &[u8]) -> Result<(Value<'_>, usize)> {
    let value = match kind {
        Kind::U8 => Value::Unsigned(u8::from_le_bytes(first(bytes)?).into()),
        Kind::I8 => Value::Signed(i8::from_le_bytes(first(bytes)?).into()),
        Kind::U16 => Value::Unsigned(u16::from_le_bytes(first(bytes)?).into()),
        Kind::I16 => Value::Signed(i16::from_le_bytes(first(bytes)?).into()),
        Kind::U32 => Value::Unsigned(u32::from_le_bytes(first(bytes)?).into()),
        Kind::I32 => Value::Signed(i32::from_le_bytes(first(bytes)?).into()),
        Kind::U64 => Value::Unsigned(u64::from_le_bytes(first(bytes)?)),
        Kind::I64 => Value::Signed(i64::from_le_bytes(first(bytes)?)),
        Kind::F32 => Value::Float(f32::from_le_bytes(first(bytes)?).into()),
        Kind::F64 => Value::Float(f64::from_le_bytes(first(bytes)?)),
        Kind::Bool => match first(bytes)? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            [other] => return Err(Error::invalid_data(format!("a bool is {other}: 0 or 1 expected"))),
        },
        Kind::Text => {
            let text = text(bytes)?;
            let valid = std::str::from_utf8(text).map_err(|_| Error::invalid_data(format!("a text of {} bytes is not UTF-8", text.len())))?;
            return Ok((Value::Text(valid), 8 + text.len()));
        }
        Kind::Array => return Err(Error::unsupported("an array of arrays is not supported")),
    };
    Ok((value, kind.bytes()))
}

/// The text that `bytes` begin with: its length (u64), then its bytes.
pub(super) fn text(bytes: &[u8]) -> Result<&[u8]> {
    let length = u64::from_le_bytes(first(bytes)?);
    let rest = bytes.get(8..).unwrap_or_default();
    usize::try_from(length)
        .ok()
        .and_then(|length| rest.get(..length))
        .ok_or_else(|| Error::invalid_data(format!("a text of {length} bytes, but only {} follow: the file is cut or damaged", rest.len())))
}

fn first<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.first_chunk().copied().ok_or_else(|| Error::invalid_data("the file is cut"))
}
