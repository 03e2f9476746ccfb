//! The end of a decoding step, on the device.

use elinvar_core::Result;
use elinvar_kernels::{sample::Sample, sample_argmax::SampleArgmax};

use crate::tensor::Tensor;

impl Tensor {
    /// Takes the step of greedy decoding that this state `[2]` (i32: a token and its position) stands for: it becomes the token of the greatest of
    /// `logits`, one row, and the position after.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let (state, logits) = (executor.tensor(&[2], &[9i32, 4])?, executor.tensor(&[1, 3], &[0.5f32, 2.0, -1.0])?);
    /// state.sample_argmax(&logits)?;
    /// assert_eq!(state.to_vec::<i32>()?, [1, 5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that do not fit. A logit that is no number is reported when something is read.
    pub fn sample_argmax(&self, logits: &Tensor) -> Result<()> {
        self.update(SampleArgmax, &[Some(logits)])
    }

    /// As [`Tensor::sample_argmax`], but the token is drawn, as `factors` and `numbers` say: see [`elinvar_kernels::sample`].
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let (state, logits) = (executor.tensor(&[2], &[9i32, 4])?, executor.tensor(&[1, 3], &[0.5f32, 2.0, -1.0])?);
    /// // A temperature of 0 takes the best token.
    /// let (factors, numbers) = (executor.tensor(&[3], &[0f32, 1.0, 0.0])?, executor.tensor(&[3], &[0u32, 1, 2])?);
    /// state.sample(&logits, &factors, &numbers)?;
    /// assert_eq!(state.to_vec::<i32>()?, [1, 5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::sample_argmax`].
    pub fn sample(&self, logits: &Tensor, factors: &Tensor, numbers: &Tensor) -> Result<()> {
        self.update(Sample, &[Some(logits), Some(factors), Some(numbers)])
    }
}
