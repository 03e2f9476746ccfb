//! The choice of the next token.
//!
//! Filters come in the order of transformers: repetition penalty, temperature, top-k, top-p, min-p. Equal logits rank by the lower id.
//! Exponentials are the strict ones of [`elinvar::kernels::math`] and sums run in a fixed order, so logits of the same bits and the same seed
//! give the same tokens on every machine.

mod random;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use elinvar::{
    Error, Result,
    kernels::{greedy::likeliest, math, simd},
};

use crate::GenerationConfig;
pub(crate) use random::Random;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; zero takes the likeliest token.
    pub temperature: f32,
    /// Keeps this many of the likeliest tokens; zero keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens until their probabilities sum to this; one keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this likely, relative to the likeliest; zero keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens that occurred; one changes nothing.
    pub repetition_penalty: f32,
    /// Where the random numbers begin.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// The likeliest token, always.
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

    fn check(&self) -> Result<()> {
        let demand = |ok: bool, name: &str, value: f32, range: &str| {
            if ok { Ok(()) } else { Err(Error::invalid_argument(format!("{name} is {value}: it must be {range}"))) }
        };
        demand(self.temperature >= 0.0 && self.temperature.is_finite(), "temperature", self.temperature, "zero or more")?;
        demand((0.0..=1.0).contains(&self.top_p), "top-p", self.top_p, "between 0 and 1")?;
        demand((0.0..=1.0).contains(&self.min_p), "min-p", self.min_p, "between 0 and 1")?;
        let penalty = self.repetition_penalty;
        demand(penalty > 0.0 && penalty.is_finite(), "the repetition penalty", penalty, "more than zero")
    }
}

/// Chooses tokens one after the other.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
    scores: Vec<f32>,
    weights: Vec<f32>,
    order: Vec<u32>,
}

impl Sampler {
    /// Begins with the seed.
    ///
    /// # Errors
    /// A setting outside its range.
    pub fn new(sampling: Sampling) -> Result<Self> {
        sampling.check()?;
        Ok(Self { sampling, random: Random::new(sampling.seed), scores: Vec::new(), weights: Vec::new(), order: Vec::new() })
    }

    /// Whether it takes the likeliest token as it is, which a device can do by itself.
    pub(crate) fn is_greedy(&self) -> bool {
        self.sampling.temperature == 0.0 && self.sampling.repetition_penalty == 1.0
    }

    /// The token after `context` (whose tokens the repetition penalty applies to), given its `logits`.
    ///
    /// # Errors
    /// A logit that is NaN or +∞, or none that is finite.
    pub fn sample(&mut self, logits: &[f32], context: &[u32]) -> Result<u32> {
        self.scores.clear();
        self.scores.extend_from_slice(logits);
        self.penalise(context);
        let best = likeliest(&self.scores)?;
        if self.sampling.temperature == 0.0 {
            return Ok(best as u32);
        }
        let (temperature, most) = (self.sampling.temperature, self.scores[best]);
        // Scaled after the subtraction, so that no temperature overflows.
        self.scores.iter_mut().for_each(|score| *score = (*score - most) / temperature);
        self.weights.resize(self.scores.len(), 0.0);
        exponentials(&self.scores, &mut self.weights);
        self.order.clear();
        self.order.extend(0..self.scores.len() as u32);
        self.keep_top_k();
        self.keep_top_p();
        self.keep_min_p();
        Ok(self.draw())
    }

    fn penalise(&mut self, context: &[u32]) {
        let penalty = self.sampling.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        let mut seen = vec![false; self.scores.len()];
        for &id in context {
            let Some(score) = self.scores.get_mut(id as usize) else { continue };
            if !std::mem::replace(&mut seen[id as usize], true) {
                *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
            }
        }
    }

    fn keep_top_k(&mut self) {
        let k = self.sampling.top_k;
        if k > 0 && k < self.order.len() {
            let scores = &self.scores;
            self.order.select_nth_unstable_by(k - 1, |&a, &b| rank(scores, a, b));
            self.order.truncate(k);
            self.order.sort_unstable_by(|&a, &b| rank(scores, a, b));
        }
    }

    /// Sorts only as far as the mass reaches.
    fn keep_top_p(&mut self) {
        if self.sampling.top_p >= 1.0 {
            return;
        }
        let (scores, weights, order) = (&self.scores, &self.weights, &mut self.order);
        let weight = |id: u32| f64::from(weights[id as usize]);
        let enough = f64::from(self.sampling.top_p) * order.iter().map(|&id| weight(id)).sum::<f64>();
        let (mut sorted, mut mass) = (0, 0.0);
        while sorted < order.len() {
            let end = (sorted * 8).max(64).min(order.len());
            if end < order.len() {
                order[sorted..].select_nth_unstable_by(end - sorted, |&a, &b| rank(scores, a, b));
            }
            order[sorted..end].sort_unstable_by(|&a, &b| rank(scores, a, b));
            for index in sorted..end {
                mass += weight(order[index]);
                if mass >= enough {
                    order.truncate(index + 1);
                    return;
                }
            }
            sorted = end;
        }
    }

    fn keep_min_p(&mut self) {
        let least = self.sampling.min_p;
        if least > 0.0 {
            // The likeliest has weight one.
            self.order.retain(|&id| self.weights[id as usize] >= least);
        }
    }

    fn draw(&mut self) -> u32 {
        let weight = |id: u32| f64::from(self.weights[id as usize]);
        let total: f64 = self.order.iter().map(|&id| weight(id)).sum();
        let mut left = self.random.uniform() * total;
        let mut last = 0;
        for &id in self.order.iter().filter(|&&id| weight(id) > 0.0) {
            last = id;
            left -= weight(id);
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

/// Descending by score, equal scores by ascending id.
fn rank(scores: &[f32], a: u32, b: u32) -> Ordering {
    scores[b as usize].partial_cmp(&scores[a as usize]).unwrap_or(Ordering::Equal).then(a.cmp(&b))
}

simd! {
    fn exponentials(scores: &[f32], weights: &mut [f32]) {
        for (weight, &score) in weights.iter_mut().zip(scores) {
            *weight = math::exp(score);
        }
    }
}
