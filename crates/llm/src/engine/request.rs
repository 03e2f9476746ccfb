//! What is asked of the engine, and what it answers.

use elinvar::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{constraint::Constraint, drafts::Drafts, logprobs::Logprobs};
use crate::{generation::Finish, model::CacheType, sampling::Sampling};

/// What an engine may use, and what it accepts.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// How keys and values are stored.
    pub cache: CacheType,
    /// Tokens that the cache holds, of all requests together; whole pages of 32.
    pub cache_tokens: usize,
    /// The most tokens of prompt and answer together.
    pub context: usize,
    /// The most requests that are computed at a time.
    pub running: usize,
    /// The most requests that wait.
    pub waiting: usize,
    /// The most tokens of a step, at least as many as run at a time: those of prompts are cut into parts, so that other requests go on meanwhile.
    pub step_tokens: usize,
    /// Whether beginnings of texts stay in the cache for prompts that begin likewise.
    pub shares_prefixes: bool,
    /// Speculative decoding, if any. Tokens that the host chooses are not guessed: those with penalties, a bias or a constraint.
    pub drafts: Option<Drafts>,
}

impl EngineOptions {
    /// For a context of so many tokens, with a cache for eight of them.
    pub fn new(context: usize, cache: impl Into<CacheType>) -> Self {
        Self {
            cache: cache.into(),
            cache_tokens: 8 * context,
            context,
            running: 64,
            waiting: 1024,
            step_tokens: 512,
            shares_prefixes: true,
            drafts: None,
        }
    }

    /// Tokens that the cache has room for besides: what a step is filled up with, at most, and those of a text by itself.
    pub(crate) fn spare_slots(&self) -> usize {
        self.step_tokens.saturating_mul(2)
    }
}

/// A prompt to continue, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// Tokens that end the answer; they are not part of it.
    pub end_tokens: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Subtracted from the logits of tokens that the answer has already.
    pub presence_penalty: f32,
    /// Subtracted from the logits of tokens for each time that the answer has them.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub bias: Vec<(u32, f32)>,
    /// The name of the adapter that its tokens are computed with, if with one.
    pub adapter: Option<String>,
    /// Report the log probability of each token, and of so many of the most likely.
    pub logprobs: Option<usize>,
    /// Report the logits that each token was chosen from, as the model gave them.
    pub reports_logits: bool,
    /// Which tokens may come at all. It is not written with the rest.
    #[serde(skip)]
    pub constraint: Option<Constraint>,
}

impl Request {
    /// A greedy continuation by at most so many tokens.
    pub fn new(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            prompt,
            max_tokens,
            end_tokens: Vec::new(),
            sampling: Sampling::greedy(),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            bias: Vec::new(),
            adapter: None,
            logprobs: None,
            reports_logits: false,
            constraint: None,
        }
    }

    /// Whether the device draws its tokens: nothing but the device's logits and settings says which.
    pub(super) fn is_drawn_on_device(&self) -> bool {
        let is_plain = self.sampling.repetition_penalty == 1.0 && self.presence_penalty == 0.0 && self.frequency_penalty == 0.0;
        is_plain && self.bias.is_empty() && self.constraint.is_none()
    }

    /// Whether the host reads the logits of its tokens.
    pub(super) fn is_looked_at(&self) -> bool {
        self.logprobs.is_some() || self.reports_logits || !self.is_drawn_on_device()
    }

    /// Checks what can be known before it runs.
    pub(super) fn check(&self, options: &EngineOptions, vocabulary: usize) -> Result<()> {
        let (length, context) = (self.prompt.len(), options.context);
        if length == 0 {
            return Err(Error::invalid_argument("the prompt is empty: give at least one token"));
        }
        if length >= context {
            return Err(Error::invalid_argument(format!(
                "the prompt of {length} tokens leaves no room in a context of {context}: shorten it or raise the context"
            )));
        }
        if length >= options.cache_tokens {
            return Err(Error::invalid_argument(format!(
                "the prompt of {length} tokens leaves no room in a cache of {}: shorten it or give the cache more memory",
                options.cache_tokens
            )));
        }
        let ids = self.prompt.iter().chain(self.bias.iter().map(|(token, _)| token));
        if let Some(token) = ids.copied().find(|&token| token as usize >= vocabulary) {
            return Err(Error::invalid_argument(format!("token id {token} is outside the vocabulary of {vocabulary} tokens")));
        }
        let numbers = [("the presence penalty", self.presence_penalty), ("the frequency penalty", self.frequency_penalty)];
        let biases = self.bias.iter().map(|&(_, bias)| ("a bias", bias));
        match numbers.into_iter().chain(biases).find(|(_, value)| !value.is_finite()) {
            Some((name, value)) => Err(Error::invalid_argument(format!("{name} is {value}: a finite number expected"))),
            None => self.sampling.settings().map(|_| ()),
        }
    }
}

/// Names a request of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub(super) u64);

/// What a step of the engine brings.
#[derive(Debug)]
pub enum Output {
    /// A token of an answer.
    Token {
        /// Whose.
        request: RequestId,
        /// The token.
        token: u32,
        /// Tokens of the prompt that were in the cache already.
        cached_tokens: usize,
        /// If asked for.
        logprobs: Option<Logprobs>,
        /// If asked for: the model's logits, before penalties, bias and constraint.
        logits: Option<Vec<f32>>,
    },
    /// An answer is complete.
    Finished {
        /// Whose.
        request: RequestId,
        /// Why.
        finish: Finish,
        /// Tokens of the prompt that were in the cache already.
        cached_tokens: usize,
    },
    /// A request ends without an answer, or with a part of one.
    Failed {
        /// Whose.
        request: RequestId,
        /// Why.
        error: Error,
    },
}

/// What an engine has and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Pages of the cache, of 32 tokens each.
    pub pages: usize,
    /// Those that no request has.
    pub free_pages: usize,
    /// Those of them that hold the beginning of a text.
    pub cached_pages: usize,
    /// Requests that are computed.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Steps so far.
    pub steps: u64,
    /// Tokens computed so far.
    pub computed_tokens: u64,
    /// Tokens of prompts that were in the cache already, so far.
    pub cached_tokens: u64,
    /// Tokens generated so far.
    pub generated_tokens: u64,
    /// Guesses of tokens that steps have checked, so far.
    pub drafted_tokens: u64,
    /// Those of them that were right, so far.
    pub accepted_tokens: u64,
    /// Steps in which a draft model failed, so far: requests went on without its guesses.
    pub draft_failures: u64,
    /// Requests that lost their pages to others and were computed again, so far.
    pub preemptions: u64,
}
