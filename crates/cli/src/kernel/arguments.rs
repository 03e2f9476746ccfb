//! What a kernel is given, as the command line says it.

use std::{fs, path::Path, str::FromStr};

use elinvar::{DType, Error, ErrorKind, Result, SplitMix64};
use elinvar_check::encode;
use half::{bf16, f16};
use safetensors::SafeTensors;

/// `NAME=TYPE:COUNT`, `NAME=TYPE:COUNT:VALUE` or `NAME=FILE#TENSOR`.
#[derive(Clone, Debug)]
pub(crate) struct BufferArgument {
    pub(crate) name: String,
    contents: Contents,
}

#[derive(Clone, Debug)]
enum Contents {
    Random { dtype: DType, count: usize },
    Repeated { dtype: DType, count: usize, value: Vec<u8> },
    Tensor { file: String, tensor: String },
}

/// `NAME=TYPE:VALUE[,VALUE…]`: bytes for a constant.
#[derive(Clone, Debug)]
pub(crate) struct ValueArgument {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// `NAME=BYTES` of threadgroup memory.
#[derive(Clone, Debug)]
pub(crate) struct SizeArgument {
    pub(crate) name: String,
    pub(crate) bytes: usize,
}

/// `NAME=VALUE` of a function constant.
#[derive(Clone, Debug)]
pub(crate) struct ConstantArgument {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// `X`, `X,Y` or `X,Y,Z`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentArgument(pub(crate) [u32; 3]);

impl FromStr for BufferArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, contents) = named(text, "NAME=TYPE:COUNT, NAME=TYPE:COUNT:VALUE or NAME=FILE#TENSOR")?;
        let contents = match contents.rsplit_once('#') {
            Some((file, tensor)) => Contents::Tensor { file: file.into(), tensor: tensor.into() },
            None => sized(contents)?,
        };
        Ok(Self { name, contents })
    }
}

fn sized(text: &str) -> Result<Contents> {
    let mut parts = text.split(':');
    let dtype = DType::of_program(parts.next().unwrap_or_default())?;
    let count = parts.next().and_then(|count| count.parse().ok());
    let count = count.ok_or_else(|| Error::invalid_argument(format!("'{text}': write a type and a number of elements, such as f32:256")))?;
    match (parts.next(), parts.next()) {
        (None, _) => Ok(Contents::Random { dtype, count }),
        (Some(value), None) => Ok(Contents::Repeated { dtype, count, value: encode(dtype, value)? }),
        _ => Err(Error::invalid_argument(format!("'{text}': write TYPE:COUNT or TYPE:COUNT:VALUE"))),
    }
}

impl BufferArgument {
    /// The elements' type and bytes; random ones depend on `seed` and the buffer's place among the arguments.
    pub(crate) fn bytes(&self, seed: u64, place: usize) -> Result<(DType, Vec<u8>)> {
        match &self.contents {
            Contents::Random { dtype, count } => {
                let size = checked_size(*count, dtype.size())?;
                let mut random = SplitMix64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (place as u64) << 32);
                let mut bytes = Vec::with_capacity(size);
                (0..*count).for_each(|_| random_element(random.next_u64(), *dtype, &mut bytes));
                Ok((*dtype, bytes))
            }
            Contents::Repeated { dtype, count, value } => {
                checked_size(*count, value.len())?;
                Ok((*dtype, value.repeat(*count)))
            }
            Contents::Tensor { file, tensor } => tensor_bytes(Path::new(file), tensor),
        }
    }
}

/// Bytes a buffer may have.
const MAX_BYTES: usize = 1 << 31;

fn checked_size(count: usize, size: usize) -> Result<usize> {
    let bytes = count.checked_mul(size).filter(|&bytes| bytes <= MAX_BYTES);
    bytes.ok_or_else(|| Error::invalid_argument(format!("{count} elements of {size} bytes: a buffer holds at most {MAX_BYTES} bytes here")))
}

fn tensor_bytes(file: &Path, tensor: &str) -> Result<(DType, Vec<u8>)> {
    let shown = file.display();
    let bytes = fs::read(file).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {shown}"), e))?;
    let tensors =
        SafeTensors::deserialize(&bytes).map_err(|e| Error::with_source(ErrorKind::InvalidData, format!("{shown} is no safetensors file"), e))?;
    let view = tensors.tensor(tensor).map_err(|_| {
        let names: Vec<_> = tensors.names();
        Error::invalid_argument(format!("{shown} has no tensor '{tensor}': it has {}", names.join(", ")))
    })?;
    let dtype = crate::tensors::dtype(view.dtype()).unwrap_or(DType::U8);
    Ok((dtype, view.data().to_vec()))
}

