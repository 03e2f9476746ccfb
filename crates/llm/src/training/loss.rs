//! What training minimises.

use std::fmt;

use elinvar::{Error, Result, Tensor};

/// What training minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// The mean cross-entropy of the tokens that are to be predicted.
    #[default]
    CrossEntropy,
    /// The mean over pairs of `−ln σ(β · ((ln p(chosen) − ln p(rejected)) − (ln q(chosen) − ln q(rejected))))`, where `q` is the model without what is
    /// trained: direct preference optimisation (Rafailov et al., 2023).
    Dpo {
        /// How much a change of the log-probabilities counts.
        beta: f64,
    },
}

/// What a step found of pairs, before it: means over its pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rewards {
    /// `β (ln p − ln q)` of the chosen texts.
    pub chosen: f32,
    /// The same of the rejected texts.
    pub rejected: f32,
    /// The part of the pairs whose chosen text has the greater one.
    pub accuracy: f32,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrossEntropy => f.write_str("cross-entropy"),
            Self::Dpo { beta } => write!(f, "dpo with a beta of {beta}"),
        }
    }
}

impl Loss {
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::CrossEntropy => Ok(()),
            Self::Dpo { beta } if beta > 0.0 && beta.is_finite() => Ok(()),
            Self::Dpo { beta } => Err(Error::invalid_argument(format!("a beta of {beta} would change nothing: a positive number is expected"))),
        }
    }
}

/// What the cross-entropies of pairs give.
pub(super) struct Preferences {
    /// The sum of the pairs' losses times the factor.
    pub(super) loss: Tensor,
    /// Its gradient by the cross-entropies `policy`.
    pub(super) slopes: Tensor,
    /// `[3]`: the sums of [`Rewards`]' parts, times the factor.
    pub(super) rewards: Tensor,
}

impl Preferences {
    /// Of the cross-entropies `[texts · length]` of the tokens of `texts` texts, chosen and rejected in turn: those of the model in training, and of the one
    /// without what is trained.
    pub(super) fn new(policy: &Tensor, reference: &Tensor, texts: usize, beta: f64, factor: &Tensor) -> Result<Self> {
        let (pairs, length) = (texts / 2, policy.shape()[0] / texts);
        let sums = |losses: &Tensor| losses.reshape(&[pairs, 2, length])?.sum(&[2], false);
        let rewards = (sums(reference)?.sub(&sums(policy)?)? * beta)?;
        let (chosen, rejected) = (rewards.slice(1, 0, 1, 1)?, rewards.slice(1, 1, 1, 1)?);
        let margins = rejected.sub(&chosen)?;
        let slope = (margins.sigmoid()? * beta)?.mul(factor)?;
        let slopes = Tensor::concat(&[&slope, &slope.neg()?], 1)?.reshape(&[texts, 1])?;
        let slopes = slopes.broadcast_to(&[texts, length])?.contiguous()?.reshape(&[texts * length])?;
        let is_better = chosen.gt(&rejected)?.cast(policy.dtype())?;
        let parts = Tensor::concat(&[&chosen, &rejected, &is_better], 1)?;
        Ok(Self { loss: margins.softplus()?.sum(&[], false)?.mul(factor)?, slopes, rewards: parts.sum(&[0], false)?.mul(factor)? })
    }
}
