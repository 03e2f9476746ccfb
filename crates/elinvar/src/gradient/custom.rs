//! Computations of callers on the tape.

use elinvar_core::{Error, Result};

use super::tape::{CustomRule, write_down_custom};
use crate::tensor::Tensor;

impl Tensor {
    /// Puts the results of a caller's own computation on the tape: `gradient` is given the gradients of `outputs`, as far as the loss depends on them, and
    /// gives those of `inputs`, of their types and shapes. What it needs of their elements it keeps itself.
    ///
    /// Nothing happens where no input requires a gradient.
    ///
    /// ```
    /// use elinvar::{Executor, Tensor};
    ///
    /// let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?.requires_grad()?;
    /// let kept = x.detach();
    /// let cubes = executor.tensor(&[2], &[1f32, 8.0])?;
    /// let cubes = Tensor::with_gradient("cube", &[&x], vec![cubes], move |upstream| {
    ///     let slope = (kept.mul(&kept)? * 3.0)?;
    ///     Ok(vec![upstream[0].as_ref().map(|upstream| upstream.mul(&slope)).transpose()?])
    /// })?;
    /// assert_eq!(cubes[0].sum(&[], false)?.backward()?.of(&x)?.to_vec::<f32>()?, [3.0, 12.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An output that is on the tape already.
    pub fn with_gradient(
        name: &str,
        inputs: &[&Tensor],
        mut outputs: Vec<Tensor>,
        gradient: impl Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Result<Vec<Tensor>> {
        if let Some(tracked) = outputs.iter().find(|output| output.is_tracked()) {
            return Err(Error::invalid_argument(format!("{name}: {tracked:?} has a gradient already: give what is computed from detached tensors")));
        }
        if inputs.iter().any(|input| input.is_tracked()) {
            write_down_custom(CustomRule { name: name.to_owned(), gradient: Box::new(gradient) }, inputs, &mut outputs);
        }
        Ok(outputs)
    }
}
