//! How tokens are chosen, as the command line asks for it.

use clap::Args;
use elinvar_llm::{GenerationConfig, Sampling};

/// Sampling; what is not given is as the model recommends.
#[derive(Clone, Debug, Args)]
pub(crate) struct SamplingArgs {
    /// Always take the most likely token
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "min_p"])]
    greedy: bool,
    /// Divide the logits by this: below 1 favours likely tokens, above 1 gives more variety; 0 is greedy
    #[arg(long)]
    temperature: Option<f32>,
    /// Sample from this many most likely tokens; 0 for all
    #[arg(long)]
    top_k: Option<usize>,
    /// Sample from the most likely tokens up to this cumulative probability
    #[arg(long)]
    top_p: Option<f32>,
    /// Drop tokens less likely than this fraction of the most likely
    #[arg(long)]
    min_p: Option<f32>,
    /// Penalise the logits of tokens that occurred by this factor; 1 for no penalty
    #[arg(long)]
    repetition_penalty: Option<f32>,
    /// Seed the sampling: with --precision strict the same seed gives the same text on every machine
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

impl SamplingArgs {
    /// The settings over the model's own.
    pub(crate) fn settings(&self, recommended: &GenerationConfig) -> Sampling {
        let base = if self.greedy { Sampling { seed: self.seed, ..Sampling::greedy() } } else { Sampling::recommended(recommended, self.seed) };
        Sampling {
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            seed: self.seed,
        }
    }
}
