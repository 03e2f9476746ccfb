//! Tensors made of nothing.

use std::sync::Arc;

use elinvar_core::{DType, Result, SplitMix64};
use elinvar_kernels::{
    Scalar,
    fill::{Arange, Fill},
};

use crate::{Executor, Tensor, executor::only};

impl Executor {
    /// A tensor of one value.
    ///
    /// ```
    /// use elinvar::{DType, Executor};
    ///
    /// let executor = Executor::new_auto()?;
    /// assert_eq!(executor.full(DType::I32, &[2], 7)?.to_vec::<i32>()?, [7, 7]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A value that the type does not have, a shape beyond the limits, or out of memory.
    pub fn full(&self, dtype: DType, dims: &[usize], value: impl Into<Scalar>) -> Result<Tensor> {
        only(self.apply(Arc::new(Fill { shape: dims.to_vec(), dtype, value: value.into() }), &[])?)
    }

    /// A tensor of ones.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.ones(DType::I32, &[2])?.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::full`].
    pub fn ones(&self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.full(dtype, dims, 1)
    }

    /// `start`, `start + step`, … up to but not including `limit`.
    ///
    /// ```
    /// use elinvar::{DType, Executor};
    ///
    /// let executor = Executor::new_auto()?;
    /// assert_eq!(executor.arange(DType::F32, 0, 2, 0.5)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 1.5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A step of zero, values that the type does not have, or out of memory.
    pub fn arange(&self, dtype: DType, start: impl Into<Scalar>, limit: impl Into<Scalar>, step: impl Into<Scalar>) -> Result<Tensor> {
        only(self.apply(Arc::new(Arange { start: start.into(), limit: limit.into(), step: step.into(), dtype }), &[])?)
    }

    /// The `n` by `n` matrix with ones on its diagonal and zeros elsewhere.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.eye(DType::I32, 2)?.to_vec::<i32>()?, [1, 0, 0, 1]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape beyond the limits, or out of memory.
    pub fn eye(&self, dtype: DType, n: usize) -> Result<Tensor> {
        let row = self.arange(DType::I64, 0, n as i64, 1)?;
        row.unsqueeze(1)?.eq(&row)?.cast(dtype)
    }

    /// Numbers in [0, 1), the same for a seed wherever they are made.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.rand(&[100], 1)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::tensor`].
    pub fn rand(&self, dims: &[usize], seed: u64) -> Result<Tensor> {
        let mut random = SplitMix64::new(seed);
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| uniform(&mut random)).collect();
        self.tensor(dims, &values)
    }

    /// Numbers of the normal distribution with mean 0 and deviation 1, the same for a seed wherever they are made.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.randn(&[10_000], 1)?;
    /// assert!(x.mean(&[], false)?.item::<f32>()?.abs() < 0.1);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::tensor`].
    pub fn randn(&self, dims: &[usize], seed: u64) -> Result<Tensor> {
        let mut random = SplitMix64::new(seed);
        // Box and Muller, with the library's own functions: those of the system differ from machine to machine.
        let mut normal = || {
            let (u, v) = (uniform(&mut random), uniform(&mut random));
            (-2.0 * elinvar_kernels::math::log(1.0 - u)).sqrt() * elinvar_kernels::math::cos(std::f32::consts::TAU * v)
        };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| normal()).collect();
        self.tensor(dims, &values)
    }
}

/// A number in [0, 1) of 24 bits.
fn uniform(random: &mut SplitMix64) -> f32 {
    (random.next_u64() >> 40) as f32 * 2f32.powi(-24)
}
