//! How the cache stores keys and values.

use std::{fmt, str::FromStr};

use elinvar::{DType, Error, Result, kernels::quantized::Format};

/// How a session stores keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheType {
    /// As floats: f32, f16 or bf16.
    Plain(DType),
    /// Each head's row quantised in blocks of 32 elements, [`Format::Q8_0`]: a signed byte each and an f16 scale, little more than half of f16. Heads have a multiple of
    /// 32 elements.
    Q8_0,
}

impl CacheType {
    /// The elements that hold a head's row, and how many.
    ///
    /// # Errors
    /// A type that is no float, or heads that are not made of whole blocks.
    pub(crate) fn row(self, head_dim: usize) -> Result<(DType, usize)> {
        match self {
            Self::Plain(dtype) if dtype.is_float() => Ok((dtype, head_dim)),
            Self::Plain(dtype) => Err(Error::invalid_argument(format!("a cache of {dtype}: f32, f16, bf16 or q8_0 expected"))),
            Self::Q8_0 => Format::Q8_0.packed_row_bytes(head_dim).map(|bytes| (DType::U8, bytes)).ok_or_else(|| {
                Error::unsupported(format!("a cache of {self} for heads of {head_dim} elements: a multiple of 32 expected, use a cache of f16"))
            }),
        }
    }

    /// Whether heads of so many elements can be stored.
    pub fn takes(self, head_dim: usize) -> bool {
        self.row(head_dim).is_ok()
    }

    /// Bytes of a head's row; where there is none, of the next longer one.
    pub(crate) fn row_bytes(self, head_dim: usize) -> usize {
        let bytes = match self {
            Self::Plain(dtype) => dtype.bytes(head_dim),
            Self::Q8_0 => head_dim.checked_next_multiple_of(Format::Q8_0.weights()).and_then(|n| Format::Q8_0.packed_row_bytes(n)),
        };
        bytes.unwrap_or(usize::MAX)
    }
}

impl From<DType> for CacheType {
    fn from(dtype: DType) -> Self {
        Self::Plain(dtype)
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => dtype.fmt(f),
            Self::Q8_0 => f.write_str("q8_0"),
        }
    }
}

impl FromStr for CacheType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name.eq_ignore_ascii_case("q8_0") {
            return Ok(Self::Q8_0);
        }
        let dtype = DType::FLOATS.iter().find(|dtype| dtype.name() == name);
        dtype
            .map(|&dtype| Self::Plain(dtype))
            .ok_or_else(|| Error::invalid_argument(format!("unknown type of cache '{name}': expected f32, f16, bf16 or q8_0")))
    }
}
