//! Optimisers: what a step makes of the parameters and their gradient, as operators to be recorded.

use elinvar::{Error, Result, Tensor, kernels::math::powi};

use super::{muon::orthogonal, parameters::Part};

/// An optimiser with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Adam with decoupled weight decay, and bias correction: PyTorch's `AdamW` (Loshchilov and Hutter, 2019).
    AdamW {
        /// How much of the mean of gradients, and of that of their squares, a step keeps.
        betas: [f64; 2],
        /// Added to the root of the squares.
        epsilon: f64,
        /// Parameters lose this part of themselves, times the learning rate.
        weight_decay: f64,
    },
    /// Gradient descent with momentum: PyTorch's `SGD`.
    Sgd {
        /// How much of the step before a step keeps.
        momentum: f64,
        /// This part of the parameters is added to their gradient.
        weight_decay: f64,
    },
    /// The signs of a mean of gradients (Chen et al., *Symbolic Discovery of Optimization Algorithms*, 2023).
    Lion {
        /// How much of the mean the step's sign and the next mean keep.
        betas: [f64; 2],
        /// As in AdamW.
        weight_decay: f64,
    },
    /// A mean of gradients whose matrices are made orthogonal, times 0.2 √max(rows, columns), which makes steps as long as AdamW's: PyTorch's `Muon` with
    /// `match_rms_adamw` (Jordan et al., 2024; Liu et al., 2025), in f32. It trains matrices alone.
    Muon {
        /// How much of the mean the next keeps.
        momentum: f64,
        /// As in AdamW.
        weight_decay: f64,
    },
}

/// Numbers that differ from step to step.
pub(super) const NUMBERS: usize = 3;

impl Optimizer {
    /// AdamW with PyTorch's settings.
    pub const ADAMW: Self = Self::AdamW { betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.01 };
    /// SGD without momentum.
    pub const SGD: Self = Self::Sgd { momentum: 0.0, weight_decay: 0.0 };
    /// Lion with its authors' settings.
    pub const LION: Self = Self::Lion { betas: [0.9, 0.99], weight_decay: 0.0 };
    /// Muon with PyTorch's settings.
    pub const MUON: Self = Self::Muon { momentum: 0.95, weight_decay: 0.1 };

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdamW { .. } => "adamw",
            Self::Sgd { .. } => "sgd",
            Self::Lion { .. } => "lion",
            Self::Muon { .. } => "muon",
        }
    }

    /// The same with another weight decay.
    #[must_use]
    pub fn with_weight_decay(self, weight_decay: f64) -> Self {
        match self {
            Self::AdamW { betas, epsilon, .. } => Self::AdamW { betas, epsilon, weight_decay },
            Self::Sgd { momentum, .. } => Self::Sgd { momentum, weight_decay },
            Self::Lion { betas, .. } => Self::Lion { betas, weight_decay },
            Self::Muon { momentum, .. } => Self::Muon { momentum, weight_decay },
        }
    }

    pub(super) fn check(self) -> Result<()> {
        let (fractions, others) = match self {
            Self::AdamW { betas, epsilon, weight_decay } => (betas, [epsilon, weight_decay]),
            Self::Sgd { momentum, weight_decay } | Self::Muon { momentum, weight_decay } => ([momentum, 0.0], [weight_decay, 0.0]),
            Self::Lion { betas, weight_decay } => (betas, [weight_decay, 0.0]),
        };
        let fits = fractions.iter().all(|beta| (0.0..1.0).contains(beta)) && others.iter().all(|other| other.is_finite() && *other >= 0.0);
        if fits {
            Ok(())
        } else {
            Err(Error::invalid_argument(format!("{self:?}: betas and momentum are from 0 to less than 1, the others at least 0")))
        }
    }

    /// Arrays of the parameters' size that it keeps.
    pub(super) fn states(self) -> usize {
        match self {
            Self::AdamW { .. } => 2,
            Self::Sgd { .. } | Self::Lion { .. } | Self::Muon { .. } => 1,
        }
    }

    /// The numbers of step `step`, the first of which is 1.
    pub(super) fn numbers(self, rate: f64, step: u64) -> [f32; NUMBERS] {
        let numbers = match self {
            Self::AdamW { betas: [first, second], weight_decay, .. } => {
                [1.0 - rate * weight_decay, rate / (1.0 - powi(first, step)), (1.0 - powi(second, step)).sqrt().recip()]
            }
            Self::Sgd { weight_decay, .. } => [weight_decay, rate, 0.0],
            Self::Lion { weight_decay, .. } | Self::Muon { weight_decay, .. } => [1.0 - rate * weight_decay, rate, 0.0],
        };
        numbers.map(|number| number as f32)
    }

    /// Changes `parameters`, which lie in them as `parts`, and `states` by `gradient`, all of one shape; `numbers` are those of [`Optimizer::numbers`].
    pub(super) fn step(self, parameters: &Tensor, parts: &[Part], gradient: &Tensor, states: &[Tensor], numbers: &Tensor) -> Result<()> {
        let number = |index: usize| numbers.i(index);
        let blend = |mean: &Tensor, beta: f64| (mean * beta)?.add(&(gradient * (1.0 - beta))?);
        match (self, states) {
            (Self::AdamW { betas, epsilon, .. }, [mean, squares]) => {
                // As PyTorch has it: m + (g − m) (1 − β).
                let first = mean.add(&(gradient.sub(mean)? * (1.0 - betas[0]))?)?;
                let second = (squares * betas[1])?.add(&(gradient.square()? * (1.0 - betas[1]))?)?;
                let root = (second.sqrt()?.mul(&number(2)?)? + epsilon)?;
                let next = parameters.mul(&number(0)?)?.sub(&first.div(&root)?.mul(&number(1)?)?)?;
                mean.copy_from(&first)?;
                squares.copy_from(&second)?;
                parameters.copy_from(&next)
            }
            (Self::Sgd { momentum, .. }, [mean]) => {
                let slope = gradient.add(&parameters.mul(&number(0)?)?)?;
                let first = (mean * momentum)?.add(&slope)?;
                let next = parameters.sub(&first.mul(&number(1)?)?)?;
                mean.copy_from(&first)?;
                parameters.copy_from(&next)
            }
            (Self::Lion { betas, .. }, [mean]) => {
                let next = parameters.mul(&number(0)?)?.sub(&blend(mean, betas[0])?.sign()?.mul(&number(1)?)?)?;
                let first = blend(mean, betas[1])?;
                mean.copy_from(&first)?;
                parameters.copy_from(&next)
            }
            (Self::Muon { momentum, .. }, [mean]) => {
                // As PyTorch has it, with Nesterov's momentum.
                let first = mean.add(&(gradient.sub(mean)? * (1.0 - momentum))?)?;
                let update = gradient.add(&(first.sub(gradient)? * momentum)?)?;
                for part in parts {
                    let (update, own) = (part.of(&update)?, part.of(parameters)?);
                    let next = own.mul(&number(0)?)?.sub(&orthogonal(&update)?.mul(&number(1)?)?)?;
                    own.copy_from(&next)?;
                }
                mean.copy_from(&first)
            }
            (Self::AdamW { .. } | Self::Sgd { .. } | Self::Lion { .. } | Self::Muon { .. }, _) => {
                Err(Error::internal("an optimiser without its states"))
            }
        }
    }
}
