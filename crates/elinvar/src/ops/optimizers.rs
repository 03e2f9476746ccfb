//! Steps of the ONNX standard's optimisers, as elementwise operators: in a recording a step is one launch, or two with weight decay.

use elinvar_core::Result;
use elinvar_kernels::math::powi;

use super::recorded;
use crate::tensor::Tensor;

/// The settings of [`Tensor::adam`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How much of the mean of gradients, and of that of their squares, a step keeps: ONNX's `alpha` and `beta`.
    pub betas: [f64; 2],
    /// Added to the root of the squares.
    pub epsilon: f64,
    /// This part of the parameters is added to their gradient: ONNX's `norm_coefficient`.
    pub weight_decay: f64,
    /// The new parameters lose this part: ONNX's `norm_coefficient_post`.
    pub decay_after: f64,
}

impl Default for Adam {
    /// ONNX's settings.
    fn default() -> Self {
        Self { betas: [0.9, 0.999], epsilon: 1e-6, weight_decay: 0.0, decay_after: 0.0 }
    }
}

/// The settings of [`Tensor::momentum`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// How much of the mean of gradients a step keeps: ONNX's `alpha`.
    pub momentum: f64,
    /// What the gradient is multiplied by in the mean, but in step 0: ONNX's `beta`, one minus PyTorch's `dampening`.
    pub scale: f64,
    /// This part of the parameters is added to their gradient: ONNX's `norm_coefficient`.
    pub weight_decay: f64,
    /// Whether the gradient is taken where the mean would lead (Nesterov).
    pub nesterov: bool,
}

/// The gradient, and what weight decay adds to it.
fn decayed(x: &Tensor, gradient: &Tensor, weight_decay: f64) -> Result<Tensor> {
    if weight_decay == 0.0 { Ok(gradient.clone()) } else { gradient.add(&(x * weight_decay)?) }
}

impl Tensor {
    /// A step of Adam: of these parameters, their gradient, its mean and the mean of its squares, all of one shape and floating-point type, the new
    /// parameters and the new means. Means are corrected for their start at zero from step 1 on, and are not in step 0.
    /// See Kingma and Ba, *Adam*, 2015; ONNX `Adam`.
    ///
    /// ```
    /// use elinvar::{Adam, Executor};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (x, zero) = (executor.tensor(&[2], &[1f32, 2.0])?, executor.tensor(&[2], &[0f32, 0.0])?);
    /// let gradient = executor.tensor(&[2], &[4f32, -4.0])?;
    /// let [x, mean, squares] = x.adam(&gradient, [&zero, &zero], 0.5, 1, &Adam { betas: [0.5, 0.75], epsilon: 0.0, ..Adam::default() })?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.5, 2.5]);
    /// assert_eq!((mean.to_vec::<f32>()?, squares.to_vec::<f32>()?), (vec![2.0, -2.0], vec![4.0, 4.0]));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Not floating-point tensors, shapes that do not broadcast, or types that differ.
    pub fn adam(&self, gradient: &Tensor, means: [&Tensor; 2], rate: f64, step: u64, settings: &Adam) -> Result<[Tensor; 3]> {
        let on = recorded([self, gradient, means[0], means[1]]);
        let (x, gradient, mean, squares) = (on(self)?, on(gradient)?, on(means[0])?, on(means[1])?);
        let (gradient, [first, second]) = (decayed(&x, &gradient, settings.weight_decay)?, settings.betas);
        let mean = (mean * first)?.add(&(&gradient * (1.0 - first))?)?;
        let squares = (squares * second)?.add(&(gradient.square()? * (1.0 - second))?)?;
        let rate = if step == 0 { rate } else { rate * (1.0 - powi(second, step)).sqrt() / (1.0 - powi(first, step)) };
        let next = x.sub(&(mean.div(&(squares.sqrt()? + settings.epsilon)?)? * rate)?)?;
        let next = if settings.decay_after == 0.0 { next } else { (next * (1.0 - settings.decay_after))? };
        Ok([next, mean, squares])
    }

    /// A step of gradient descent with momentum: of these parameters, their gradient and its mean, all of one shape and floating-point type, the new
    /// parameters and the new mean. See Sutskever et al., *On the importance of initialization and momentum*, 2013; ONNX `Momentum`; `torch.optim.SGD`.
    ///
    /// ```
    /// use elinvar::{Executor, Momentum};
    ///
    /// let executor = Executor::new_auto()?;
    /// let tensor = |value: f32| executor.tensor(&[1], &[value]);
    /// let settings = Momentum { momentum: 0.5, scale: 1.0, weight_decay: 0.0, nesterov: false };
    /// let [x, mean] = tensor(10.0)?.momentum(&tensor(3.0)?, &tensor(2.0)?, 0.25, 7, &settings)?;
    /// assert_eq!((x.item::<f32>()?, mean.item::<f32>()?), (9.0, 4.0));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::adam`].
    pub fn momentum(&self, gradient: &Tensor, mean: &Tensor, rate: f64, step: u64, settings: &Momentum) -> Result<[Tensor; 2]> {
        let on = recorded([self, gradient, mean]);
        let (x, mean) = (on(self)?, on(mean)?);
        let gradient = decayed(&x, &on(gradient)?, settings.weight_decay)?;
        let scaled = if step == 0 { gradient.clone() } else { (&gradient * settings.scale)? };
        let mean = (mean * settings.momentum)?.add(&scaled)?;
        let direction = if settings.nesterov { gradient.add(&(&mean * settings.momentum)?)? } else { mean.clone() };
        Ok([x.sub(&(direction * rate)?)?, mean])
    }
}
