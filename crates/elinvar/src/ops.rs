//! Operators as methods of [`Tensor`]: each builds the operator's value and applies it.

use elinvar_core::Result;
use elinvar_kernels::{Operator, softmax::Softmax};

use crate::{Tensor, executor::only};

impl Tensor {
    fn apply(&self, operator: &dyn Operator, others: &[Option<&Tensor>]) -> Result<Tensor> {
        let inputs: Vec<_> = std::iter::once(Some(self)).chain(others.iter().copied()).collect();
        only(self.executor().apply(operator, &inputs)?)
    }

    /// Softmax along an axis.
    ///
    /// # Errors
    /// Not a floating-point tensor, or an axis outside its shape.
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        self.apply(&Softmax { axis, log: false }, &[])
    }
}
