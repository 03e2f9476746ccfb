//! The types of tensors.

use elinvar::{DType, Error, Result, kernels::quantized::Format};
use half::{bf16, f16};

/// A type of tensor data: its number in files, its name and its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorType {
    id: u32,
    /// The name that GGUF tools use.
    pub name: &'static str,
    /// Weights of a block; rows consist of whole blocks.
    pub weights: usize,
    /// Bytes of a block.
    pub bytes: usize,
    encoding: Encoding,
}

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    F32,
    F16,
    Bf16,
    F64,
    I8,
    I16,
    I32,
    I64,
    Block(Format),
    Unsupported,
}

const fn plain(id: u32, name: &'static str, bytes: usize, encoding: Encoding) -> TensorType {
    TensorType { id, name, weights: 1, bytes, encoding }
}

const fn block(id: u32, format: Format) -> TensorType {
    TensorType { id, name: format.name(), weights: format.weights(), bytes: format.bytes(), encoding: Encoding::Block(format) }
}

const fn unsupported(id: u32, name: &'static str, weights: usize, bytes: usize) -> TensorType {
    TensorType { id, name, weights, bytes, encoding: Encoding::Unsupported }
}

const TYPES: [TensorType; 33] = [
    plain(0, "F32", 4, Encoding::F32),
    plain(1, "F16", 2, Encoding::F16),
    block(2, Format::Q4_0),
    block(3, Format::Q4_1),
    block(6, Format::Q5_0),
    block(7, Format::Q5_1),
    block(8, Format::Q8_0),
    unsupported(9, "Q8_1", 32, 36),
    block(10, Format::Q2K),
    block(11, Format::Q3K),
    block(12, Format::Q4K),
    block(13, Format::Q5K),
    block(14, Format::Q6K),
    unsupported(15, "Q8_K", 256, 292),
    unsupported(16, "IQ2_XXS", 256, 66),
    unsupported(17, "IQ2_XS", 256, 74),
    unsupported(18, "IQ3_XXS", 256, 98),
    unsupported(19, "IQ1_S", 256, 50),
    block(20, Format::Iq4Nl),
    unsupported(21, "IQ3_S", 256, 110),
    unsupported(22, "IQ2_S", 256, 82),
    block(23, Format::Iq4Xs),
    plain(24, "I8", 1, Encoding::I8),
    plain(25, "I16", 2, Encoding::I16),
    plain(26, "I32", 4, Encoding::I32),
    plain(27, "I64", 8, Encoding::I64),
    plain(28, "F64", 8, Encoding::F64),
    unsupported(29, "IQ1_M", 256, 56),
    plain(30, "BF16", 2, Encoding::Bf16),
    unsupported(34, "TQ1_0", 256, 54),
    unsupported(35, "TQ2_0", 256, 66),
    block(39, Format::Mxfp4),
    unsupported(40, "NVFP4", 64, 36),
];

/// Types that existed once: repacked forms and others, by number.
const REMOVED: [u32; 8] = [4, 5, 31, 32, 33, 36, 37, 38];

