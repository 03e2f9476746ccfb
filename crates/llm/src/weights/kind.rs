//! What matrices of weights are made of.

use std::{fmt, str::FromStr};

use elinvar::{DType, Error, Result, kernels::quantized::Format};

/// The type of a matrix of weights on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// Elements of a floating-point type.
    Plain(DType),
    /// Elements quantised in blocks, packed.
    Block(Format),
}

impl WeightType {
    /// Bytes of a row.
    ///
    /// # Errors
    /// Rows that are not made of whole blocks.
    pub fn row_bytes(self, columns: usize) -> Result<usize> {
        let bytes = match self {
            Self::Plain(dtype) => dtype.bytes(columns),
            Self::Block(format) => format.packed_row_bytes(columns),
        };
        bytes.ok_or_else(|| Error::invalid_data(format!("rows of {columns} weights are not made of whole blocks of {self}")))
    }

    /// Bytes of so many weights, without what rows are filled up with.
    pub fn bytes(self, weights: u128) -> u128 {
        // Of many.
        const MANY: usize = 1 << 20;
        weights.saturating_mul(self.row_bytes(MANY).unwrap_or(usize::MAX) as u128).div_ceil(MANY as u128)
    }

    /// The type of the vectors beside such matrices.
    pub(crate) fn of_vectors(self) -> DType {
        match self {
            Self::Plain(dtype) => dtype,
            Self::Block(_) => DType::F32,
        }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => dtype.fmt(f),
            Self::Block(format) => format.fmt(f),
        }
    }
}

/// `bf16`; `Q4_0`, in letters of either case.
impl FromStr for WeightType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if let Some(&dtype) = DType::FLOATS.iter().find(|dtype| dtype.name() == name) {
            return Ok(Self::Plain(dtype));
        }
        let format = Format::ALL.iter().find(|format| format.name().eq_ignore_ascii_case(name));
        format.map(|&format| Self::Block(format)).ok_or_else(|| {
            let names: Vec<_> = DType::FLOATS.iter().map(|d| d.name()).chain(Format::ALL.iter().map(|f| f.name())).collect();
            Error::invalid_argument(format!("unknown type of weights '{name}': expected one of {}", names.join(", ")))
        })
    }
}
