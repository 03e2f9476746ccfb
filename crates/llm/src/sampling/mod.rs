//! The choice of the next token.
//!
//! Filters come in the order of transformers: repetition penalty, temperature, top-k, top-p, min-p. Equal logits rank by the lower id. The draw is defined by
//! [`elinvar::kernels::sample`], whose meaning is the same on every device: it depends on the bits of the logits, the settings, the seed and the token's
//! place in the text.

#[cfg(test)]
mod tests;

use elinvar::{
    Error, Result,
    kernels::sample::{Settings, choose},
};

use serde::{Deserialize, Serialize};

use crate::config::GenerationConfig;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Divides the logits; zero takes the most likely token.
    pub temperature: f32,
    /// Keeps this many of the most likely tokens; zero keeps all.
    pub top_k: usize,
    /// Keeps the most likely tokens until their probabilities sum to this; one keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this likely, relative to the most likely; zero keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that occurred; one changes nothing.
    pub repetition_penalty: f32,
    /// Chooses the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Self::default()
    }

    /// What a model's authors recommend: greedy unless they ask to sample, and then at temperature one unless they name another.
    pub fn recommended(config: &GenerationConfig, seed: u64) -> Self {
        let sample = config.do_sample.unwrap_or(false);
        Self {
            temperature: if sample { config.temperature.unwrap_or(1.0) } else { 0.0 },
            top_k: config.top_k.unwrap_or(0),
            top_p: config.top_p.unwrap_or(1.0),
            min_p: config.min_p.unwrap_or(0.0),
            repetition_penalty: config.repetition_penalty.unwrap_or(1.0),
            seed,
        }
    }

    /// The settings as the operator has them; without the repetition penalty.
    ///
    /// # Errors
    /// One outside its range.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let demand = |ok: bool, name: &str, value: f32, range: &str| {
            if ok { Ok(()) } else { Err(Error::invalid_argument(format!("{name} is {value}: it must be {range}"))) }
        };
        demand(self.temperature >= 0.0 && self.temperature.is_finite(), "temperature", self.temperature, "zero or more")?;
        demand((0.0..=1.0).contains(&self.top_p), "top-p", self.top_p, "between 0 and 1")?;
        demand((0.0..=1.0).contains(&self.min_p), "min-p", self.min_p, "between 0 and 1")?;
        let penalty = self.repetition_penalty;
        demand(penalty > 0.0 && penalty.is_finite(), "the repetition penalty", penalty, "more than zero")?;
        // More than any vocabulary has is all of it.
        let top_k = u32::try_from(self.top_k).unwrap_or(0);
        Ok(Settings { temperature: self.temperature, top_p: self.top_p, min_p: self.min_p, top_k, seed: self.seed })
    }
}

/// Chooses tokens from logits that the host has.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    settings: Settings,
    scores: Vec<f32>,
}

impl Sampler {
    /// One with these settings.
    ///
    /// # Errors
    /// A setting outside its range.
    pub fn new(sampling: Sampling) -> Result<Self> {
        Ok(Self { sampling, settings: sampling.settings()?, scores: Vec::new() })
    }

    /// Its settings.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The token after `context` (whose tokens the repetition penalty applies to, and whose length is the token's place), given its `logits`.
    ///
    /// # Errors
    /// A logit that is NaN or +∞, or none that is finite.
    pub fn sample(&mut self, logits: &[f32], context: &[u32]) -> Result<u32> {
        self.scores.clear();
        self.scores.extend_from_slice(logits);
        penalise(&mut self.scores, context, self.sampling.repetition_penalty);
        choose(&self.scores, &self.settings, context.len() as u32).map(|token| token as u32)
    }
}

/// Divides positive scores of tokens in `context` by `penalty`, and multiplies negative ones.
pub(crate) fn penalise(scores: &mut [f32], context: &[u32], penalty: f32) {
    if penalty == 1.0 {
        return;
    }
    let mut seen = vec![false; scores.len()];
    for &id in context {
        let Some(score) = scores.get_mut(id as usize) else { continue };
        if !std::mem::replace(&mut seen[id as usize], true) {
            *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
        }
    }
}
