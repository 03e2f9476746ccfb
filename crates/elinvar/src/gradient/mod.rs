//! Gradients: of a tensor by those that it was computed from.
//!
//! A tensor that [requires a gradient](Tensor::requires_grad) puts what is computed from it on a tape: operators, their inputs and their outputs, as far as
//! gradients need them. The tape belongs to the results, and goes with them. [`Tensor::backward`] walks it backwards. Each operator says what its gradient
//! is in operators ([`Operator::gradient`](crate::Operator::gradient)); these run as all operators do, eagerly or recorded, in the same order on every
//! device.
//!
//! ```
//! use elinvar::{DType, Executor};
//!
//! // A step of training.
//! let executor = Executor::new_auto()?;
//! let x = executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?;
//! let weight = executor.tensor(&[1, 2], &[0.5f32, -0.5])?.requires_grad()?;
//! let loss = x.linear(&weight, None)?.sum_square(&[], false)?;
//! let gradients = loss.backward()?;
//! let gradient = gradients.of(&weight)?;
//! assert_eq!(gradient.to_vec::<f32>()?, [-4.0, -6.0]);
//! weight.detach().sub_(&(gradient * 0.25)?)?;
//! assert_eq!(weight.to_vec::<f32>()?, [1.5, 1.0]);
//! # Ok::<(), elinvar::Error>(())
//! ```

mod backward;
mod custom;
mod evaluate;
mod tape;

use std::{collections::HashMap, fmt, sync::Arc};

use elinvar_core::{Error, Result};

pub(crate) use tape::{Origin, write_down};

use crate::tensor::Tensor;

/// What [`Tensor::backward`] finds: the gradients of the tensors that require one.
#[derive(Default)]
pub struct Gradients {
    /// By the address of the tape's entry, which it keeps.
    of: HashMap<(usize, usize), (Origin, Tensor)>,
}

impl fmt::Debug for Gradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.of.values().map(|(_, gradient)| gradient)).finish()
    }
}

impl Gradients {
    fn insert(&mut self, origin: Origin, gradient: Tensor) {
        self.of.insert(key(&origin), (origin, gradient));
    }

    /// The gradient of a tensor that requires one, of its type and shape; none if the result did not depend on it.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let [x, y] = [3f32, 4.0].map(|x| executor.tensor(&[], &[x])?.requires_grad());
    /// let (x, y) = (x?, y?);
    /// let gradients = x.mul(&x)?.backward()?;
    /// assert_eq!(gradients.get(&x).map(|x| x.item::<f32>()).transpose()?, Some(6.0));
    /// assert!(gradients.get(&y).is_none());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn get(&self, tensor: &Tensor) -> Option<&Tensor> {
        self.of.get(&key(tensor.origin()?)).map(|(_, gradient)| gradient)
    }

    /// The same as an error where there is none: training that changes nothing is a mistake.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[], &[3f32])?.requires_grad()?;
    /// assert_eq!(x.exp()?.log()?.backward()?.of(&x)?.shape().rank(), 0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// The tensor requires no gradient, or the result did not depend on it.
    pub fn of(&self, tensor: &Tensor) -> Result<&Tensor> {
        self.get(tensor).ok_or_else(|| {
            let why = match tensor.origin() {
                Some(_) => "the result was not computed from it",
                None => "it requires none: make it with requires_grad",
            };
            Error::invalid_argument(format!("there is no gradient of {tensor:?}: {why}"))
        })
    }
}

fn key(origin: &Origin) -> (usize, usize) {
    (Arc::as_ptr(&origin.call).addr(), origin.output)
}

