//! Rotary embedding as configurations describe it.
//!
//! transformers 4 writes `rope_theta` beside an optional `rope_scaling` dictionary, transformers 5 puts both into `rope_parameters`.

use std::collections::BTreeMap;

use elinvar::{
    Error, Result,
    kernels::rope::{RopeScaling, frequencies},
};
use serde::{Deserialize, de::IgnoredAny};

/// Rotary position embedding, half-split form.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the geometric series of frequencies.
    pub theta: f64,
    /// Leading elements of each head that are rotated (even).
    pub dimensions: usize,
    /// How frequencies are stretched to longer contexts.
    pub scaling: RopeScaling,
    /// What each frequency is divided by after that, if anything.
    pub divisors: Divisors,
    /// What cosines and sines are multiplied by: YaRN and LongRoPE sharpen attention by it.
    pub attention_factor: f32,
}

/// What frequencies are divided by.
#[derive(Clone, Debug, PartialEq)]
pub enum Divisors {
    /// Nothing.
    None,
    /// These.
    Fixed(Vec<f32>),
    /// LongRoPE: by the context that a text may fill.
    ByContext {
        /// The longest context, in tokens, that `short` is for.
        original: usize,
        /// Up to there.
        short: Vec<f32>,
        /// Beyond.
        long: Vec<f32>,
    },
}

impl Rope {
    /// Without divisors and attention factor.
    pub(super) fn new(theta: f64, dimensions: usize, scaling: RopeScaling) -> Self {
        Self { theta, dimensions, scaling, divisors: Divisors::None, attention_factor: 1.0 }
    }

    /// The frequencies, in radians for each position, of texts that may have `context` tokens.
    ///
    /// # Errors
    /// Numbers outside their range.
    pub(crate) fn frequencies(&self, context: usize) -> Result<Vec<f32>> {
        let mut rates = frequencies(&self.scaling, self.theta, self.dimensions)?;
        let divisors = match &self.divisors {
            Divisors::None => return Ok(rates),
            Divisors::Fixed(divisors) => divisors,
            Divisors::ByContext { original, short, long } => {
                if context <= *original {
                    short
                } else {
                    long
                }
            }
        };
        if divisors.len() != rates.len() {
            return Err(Error::invalid_data(format!("{} divisors for {} rotary frequencies", divisors.len(), rates.len())));
        }
        rates.iter_mut().zip(divisors).for_each(|(rate, divisor)| *rate /= divisor);
        Ok(rates)
    }
}

