use elinvar::Result;
use serde::Deserialize;

use super::json::Ids;
use crate::files::ModelFiles;

/// `generation_config.json`: what the model's authors recommend. Every field may be absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a text; empty if the file names none.
    pub eos: Vec<u32>,
    /// Whether to sample rather than take the most likely token.
    pub do_sample: Option<bool>,
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// Keeps the most likely tokens.
    pub top_k: Option<usize>,
    /// Keeps the most likely tokens up to this probability mass.
    pub top_p: Option<f32>,
    /// Keeps tokens at least this likely, relative to the most likely.
    pub min_p: Option<f32>,
    /// Divides the logits of tokens that occurred.
    pub repetition_penalty: Option<f32>,
}

#[derive(Deserialize)]
struct Raw {
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl GenerationConfig {
    /// Reads the file; the default if there is none.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read(files: &ModelFiles) -> Result<Self> {
        let raw: Option<Raw> = files.read_json("generation_config.json")?;
        Ok(raw.map_or_else(Self::default, |raw| Self {
            eos: raw.eos_token_id.map(Ids::into_vec).unwrap_or_default(),
            do_sample: raw.do_sample,
            temperature: raw.temperature,
            top_k: raw.top_k,
            top_p: raw.top_p,
            min_p: raw.min_p,
            repetition_penalty: raw.repetition_penalty,
        }))
    }
}