impl TensorType {
    /// The type of this number.
    pub(super) fn find(id: u32) -> Result<&'static Self> {
        TYPES.iter().find(|t| t.id == id).ok_or_else(|| {
            let what = if REMOVED.contains(&id) { "was removed from the format: convert the model again" } else { "is unknown" };
            Error::unsupported(format!("type {id} {what}"))
        })
    }

    /// The number of it in files.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    fn with(encoding: Encoding) -> Result<&'static Self> {
        TYPES.iter().find(|t| t.encoding == encoding).ok_or_else(|| Error::unsupported("a type that GGUF files lack"))
    }

    /// The type of blocks of a format.
    ///
    /// # Errors
    /// A format that is none of GGUF files.
    pub fn of_format(format: Format) -> Result<&'static Self> {
        Self::with(Encoding::Block(format))
    }

    /// The type of plain floats.
    ///
    /// # Errors
    /// `dtype` is not f32, f16 or bf16.
    pub fn of_dtype(dtype: DType) -> Result<&'static Self> {
        match dtype {
            DType::F32 => Self::with(Encoding::F32),
            DType::F16 => Self::with(Encoding::F16),
            DType::BF16 => Self::with(Encoding::Bf16),
            DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool => {
                Err(Error::invalid_argument(format!("weights cannot be written as {dtype}: f32, f16 or bf16 expected")))
            }
        }
    }

    /// Encodes a row: floats rounded to nearest even, or blocks as [`Format::encode`] has them, with its `importance`.
    ///
    /// # Errors
    /// A type that is not written, lengths that do not fit, or values that it cannot hold.
    pub fn encode(&self, values: &[f32], importance: Option<&[f32]>, bytes: &mut [u8]) -> Result<()> {
        if let Some(format) = self.format() {
            return format.encode(values, importance, bytes);
        }
        if bytes.len() != values.len() * self.bytes {
            return Err(Error::internal(format!("{} values of {} in {} bytes", values.len(), self.name, bytes.len())));
        }
        match self.encoding {
            Encoding::F32 => put(values, bytes, f32::to_le_bytes),
            Encoding::F16 => {
                if let Some(value) = values.iter().find(|v| v.is_finite() && f16::from_f32(**v).is_infinite()) {
                    return Err(Error::unsupported(format!("the value {value} is beyond f16's range: bf16 and f32 have it")));
                }
                put(values, bytes, |value| f16::from_f32(value).to_le_bytes());
            }
            Encoding::Bf16 => put(values, bytes, |value| bf16::from_f32(value).to_le_bytes()),
            Encoding::F64 | Encoding::I8 | Encoding::I16 | Encoding::I32 | Encoding::I64 | Encoding::Block(_) | Encoding::Unsupported => {
                return Err(Error::unsupported(format!("type {} is not written", self.name)));
            }
        }
        Ok(())
    }

    /// Whether [`TensorType::decode`] knows it.
    pub fn is_supported(&self) -> bool {
        self.encoding != Encoding::Unsupported
    }

    /// The type of a tensor of this library with the same bytes.
    pub fn dtype(&self) -> Option<DType> {
        match self.encoding {
            Encoding::F32 => Some(DType::F32),
            Encoding::F16 => Some(DType::F16),
            Encoding::Bf16 => Some(DType::BF16),
            Encoding::F64 | Encoding::I8 | Encoding::I16 | Encoding::I32 | Encoding::I64 | Encoding::Block(_) | Encoding::Unsupported => None,
        }
    }

    /// The format of its blocks, if it has any.
    pub fn format(&self) -> Option<Format> {
        if let Encoding::Block(format) = self.encoding { Some(format) } else { None }
    }

    /// Decodes whole blocks. f64 and integers are rounded to the nearest f32.
    ///
    /// # Errors
    /// A type that is not supported, or lengths that do not fit.
    pub fn decode(&self, blocks: &[u8], values: &mut [f32]) -> Result<()> {
        if blocks.len() / self.bytes * self.weights != values.len() || !blocks.len().is_multiple_of(self.bytes) {
            return Err(Error::internal(format!("{} bytes of {} are not {} values", blocks.len(), self.name, values.len())));
        }
        match self.encoding {
            Encoding::F16 => each(blocks, values, |b| f16::from_le_bytes(b).to_f32()),
            Encoding::Bf16 => each(blocks, values, |b| bf16::from_le_bytes(b).to_f32()),
            Encoding::F32 => each(blocks, values, f32::from_le_bytes),
            Encoding::F64 => each(blocks, values, |b| f64::from_le_bytes(b) as f32),
            Encoding::I8 => each(blocks, values, |b| i8::from_le_bytes(b).into()),
            Encoding::I16 => each(blocks, values, |b| i16::from_le_bytes(b).into()),
            Encoding::I32 => each(blocks, values, |b| i32::from_le_bytes(b) as f32),
            Encoding::I64 => each(blocks, values, |b| i64::from_le_bytes(b) as f32),
            Encoding::Block(format) => return format.decode(blocks, values),
            Encoding::Unsupported => return Err(Error::unsupported(format!("type {} is not supported", self.name))),
        }
        Ok(())
    }
}

fn each<const BYTES: usize>(numbers: &[u8], values: &mut [f32], number: impl Fn([u8; BYTES]) -> f32) {
    for (bytes, value) in numbers.as_chunks().0.iter().zip(values) {
        *value = number(*bytes);
    }
}

fn put<const BYTES: usize>(values: &[f32], bytes: &mut [u8], number: impl Fn(f32) -> [u8; BYTES]) {
    bytes.as_chunks_mut().0.iter_mut().zip(values).for_each(|(bytes, &value)| *bytes = number(value));
}
