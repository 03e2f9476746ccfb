//! What a matrix product reads and writes: strided matrices of f32, f16 or bf16.

use std::{marker::PhantomData, slice};

use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::simd::Simd;

/// An element type of matrix products: widened to f32 exactly, rounded from f32 to nearest even.
pub(crate) trait Float: Copy + Send + Sync + 'static {
    const ZERO: Self;
    fn widen(self) -> f32;
    /// Rounds each value into `target`, which has their length.
    fn round_slice(values: &[f32], target: &mut [Self]);
    /// # Safety
    /// `source` is valid for reading [`Simd::LANES`] elements (any alignment).
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector;
}

impl Float for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn round_slice(values: &[f32], target: &mut [Self]) {
        target.copy_from_slice(values);
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { simd.load(source) }
    }
}

impl Float for f16 {
    const ZERO: Self = f16::ZERO;

    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn round_slice(values: &[f32], target: &mut [Self]) {
        target.convert_from_f32_slice(values);
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { simd.load_f16(source) }
    }
}

impl Float for bf16 {
    const ZERO: Self = bf16::ZERO;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn round_slice(values: &[f32], target: &mut [Self]) {
        // Without a branch, so that it vectorises.
        for (target, value) in target.iter_mut().zip(values) {
            let bits = value.to_bits();
            let nearest = (bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16;
            let quiet = (bits >> 16) as u16 | 0x40;
            *target = bf16::from_bits(if value.is_nan() { quiet } else { nearest });
        }
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, source: *const Self) -> S::Vector {
        // SAFETY: the caller's promise.
        unsafe { simd.load_bf16(source) }
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

    pub(crate) fn widen(&self, index: usize) -> f32 {
        with_values!(self, |v| v[index].widen())
    }
}

/// A strided view of a matrix. Every element is in bounds.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: Values<'a>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `values[r * row_stride + c * column_stride]` is element `(r, c)`; `None` where that leaves `values`.
    pub(crate) fn new(values: Values<'a>, [rows, columns]: [usize; 2], [row_stride, column_stride]: [usize; 2]) -> Option<Self> {
        fits(values.len(), [rows, columns], [row_stride, column_stride]).then_some(Self { values, rows, columns, row_stride, column_stride })
    }

    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    pub(crate) fn values(&self) -> Values<'a> {
        self.values
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn row_stride(&self) -> usize {
        self.row_stride
    }

    pub(crate) fn column_stride(&self) -> usize {
        self.column_stride
    }
}

/// Whether a strided matrix lies inside `length` elements.
fn fits(length: usize, [rows, columns]: [usize; 2], [row_stride, column_stride]: [usize; 2]) -> bool {
    if rows == 0 || columns == 0 {
        return true;
    }
    let last = (rows - 1).checked_mul(row_stride).zip((columns - 1).checked_mul(column_stride)).and_then(|(r, c)| r.checked_add(c));
    last.is_some_and(|last| last < length)
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
        if !fits(values.len(), [rows, columns], [row_stride, 1]) || (rows > 1 && row_stride < columns) {
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
            with_values!(bias, |b| sums.iter_mut().zip(&b[column..]).for_each(|(s, b)| *s += b.widen()));
        }
        if let Some(addend) = self.addend {
            sums.iter_mut().zip(&addend[row * self.columns + column..]).for_each(|(s, a)| *s += a);
        }
        let offset = row * self.row_stride + column;
        // SAFETY: the element lies in the borrow checked by `new` and `assert`; the caller excludes other writers.
        unsafe {
            match self.pointer {
                Pointer::F32(p) => f32::round_slice(sums, slice::from_raw_parts_mut(p.add(offset), sums.len())),
                Pointer::F16(p) => f16::round_slice(sums, slice::from_raw_parts_mut(p.add(offset), sums.len())),
                Pointer::Bf16(p) => bf16::round_slice(sums, slice::from_raw_parts_mut(p.add(offset), sums.len())),
            }
        }
    }
}
