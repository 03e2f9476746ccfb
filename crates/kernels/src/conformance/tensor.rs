use elinvar_core::{DType, Element, Error, Layout, Result, Shape, SplitMix64};
use half::{bf16, f16};

use crate::{TensorInfo, float::Float};

/// A tensor in host memory: row-major, or a strided view of the bytes that its elements span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTensor {
    dtype: DType,
    dims: Vec<usize>,
    bytes: Vec<u8>,
    view: Option<Layout>,
}

/// Calls `$body` with `$type` standing for the element type of `$dtype`.
macro_rules! with_type {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            DType::I8 => {
                type $type = i8;
                $body
            }
            DType::I16 => {
                type $type = i16;
                $body
            }
            DType::I32 => {
                type $type = i32;
                $body
            }
            DType::I64 => {
                type $type = i64;
                $body
            }
            DType::U16 => {
                type $type = u16;
                $body
            }
            DType::U32 => {
                type $type = u32;
                $body
            }
            DType::U64 => {
                type $type = u64;
                $body
            }
            _ => {
                type $type = u8;
                $body
            }
        }
    };
}

impl HostTensor {
    /// From typed elements.
    pub fn new<T: Element>(dims: &[usize], values: &[T]) -> Self {
        assert_eq!(dims.iter().product::<usize>(), values.len());
        Self { dtype: T::DTYPE, dims: dims.to_vec(), bytes: bytemuck::cast_slice(values).to_vec(), view: None }
    }

    /// From values rounded to `dtype`.
    pub fn from_f64(dtype: DType, dims: &[usize], values: &[f64]) -> Self {
        fn pack<T: bytemuck::NoUninit>(values: impl Iterator<Item = T>) -> Vec<u8> {
            bytemuck::cast_slice(&values.collect::<Vec<T>>()).to_vec()
        }
        assert_eq!(dims.iter().product::<usize>(), values.len());
        let values = values.iter().copied();
        let bytes = match dtype {
            DType::F32 => pack(values.map(|v| v as f32)),
            DType::F16 => pack(values.map(|v| <f16 as Float>::from_f32(v as f32))),
            DType::BF16 => pack(values.map(|v| <bf16 as Float>::from_f32(v as f32))),
            DType::Bool => pack(values.map(|v| u8::from(v != 0.0))),
            _ => with_type!(dtype, T => pack(values.map(|v| v as T))),
        };
        Self { dtype, dims: dims.to_vec(), bytes, view: None }
    }

    /// Seeded uniform values in `low..high` (whole numbers for integers).
    pub fn random(dtype: DType, dims: &[usize], low: f64, high: f64, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1);
        let mut next = || random.next_u64() >> 11;
        let values: Vec<f64> = (0..dims.iter().product()).map(|_| low + (high - low) * next() as f64 / (1u64 << 53) as f64).collect();
        Self::from_f64(dtype, dims, &values)
    }

    /// From the bytes of a device.
    ///
    /// # Errors
    /// A number of bytes that is not the shape's.
    pub fn from_bytes(dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Self> {
        if dtype.bytes(dims.iter().product()) != Some(bytes.len()) {
            return Err(Error::invalid_data(format!("{} bytes for {dtype}{dims:?}", bytes.len())));
        }
        Ok(Self { dtype, dims: dims.to_vec(), bytes: bytes.to_vec(), view: None })
    }

    /// Some rows of a row-major tensor, along its first axis.
    pub(super) fn rows(&self, first: usize, count: usize) -> Self {
        let bytes = self.bytes.len() / self.dims[0].max(1);
        let dims = [&[count], &self.dims[1..]].concat();
        Self { dims, bytes: self.bytes[first * bytes..(first + count) * bytes].to_vec(), ..self.clone() }
    }

    /// A view of a row-major tensor: permuted, sliced or broadcast.
    ///
    /// # Errors
    /// What `change` rejects.
    pub fn viewed(self, change: impl FnOnce(Layout) -> Result<Layout>) -> Result<Self> {
        let view = change(Layout::contiguous(Shape::new(&self.dims)?))?;
        let (span, size) = (view.span(), self.dtype.size());
        let bytes = self.bytes[span.start * size..span.end * size].to_vec();
        Ok(Self { dtype: self.dtype, dims: view.shape().to_vec(), bytes, view: Some(view) })
    }

    /// The same with other values for elements, numbered as they lie in memory, that `change` has one for.
    pub(super) fn replaced(&self, change: impl Fn(usize) -> Option<f64>) -> Self {
        let values: Vec<f64> = self.spanned().iter().enumerate().map(|(at, &value)| change(at).unwrap_or(value)).collect();
        Self { bytes: Self::from_f64(self.dtype, &[values.len()], &values).bytes, ..self.clone() }
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The bytes the elements span.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What an operator sees of it.
    ///
    /// # Errors
    /// A shape beyond the limits.
    pub fn info(&self) -> Result<TensorInfo> {
        let row_major = TensorInfo::new(self.dtype, &self.dims)?;
        Ok(self.view.map_or(row_major, |layout| TensorInfo { layout, ..row_major }))
    }

    /// The elements in row-major order, widened.
    pub fn to_f64(&self) -> Vec<f64> {
        let spanned = self.spanned();
        let Some(view) = &self.view else { return spanned };
        let at = |flat: usize| {
            let mut rest = flat;
            let mut index = view.origin() as isize;
            for (extent, stride) in view.shape().iter().zip(view.strides()).rev() {
                index += (rest % extent) as isize * stride;
                rest /= extent;
            }
            spanned[index as usize]
        };
        (0..view.shape().elements()).map(at).collect()
    }

    /// The first element, in memory, whose bits differ from those of a result of the same type; all NaNs are alike.
    pub fn first_difference(&self, other: &HostTensor) -> Option<usize> {
        let size = self.dtype.size();
        let differs = |&at: &usize| self.bytes.get(at * size..(at + 1) * size) != other.bytes.get(at * size..(at + 1) * size);
        let mut differing = (0..self.bytes.len().max(other.bytes.len()) / size).filter(differs).peekable();
        differing.peek()?;
        let (one, two) = (self.spanned(), other.spanned());
        differing.find(|&at| !(one.get(at).is_some_and(|x| x.is_nan()) && two.get(at).is_some_and(|x| x.is_nan())))
    }

    fn spanned(&self) -> Vec<f64> {
        fn unpack<T: bytemuck::AnyBitPattern>(bytes: &[u8], widen: impl Fn(T) -> f64) -> Vec<f64> {
            bytes.chunks_exact(size_of::<T>()).map(|c| widen(bytemuck::pod_read_unaligned(c))).collect()
        }
        match self.dtype {
            DType::F32 => unpack::<f32>(&self.bytes, f64::from),
            DType::F16 => unpack::<f16>(&self.bytes, f64::from),
            DType::BF16 => unpack::<bf16>(&self.bytes, f64::from),
            dtype => with_type!(dtype, T => unpack::<T>(&self.bytes, |v| v as f64)),
        }
    }
}
