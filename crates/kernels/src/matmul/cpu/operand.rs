//! What a matrix product reads and writes: strided matrices of f32, f16 or bf16.

use std::{marker::PhantomData, slice};

use elinvar_core::DType;
use half::{bf16, f16};

use super::{simd::Simd, tile::Side};
use crate::float::Float;

/// An element type that vectors can be loaded from, and rows of sums rounded to.
pub(crate) trait Load: Float {
    /// # Safety
    /// `source` is valid for reading [`Simd::LANES`] elements (any alignment).
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector;

    /// Rounds `sums` into `target`, which has their length.
    fn narrow(sums: &[f32], target: &mut [Self]);
}

impl Load for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { simd.load(source) }
    }

    #[inline(always)]
    fn narrow(sums: &[f32], target: &mut [Self]) {
        // By vectors: a row of a tile is too short for a call of `memcpy`.
        let ((vectors, rest), (from, from_rest)) = (target.as_chunks_mut::<16>(), sums.as_chunks::<16>());
        vectors.iter_mut().zip(from).for_each(|(target, sums)| *target = *sums);
        rest.iter_mut().zip(from_rest).for_each(|(target, sum)| *target = *sum);
    }
}

impl Load for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { simd.load_f16(source) }
    }

    #[inline(always)]
    fn narrow(sums: &[f32], target: &mut [Self]) {
        Float::narrow_into(sums, target);
    }
}

impl Load for bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { simd.load_bf16(source) }
    }

    #[inline(always)]
    fn narrow(sums: &[f32], target: &mut [Self]) {
        Float::narrow_into(sums, target);
    }
}

/// Elements of one of the three types.
#[derive(Clone, Copy)]
pub(crate) enum Values<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    Bf16(&'a [bf16]),
}

/// Runs an expression with `$slice` bound to the elements in their own type.
macro_rules! with_values {
    ($values:expr, |$slice:ident| $body:expr) => {
        match $values {
            $crate::matmul::cpu::operand::Values::F32($slice) => $body,
            $crate::matmul::cpu::operand::Values::F16($slice) => $body,
            $crate::matmul::cpu::operand::Values::Bf16($slice) => $body,
        }
    };
}
pub(crate) use with_values;

impl Values<'_> {
    pub(crate) fn len(&self) -> usize {
        with_values!(self, |v| v.len())
    }
}

/// A strided view of a matrix. Every element is in bounds.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: Values<'a>,
    origin: usize,
    dims: [usize; 2],
    strides: [isize; 2],
}

impl<'a> Matrix<'a> {
    /// Element `(r, c)` is `values[origin + r * strides[0] + c * strides[1]]`; `None` where one lies outside `values`.
    pub(crate) fn new(values: Values<'a>, origin: usize, dims: [usize; 2], strides: [isize; 2]) -> Option<Self> {
        fits(values.len(), origin, dims, strides).then_some(Self { values, origin, dims, strides })
    }

    pub(crate) fn values(&self) -> Values<'a> {
        self.values
    }

    pub(crate) fn dtype(&self) -> DType {
        match self.values {
            Values::F32(_) => DType::F32,
            Values::F16(_) => DType::F16,
            Values::Bf16(_) => DType::BF16,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.dims[0]
    }

    pub(crate) fn columns(&self) -> usize {
        self.dims[1]
    }

    /// Whether the elements of a row are next to each other.
    pub(crate) fn has_contiguous_rows(&self) -> bool {
        self.dims[1] <= 1 || self.strides[1] == 1
    }

    /// Whether the elements of a column are next to each other.
    pub(crate) fn has_contiguous_columns(&self) -> bool {
        self.dims[0] <= 1 || self.strides[0] == 1
    }

    /// The matrix as the operand of a tile, where it is of f32 and no stride is negative.
    pub(crate) fn side(&self) -> Option<Side<'a>> {
        let [row, step] = self.strides.map(|stride| usize::try_from(stride).ok());
        match self.values {
            Values::F32(values) => Some(Side { values: values.get(self.origin..)?, row: row?, step: step? }),
            Values::F16(_) | Values::Bf16(_) => None,
        }
    }

    /// Where element `(row, column)` lies in the values.
    #[inline(always)]
    pub(crate) fn index(&self, row: usize, column: usize) -> usize {
        (self.origin as isize + row as isize * self.strides[0] + column as isize * self.strides[1]) as usize
    }
}

/// Whether a strided matrix lies inside `length` elements.
fn fits(length: usize, origin: usize, dims: [usize; 2], strides: [isize; 2]) -> bool {
    if dims.contains(&0) {
        return true;
    }
    let (mut low, mut high) = (origin as i128, origin as i128);
    for (extent, stride) in dims.into_iter().zip(strides) {
        let reach = (extent as i128 - 1) * stride as i128;
        low += reach.min(0);
        high += reach.max(0);
    }
    low >= 0 && high < length as i128
}

