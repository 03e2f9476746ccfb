use std::time::{Duration, Instant};

/// How long an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that were in the cache already.
    pub reused_tokens: usize,
    /// Tokens generated.
    pub generated_tokens: usize,
    /// Guesses of tokens that were checked.
    pub drafted_tokens: u64,
    /// Those of them that were right.
    pub accepted_tokens: u64,
    /// From the start until the prompt was in the cache.
    pub prefill: Duration,
    /// From the start until the first token was chosen; zero if there was none.
    pub first_token: Duration,
    /// From the first token's choice to the end.
    pub decode: Duration,
}

impl Statistics {
    /// Tokens computed in a second of prefill.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens - self.reused_tokens, self.prefill)
    }

    /// Tokens generated in a second after the first.
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens.saturating_sub(1), self.decode)
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Takes the times.
pub(super) struct Watch {
    start: Instant,
    first: Option<Instant>,
    statistics: Statistics,
}

impl Watch {
    pub(super) fn start(prompt_tokens: usize) -> Self {
        Self { start: Instant::now(), first: None, statistics: Statistics { prompt_tokens, ..Statistics::default() } }
    }

    pub(super) fn reused(&mut self, tokens: usize) {
        self.statistics.reused_tokens = tokens;
    }

    pub(super) fn guessed(&mut self, drafted: u64, accepted: u64) {
        (self.statistics.drafted_tokens, self.statistics.accepted_tokens) = (drafted, accepted);
    }

    pub(super) fn prefilled(&mut self) {
        self.statistics.prefill = self.start.elapsed();
    }

    /// A token was chosen.
    pub(super) fn token(&mut self) {
        if self.first.is_none() {
            self.first = Some(Instant::now());
            self.statistics.first_token = self.start.elapsed();
        }
    }

    pub(super) fn finish(mut self, generated_tokens: usize) -> Statistics {
        self.statistics.generated_tokens = generated_tokens;
        self.statistics.decode = self.first.map_or(Duration::ZERO, |first| first.elapsed());
        self.statistics
    }
}
