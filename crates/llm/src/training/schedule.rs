//! The learning rate of each step.

use elinvar::{Error, Result, kernels::math};

/// How the learning rate goes on after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decay {
    /// As it is.
    #[default]
    Constant,
    /// On a line to zero after the last step.
    Linear,
    /// On half a cosine to zero after the last step.
    Cosine,
}

/// Learning rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The greatest.
    pub rate: f64,
    /// In so many steps at first it grows in equal parts to the greatest.
    pub warmup: u64,
    /// What follows.
    pub decay: Decay,
}

impl Schedule {
    pub(super) fn check(self) -> Result<()> {
        match self.rate {
            rate if rate > 0.0 && rate.is_finite() => Ok(()),
            rate => Err(Error::invalid_argument(format!("a learning rate of {rate} would change nothing: a positive number is expected"))),
        }
    }

    /// That of step `step` of `steps`, the first of which is 1.
    pub fn at(self, step: u64, steps: u64) -> f64 {
        if step <= self.warmup {
            return self.rate * step as f64 / self.warmup as f64;
        }
        let progress = (step - self.warmup - 1) as f64 / steps.saturating_sub(self.warmup).max(1) as f64;
        let progress = progress.min(1.0);
        self.rate
            * match self.decay {
                Decay::Constant => 1.0,
                Decay::Linear => 1.0 - progress,
                // The library's own function: those of the system differ from machine to machine.
                Decay::Cosine => 0.5 * (1.0 + f64::from(math::cos(std::f32::consts::PI * progress as f32))),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_and_fall_as_they_say() {
        let schedule = |decay| Schedule { rate: 2.0, warmup: 4, decay };
        let rates = |decay| (1..=8).map(|step| schedule(decay).at(step, 8)).collect::<Vec<_>>();
        assert_eq!(rates(Decay::Constant), [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(rates(Decay::Linear), [0.5, 1.0, 1.5, 2.0, 2.0, 1.5, 1.0, 0.5]);
        let cosine = rates(Decay::Cosine);
        assert!((cosine[6] - 1.0).abs() < 1e-6 && cosine[4] == 2.0 && (cosine[5] - (1.0 + 0.5f64.sqrt())).abs() < 1e-6, "{cosine:?}");
        assert_eq!(Schedule { warmup: 0, ..schedule(Decay::Linear) }.at(1, 4), 2.0);
        assert!(Schedule { rate: 0.0, ..schedule(Decay::Linear) }.check().is_err());
    }
}