impl FromStr for ValueArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const FORM: &str = "NAME=TYPE:VALUE or NAME=TYPE:VALUE,VALUE,…";
        let (name, value) = named(text, FORM)?;
        let (dtype, values) = value.split_once(':').ok_or_else(|| Error::invalid_argument(format!("'{text}': write {FORM}")))?;
        let dtype = dtype.parse()?;
        let bytes = values.split(',').map(|value| encode(dtype, value)).collect::<Result<Vec<_>>>()?.concat();
        Ok(Self { name, bytes })
    }
}

impl FromStr for SizeArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, bytes) = named(text, "NAME=BYTES")?;
        let bytes = bytes.parse().map_err(|_| Error::invalid_argument(format!("'{text}': '{bytes}' is no number of bytes")))?;
        Ok(Self { name, bytes })
    }
}

impl FromStr for ConstantArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = named(text, "NAME=VALUE")?;
        Ok(Self { name, value: value.into() })
    }
}

impl FromStr for ExtentArgument {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut extents = [1; 3];
        let parts: Vec<_> = text.split([',', 'x']).collect();
        if parts.len() > 3 {
            return Err(Error::invalid_argument(format!("'{text}' has {} extents: write X, X,Y or X,Y,Z", parts.len())));
        }
        for (extent, part) in extents.iter_mut().zip(parts) {
            *extent = part.trim().parse().map_err(|_| match part.trim().parse::<u128>() {
                Ok(_) => Error::invalid_argument(format!("'{text}': an extent is at most {}", u32::MAX)),
                Err(_) => Error::invalid_argument(format!("'{text}': write X, X,Y or X,Y,Z")),
            })?;
        }
        if extents.contains(&0) {
            return Err(Error::invalid_argument(format!("'{text}' is empty: every extent must be at least 1")));
        }
        Ok(Self(extents))
    }
}

fn named<'a>(text: &'a str, form: &str) -> Result<(String, &'a str)> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name.to_owned(), rest)),
        _ => Err(Error::invalid_argument(format!("'{text}': write {form}"))),
    }
}

/// An element of random bits: floating-point numbers in [-1, 1), integers in [0, 100), either truth value.
fn random_element(bits: u64, dtype: DType, bytes: &mut Vec<u8>) {
    let float = (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
    match dtype {
        DType::F32 => bytes.extend(float.to_ne_bytes()),
        DType::F64 => bytes.extend(f64::from(float).to_ne_bytes()),
        DType::F16 => bytes.extend(f16::from_f32(float).to_ne_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f32(float).to_ne_bytes()),
        DType::Bool => bytes.push((bits & 1) as u8),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            bytes.extend_from_slice(&(bits % 100).to_le_bytes()[..dtype.size()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_sized_filled_or_random_by_seed() {
        let bytes = |text: &str, seed| text.parse::<BufferArgument>().and_then(|b| b.bytes(seed, 0)).map(|(_, bytes)| bytes);
        assert_eq!(bytes("x=f32:3", 1).unwrap().len(), 12);
        assert_eq!(bytes("x=f32:3", 1).unwrap(), bytes("x=f32:3", 1).unwrap());
        assert_ne!(bytes("x=f32:3", 1).unwrap(), bytes("x=f32:3", 2).unwrap());
        assert_eq!(bytes("x=u16:2:258", 1).unwrap(), [2, 1, 2, 1]);
        for wrong in ["x", "=f32:3", "x=f32", "x=f99:3", "x=f32:-1", "x=f32:3:a", "x=f32:3:1:1"] {
            assert!(wrong.parse::<BufferArgument>().is_err(), "{wrong}");
        }
        assert!(bytes("x=f32:99999999999999", 1).unwrap_err().to_string().contains("at most"));
        assert!(bytes("x=nowhere.safetensors#a", 1).unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn values_and_extents_are_read() {
        assert_eq!("n=u32:1,2".parse::<ValueArgument>().unwrap().bytes, [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!("n=bool:true".parse::<ValueArgument>().unwrap().bytes, [1]);
        assert!("n=u8:256".parse::<ValueArgument>().is_err() && "n=7".parse::<ValueArgument>().is_err());
        assert_eq!("4,2".parse::<ExtentArgument>().unwrap().0, [4, 2, 1]);
        assert_eq!("4x2x3".parse::<ExtentArgument>().unwrap().0, [4, 2, 3]);
        assert!("1,4294967296".parse::<ExtentArgument>().unwrap_err().to_string().contains("at most 4294967295"));
        assert!("0".parse::<ExtentArgument>().is_err() && "1,2,3,4".parse::<ExtentArgument>().is_err() && "".parse::<ExtentArgument>().is_err());
    }
}
