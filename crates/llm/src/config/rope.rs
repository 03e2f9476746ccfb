//! Rotary embedding as configurations describe it.
//!
//! transformers 4 writes `rope_theta` beside an optional `rope_scaling` dictionary, transformers 5 puts both into `rope_parameters`.

use elinvar::{Error, Result, kernels::rope::RopeScaling};
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
    pub divisors: Option<Vec<f32>>,
}

/// The dictionary `rope_parameters` or `rope_scaling`.
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
    full_attention: Option<IgnoredAny>,
    sliding_attention: Option<IgnoredAny>,
}

impl RopeDictionary {
    /// Completes the dictionary with the older keys beside it.
    pub(super) fn resolve(&self, theta: Option<f64>, partial: Option<f64>, head_dim: usize) -> Result<Rope> {
        if self.full_attention.is_some() || self.sliding_attention.is_some() {
            return Err(Error::unsupported("rotary parameters that differ by layer type are not supported"));
        }
        let theta = self.rope_theta.or(theta).unwrap_or(10_000.0);
        let partial = self.partial_rotary_factor.or(partial).unwrap_or(1.0);
        let dimensions = (head_dim as f64 * partial) as usize;
        if !(theta.is_finite() && theta > 0.0) {
            return Err(Error::invalid_data(format!("'rope_theta' is {theta}: it must be positive")));
        }
        if !(partial > 0.0 && partial <= 1.0) || dimensions == 0 || !dimensions.is_multiple_of(2) {
            return Err(Error::invalid_data(format!(
                "'partial_rotary_factor' {partial} of heads of {head_dim} elements: an even number must be rotated"
            )));
        }
        Ok(Rope { theta, dimensions, scaling: self.scaling()?, divisors: None })
    }

    fn scaling(&self) -> Result<RopeScaling> {
        match self.rope_type.as_deref().or(self.old_type.as_deref()) {
            None | Some("default") => Ok(RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear { factor: positive("factor", self.factor)? }),
            Some("llama3") => {
                let factor = positive("factor", self.factor)?;
                let (low, high) = (positive("low_freq_factor", self.low_freq_factor)?, positive("high_freq_factor", self.high_freq_factor)?);
                if low >= high {
                    return Err(Error::invalid_data(format!("'low_freq_factor' {low} must be less than 'high_freq_factor' {high}")));
                }
                let original = self.original_max_position_embeddings.filter(|&n| n > 0).and_then(|n| u32::try_from(n).ok());
                let original_max_position = original.ok_or_else(|| absent("original_max_position_embeddings"))?;
                Ok(RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_max_position })
            }
            Some(other) => Err(Error::unsupported(format!("rotary scaling '{other}' is not supported: default, linear and llama3 are"))),
        }
    }
}

fn absent(key: &str) -> Error {
    Error::invalid_data(format!("the rotary parameters lack '{key}'"))
}

fn positive(key: &str, value: Option<f64>) -> Result<f32> {
    let value = value.ok_or_else(|| absent(key))?;
    if value.is_finite() && value > 0.0 { Ok(value as f32) } else { Err(Error::invalid_data(format!("'{key}' is {value}: it must be positive"))) }
}