/// Elements to be written, of one of the three types.
pub(crate) enum ValuesMut<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
    Bf16(&'a mut [bf16]),
}

impl ValuesMut<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(v) => v.len(),
            Self::F16(v) => v.len(),
            Self::Bf16(v) => v.len(),
        }
    }
}

#[derive(Clone, Copy)]
enum Pointer {
    F32(*mut f32),
    F16(*mut f16),
    Bf16(*mut bf16),
}

/// Where the sums go: `round(alpha * sum + bias[column] + addend[row, column])` in that order, each step in f32, absent terms skipped.
pub(crate) struct Target<'a> {
    pointer: Pointer,
    rows: usize,
    columns: usize,
    row_stride: usize,
    alpha: f32,
    bias: Option<Values<'a>>,
    addend: Option<&'a [f32]>,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer stands for an exclusive borrow; `store` leaves it to its callers that no element is written by two threads.
unsafe impl Send for Target<'_> {}
// SAFETY: as above.
unsafe impl Sync for Target<'_> {}

impl<'a> Target<'a> {
    /// Rows of contiguous elements, `row_stride` apart; `None` where that leaves `values`.
    pub(crate) fn new(values: ValuesMut<'a>, [rows, columns]: [usize; 2], row_stride: usize) -> Option<Self> {
        if !fits(values.len(), 0, [rows, columns], [row_stride as isize, 1]) || (rows > 1 && row_stride < columns) {
            return None;
        }
        let pointer = match values {
            ValuesMut::F32(v) => Pointer::F32(v.as_mut_ptr()),
            ValuesMut::F16(v) => Pointer::F16(v.as_mut_ptr()),
            ValuesMut::Bf16(v) => Pointer::Bf16(v.as_mut_ptr()),
        };
        Some(Self { pointer, rows, columns, row_stride, alpha: 1.0, bias: None, addend: None, memory: PhantomData })
    }

    pub(crate) fn scaled(self, alpha: f32) -> Self {
        Self { alpha, ..self }
    }

    /// Adds one value for each column; `None` where there are fewer.
    pub(crate) fn with_bias(self, bias: Option<Values<'a>>) -> Option<Self> {
        bias.is_none_or(|b| b.len() >= self.columns).then_some(Self { bias, ..self })
    }

    /// Adds a contiguous `[rows, columns]` matrix; `None` where it is smaller.
    pub(crate) fn with_addend(self, addend: Option<&'a [f32]>) -> Option<Self> {
        addend.is_none_or(|a| self.rows.checked_mul(self.columns).is_some_and(|n| a.len() >= n)).then_some(Self { addend, ..self })
    }

    /// A single contiguous column as a row; `None` where there are more or where a bias belongs to the column.
    pub(crate) fn transposed_vector(&self) -> Option<Target<'_>> {
        let contiguous = self.columns == 1 && self.row_stride == 1 && self.bias.is_none();
        contiguous.then_some(Target { rows: 1, columns: self.rows, row_stride: self.rows, ..*self })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Finishes and stores the sums of `row` from `column` on.
    ///
    /// # Safety
    /// No other thread writes these elements meanwhile.
    #[inline(never)]
    pub(crate) unsafe fn store(&self, row: usize, column: usize, sums: &mut [f32]) {
        assert!(row < self.rows && sums.len() <= self.columns && column <= self.columns - sums.len());
        if self.alpha != 1.0 {
            sums.iter_mut().for_each(|s| *s *= self.alpha);
        }
        if let Some(bias) = self.bias {
            with_values!(bias, |b| sums.iter_mut().zip(&b[column..]).for_each(|(s, b)| *s += b.to_f32()));
        }
        if let Some(addend) = self.addend {
            sums.iter_mut().zip(&addend[row * self.columns + column..]).for_each(|(s, a)| *s += a);
        }
        let offset = row * self.row_stride + column;
        // SAFETY: the element lies in the borrow checked by `new` and `assert`; the caller excludes other writers.
        unsafe {
            match self.pointer {
                Pointer::F32(p) => f32::narrow(sums, slice::from_raw_parts_mut(p.add(offset), sums.len())),
                Pointer::F16(p) => f16::narrow(sums, slice::from_raw_parts_mut(p.add(offset), sums.len())),
                Pointer::Bf16(p) => bf16::narrow(sums, slice::from_raw_parts_mut(p.add(offset), sums.len())),
            }
        }
    }
}
