//! Elements moved, converted or set.

use std::sync::Arc;

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::{
    Scalar,
    cast::Cast,
    copy::{Concat, Copy, Pad, Trilu},
    fill::Fill,
};

use super::operators;
use crate::tensor::Tensor;

operators! {
    /// The elements in memory of their own, row-major.
    copy copy_into (&self) => Copy;
    errors "Out of memory.";
    example "let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?.transpose(0, 1)?;"; () => "[[1, 3],\\n [2, 4]]";

    /// Elements of one value before and after along each axis: a pair of numbers for each, of which a negative one takes elements away.
    pad pad_into (&self, widths: &[(isize, isize)], value: impl Into<Scalar>) => {
        let (before, after) = widths.iter().copied().unzip();
        Pad { before, after, value: value.into() }
    };
    errors "Another number of pairs than axes, more elements taken away than there are, or a value that the type does not have.";
    example "let x = executor.tensor(&[3], &[1i32, 2, 3])?;"; ("&[(2, -1)]", "9") => "[9, 9, 1, 2]" of "DType::I32, &[4]";

    /// The upper triangle of matrices `[…, m, n]`, zero elsewhere, from the `k`-th diagonal on: above zero to the right of the main one.
    triu triu_into triu_ (&self, k: i64) => Trilu { upper: true, k };
    errors "Fewer than two axes.";
    example "let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?;"; ("0") => "[[1, 2],\\n [0, 4]]";

    /// The lower triangle of matrices `[…, m, n]`, zero elsewhere, up to the `k`-th diagonal.
    tril tril_into tril_ (&self, k: i64) => Trilu { upper: false, k };
    errors "Fewer than two axes.";
    example "let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?;"; ("-1") => "[[0, 0],\\n [3, 0]]";
}

impl Tensor {
    /// The elements converted to another type; itself if it has that type.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1.5f32, -2.5])?;
    /// assert_eq!(x.cast(DType::I32)?.to_vec::<i32>()?, [1, -2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Out of memory.
    pub fn cast(&self, to: DType) -> Result<Tensor> {
        if to == self.dtype() { Ok(self.clone()) } else { self.apply(Cast { to }, &[]) }
    }

    /// The elements converted into a tensor that exists, to its type.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// let (x, out) = (executor.tensor(&[2], &[1.5f32, -2.5])?, executor.zeros(DType::I32, &[2])?);
    /// x.cast_into(&out)?;
    /// assert_eq!(out.to_vec::<i32>()?, [1, -2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::apply_into`](crate::Executor::apply_into).
    pub fn cast_into(&self, out: &Tensor) -> Result<()> {
        self.apply_into(Cast { to: out.dtype() }, &[], out)
    }

    /// Every element becomes `value`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[3], &[1i32, 2, 3])?;
    /// x.i(1..)?.fill_(7)?;
    /// assert_eq!(x.to_vec::<i32>()?, [1, 7, 7]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A value that the type does not have, a view with gaps, or read-only memory.
    pub fn fill_(&self, value: impl Into<Scalar>) -> Result<()> {
        let fill = Fill { shape: self.shape().to_vec(), dtype: self.dtype(), value: value.into() };
        self.executor().apply_into(Arc::new(fill), &[], &[self])
    }

    /// Overwrites all elements with those of another tensor of the same type and shape, or row-major with the same number of elements.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let (x, y) = (executor.tensor(&[2, 2], &[0i32; 4])?, executor.tensor(&[2], &[7i32, 8])?);
    /// x.i(1)?.copy_from(&y)?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 0, 7, 8]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another type, number of elements or device; a view with gaps; memory in common; or read-only memory.
    pub fn copy_from(&self, source: &Tensor) -> Result<()> {
        if source.dtype() != self.dtype() || source.shape().elements() != self.shape().elements() {
            return Err(Error::invalid_argument(format!("cannot copy {source:?} to {self:?}: type and count must match")));
        }
        source.reshape(self.shape())?.apply_into(Copy, &[], self)
    }

    /// Tensors one after the other along `axis`.
    ///
    /// ```
    /// use elinvar::{Executor, Tensor};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (a, b) = (executor.tensor(&[1, 2], &[1i32, 2])?, executor.tensor(&[1, 2], &[3i32, 4])?);
    /// assert_eq!(Tensor::concat(&[&a, &b], -1)?.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// No tensors, or shapes that differ on another axis.
    pub fn concat(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        let [first, rest @ ..] = tensors else { return Err(Error::invalid_argument("concat of no tensors: give at least one")) };
        first.apply(Concat { axis }, &rest.iter().map(|t| Some(*t)).collect::<Vec<_>>())
    }
}