impl Tensor {
    /// This tensor, in the same memory, as one whose gradient [`Tensor::backward`] computes of what is computed from it.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[3f32, -1.0])?.requires_grad()?;
    /// assert_eq!(x.relu()?.sum(&[], false)?.backward()?.of(&x)?.to_vec::<f32>()?, [1.0, 0.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Not a floating-point tensor.
    pub fn requires_grad(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::invalid_argument(format!("{self:?} cannot require a gradient: only floating-point numbers have one")));
        }
        let mut leaf = self.detach();
        leaf.set_origin(tape::Call::leaf(self));
        Ok(leaf)
    }

    /// Whether gradients flow to this tensor, or through it.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[], &[3f32])?;
    /// assert!(!x.exp()?.is_tracked() && x.requires_grad()?.exp()?.is_tracked());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn is_tracked(&self) -> bool {
        self.origin().is_some()
    }

    /// The gradients of this loss, a tensor of one element, by the tensors that require one and that it was computed from. Under a recorder they are
    /// recorded.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?.requires_grad()?;
    /// let loss = x.mul(&x)?.sum(&[], false)?;
    /// assert_eq!(loss.backward()?.of(&x)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Several elements; nothing that requires a gradient; an operator that has none; or a tensor that was changed in place since it was used.
    pub fn backward(&self) -> Result<Gradients> {
        backward::backward(self, &backward::one(self)?, None)
    }

    /// The same of a tensor of any shape, given the gradient of what follows by it.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?.requires_grad()?;
    /// let upstream = executor.tensor(&[2], &[1f32, 10.0])?;
    /// assert_eq!(x.mul(&x)?.backward_from(&upstream)?.of(&x)?.to_vec::<f32>()?, [2.0, 40.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::backward`]; a gradient of another type or shape.
    pub fn backward_from(&self, upstream: &Tensor) -> Result<Gradients> {
        backward::backward(self, upstream, None)
    }

    /// The same elements in the same memory, without a way back to what they were computed from.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[], &[3f32])?.requires_grad()?;
    /// let y = x.mul(&x.detach())?;
    /// assert_eq!(y.backward()?.of(&x)?.item::<f32>()?, 3.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn detach(&self) -> Tensor {
        let mut tensor = self.clone();
        tensor.forget_origin();
        tensor
    }

    /// These elements, on the tape in the place of `computed`, whose elements they are: what was kept of a result stands for the one that is computed again
    /// for its gradient. A recorder leaves out what only the elements of `computed` needed.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[], &[2f32])?.requires_grad()?;
    /// let kept = x.mul(&x)?.detach();
    /// let gradients = executor.fuse(|recorded| {
    ///     let again = x.on(recorded)?;
    ///     kept.in_place_of(&again.mul(&again)?)?.mul(&kept)?.backward()
    /// })?;
    /// assert_eq!(gradients.of(&x)?.item::<f32>()?, 16.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another type or shape.
    pub fn in_place_of(&self, computed: &Tensor) -> Result<Tensor> {
        if (self.dtype(), self.shape()) != (computed.dtype(), computed.shape()) {
            return Err(Error::invalid_argument(format!("{self:?} in the place of {computed:?}: its type and shape are expected")));
        }
        if let Some(pending) = computed.memory().pending() {
            pending.recorder.replace(pending.value);
        }
        let mut tensor = self.on(&computed.executor().with_recorder(computed.recorder().cloned()))?.detach();
        if let Some(origin) = computed.origin() {
            tensor.set_origin(origin.clone());
        }
        Ok(tensor)
    }
}

/// The gradient of a function of one tensor that gives a loss.
///
/// ```
/// let executor = elinvar::Executor::new_auto()?;
/// let slope = elinvar::grad(|x| x.sin()?.sum(&[], false));
/// let x = executor.tensor(&[2], &[0f32, 1.0])?;
/// assert_eq!(slope(&x)?.to_vec::<f32>()?, x.cos()?.to_vec::<f32>()?);
/// # Ok::<(), elinvar::Error>(())
/// ```
pub fn grad(function: impl Fn(&Tensor) -> Result<Tensor>) -> impl Fn(&Tensor) -> Result<Tensor> {
    move |x| {
        let x = x.requires_grad()?;
        function(&x)?.backward()?.of(&x).cloned()
    }
}