/// YaRN's factor of cosines and sines for a context stretched by `factor`.
pub(super) fn yarn_attention_factor(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// The dictionary `rope_parameters` or `rope_scaling`, or one of those for each layer type that a `rope_parameters` has.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RopeDictionary {
    rope_type: Option<String>,
    #[serde(rename = "type")]
    old_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<usize>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    short_factor: Option<Vec<f64>>,
    long_factor: Option<Vec<f64>>,
    pub(super) full_attention: Option<Box<RopeDictionary>>,
    pub(super) sliding_attention: Option<Box<RopeDictionary>>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// What stands beside the dictionary.
#[derive(Clone, Copy)]
pub(super) struct Beside {
    pub(super) theta: f64,
    pub(super) partial: Option<f64>,
    pub(super) head_dim: usize,
    pub(super) max_context: usize,
    /// `original_max_position_embeddings`, which Phi-3 has beside the dictionary.
    pub(super) original: Option<usize>,
    /// Phi-3 once called LongRoPE `su` and `yarn`.
    pub(super) is_phi3: bool,
}

impl RopeDictionary {
    pub(super) fn resolve(&self, beside: Beside) -> Result<Rope> {
        if self.full_attention.is_some() || self.sliding_attention.is_some() {
            return Err(Error::unsupported("rotary parameters that differ by layer type are not supported in this architecture"));
        }
        if let Some(key) = self.others.keys().find(|key| *key != "finetuned") {
            return Err(Error::unsupported(format!("the rotary parameters have '{key}', which may change the result and is not supported")));
        }
        let head_dim = beside.head_dim;
        let theta = self.rope_theta.unwrap_or(beside.theta);
        let partial = self.partial_rotary_factor.or(beside.partial).unwrap_or(1.0);
        let dimensions = (head_dim as f64 * partial) as usize;
        if !(theta.is_finite() && theta > 0.0) {
            return Err(Error::invalid_data(format!("'rope_theta' is {theta}: it must be positive")));
        }
        if !(partial > 0.0 && partial <= 1.0) || dimensions == 0 || !dimensions.is_multiple_of(2) {
            return Err(Error::invalid_data(format!(
                "'partial_rotary_factor' {partial} of heads of {head_dim} elements: an even number must be rotated"
            )));
        }
        let plain = Rope::new(theta, dimensions, RopeScaling::None);
        match self.rope_type.as_deref().or(self.old_type.as_deref()) {
            None | Some("default") => Ok(plain),
            Some("linear") => Ok(Rope { scaling: RopeScaling::Linear { factor: positive("factor", self.factor)? }, ..plain }),
            Some("llama3") => Ok(Rope { scaling: self.llama3()?, ..plain }),
            Some("longrope") => self.longrope(plain, beside),
            Some("su" | "yarn") if beside.is_phi3 => self.longrope(plain, beside),
            Some("yarn") => self.yarn(plain, beside),
            Some(other) => {
                Err(Error::unsupported(format!("rotary scaling '{other}' is not supported: default, linear, llama3, yarn and longrope are")))
            }
        }
    }

    fn llama3(&self) -> Result<RopeScaling> {
        let factor = positive("factor", self.factor)?;
        let (low, high) = (positive("low_freq_factor", self.low_freq_factor)?, positive("high_freq_factor", self.high_freq_factor)?);
        if low >= high {
            return Err(Error::invalid_data(format!("'low_freq_factor' {low} must be less than 'high_freq_factor' {high}")));
        }
        let original_max_position = context(self.original_max_position_embeddings)?;
        Ok(RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_max_position })
    }

    fn yarn(&self, plain: Rope, beside: Beside) -> Result<Rope> {
        let factor = positive("factor", self.factor)?;
        let (beta_fast, beta_slow) = (positive("beta_fast", self.beta_fast.or(Some(32.0)))?, positive("beta_slow", self.beta_slow.or(Some(1.0)))?);
        if beta_fast <= beta_slow {
            return Err(Error::invalid_data(format!("'beta_fast' {beta_fast} must be greater than 'beta_slow' {beta_slow}")));
        }
        let attention_factor = match (self.attention_factor, self.mscale, self.mscale_all_dim) {
            (Some(factor), ..) => factor,
            (None, Some(over), Some(under)) if over != 0.0 && under != 0.0 => {
                yarn_attention_factor(factor.into(), over) / yarn_attention_factor(factor.into(), under)
            }
            (None, ..) => yarn_attention_factor(factor.into(), 1.0),
        };
        let original_max_position = context(self.original_max_position_embeddings.or(Some(beside.max_context)))?;
        let scaling = RopeScaling::Yarn { factor, beta_fast, beta_slow, original_max_position, truncate: self.truncate.unwrap_or(true) };
        Ok(Rope { scaling, attention_factor: positive("attention_factor", Some(attention_factor))?, ..plain })
    }

    fn longrope(&self, plain: Rope, beside: Beside) -> Result<Rope> {
        let original = context(beside.original.or(self.original_max_position_embeddings))? as usize;
        let divisors = |key: &str, factors: &Option<Vec<f64>>| {
            let factors = factors.as_ref().ok_or_else(|| absent(key))?;
            if factors.len() != plain.dimensions / 2 {
                return Err(Error::invalid_data(format!("'{key}' has {} entries for {} rotary frequencies", factors.len(), plain.dimensions / 2)));
            }
            factors.iter().map(|&factor| positive(key, Some(factor))).collect()
        };
        let (short, long) = (divisors("short_factor", &self.short_factor)?, divisors("long_factor", &self.long_factor)?);
        let stretched = self.factor.unwrap_or(beside.max_context as f64 / original as f64);
        let attention_factor = match self.attention_factor {
            Some(factor) => factor,
            None if stretched <= 1.0 => 1.0,
            None => (1.0 + stretched.ln() / (original as f64).ln()).sqrt(),
        };
        let attention_factor = positive("attention_factor", Some(attention_factor))?;
        Ok(Rope { divisors: Divisors::ByContext { original, short, long }, attention_factor, ..plain })
    }
}

/// The context of the first training.
fn context(tokens: Option<usize>) -> Result<u32> {
    tokens.filter(|&n| n > 0).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| absent("original_max_position_embeddings"))
}

fn absent(key: &str) -> Error {
    Error::invalid_data(format!("the rotary parameters lack '{key}'"))
}

fn positive(key: &str, value: Option<f64>) -> Result<f32> {
    let value = value.ok_or_else(|| absent(key))?;
    if value.is_finite() && value > 0.0 { Ok(value as f32) } else { Err(Error::invalid_data(format!("'{key}' is {value}: it must be positive"))) }
}
