//! Models that give vectors of texts.

use std::sync::{Mutex, PoisonError};

use elinvar::Result;
use elinvar_llm::{Embeddings, Encoder};

use serde_json::{Value, json};

use crate::models::unix_time;

/// An encoder, which computes one request after the other.
pub struct Embedder {
    name: String,
    pub(crate) created: u64,
    encoder: Mutex<Encoder>,
    dimensions: usize,
}

impl Embedder {
    /// An encoder by a name.
    pub fn new(name: impl Into<String>, encoder: Encoder) -> Self {
        Self { name: name.into(), created: unix_time(), dimensions: encoder.dimensions(), encoder: Mutex::new(encoder) }
    }

    /// What it answers to.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn object(&self) -> Value {
        json!({"id": self.name, "object": "model", "created": self.created, "owned_by": "elinvar", "meta": {"n_embd": self.dimensions}})
    }

    /// Elements of a vector.
    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The vectors of texts.
    pub(crate) fn embed(&self, texts: &[&str]) -> Result<Embeddings> {
        let encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        encoder.embed(texts, encoder.options())
    }
}
