//! How well a model predicts a text.

use elinvar::{Error, Result};

use crate::Session;

/// Negative log-likelihoods of tokens, in nats: how many, their sum and the sum of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Perplexity {
    /// Adds the tokens of a window as llama.cpp's `perplexity` does: the text begins anew, the first half is context, and the tokens of the second half
    /// are predicted, but for the first of them. `bos`, if given, takes the place of the first token.
    ///
    /// # Errors
    /// Fewer than four tokens, one outside the vocabulary, more than the session has room for, or a failed device.
    pub fn add_window(&mut self, session: &mut Session, tokens: &[u32], bos: Option<u32>) -> Result<()> {
        if tokens.len() < 4 {
            return Err(Error::invalid_argument(format!("a window of {} tokens: at least 4 expected", tokens.len())));
        }
        let mut window = tokens.to_vec();
        window.splice(..1, [bos.unwrap_or(window[0])]);
        session.truncate(0);
        let first = window.len() / 2;
        let (context, predicted) = window.split_at(first);
        session.feed(context)?;
        let logits = session.feed_all(predicted)?;
        let vocabulary = session.model().config().vocab_size;
        for (logits, &next) in logits.chunks_exact(vocabulary).zip(predicted.iter().skip(1)) {
            self.add(negative_log_likelihood(logits, next));
        }
        Ok(())
    }

    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    /// Tokens that were predicted.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The mean negative log-likelihood of a token, in nats.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// e to the mean.
    pub fn perplexity(&self) -> f64 {
        self.mean().exp()
    }

    /// The standard error of the perplexity, as if tokens were independent.
    pub fn standard_error(&self) -> f64 {
        let variance = (self.squares / self.count as f64 - self.mean() * self.mean()).max(0.0);
        (variance / self.count.saturating_sub(1) as f64).sqrt() * self.perplexity()
    }
}

/// −ln of the probability of a token.
fn negative_log_likelihood(logits: &[f32], token: u32) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    sum.ln() - f64::from(logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY) - most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_and_its_error_are_those_of_the_values() {
        let mut found = Perplexity::default();
        [1.0, 2.0, 3.0].into_iter().for_each(|value| found.add(value));
        assert_eq!((found.count(), found.mean(), found.perplexity()), (3, 2.0, 2f64.exp()));
        // The deviation of 1, 2, 3 is sqrt(2/3); of their mean, over sqrt(2).
        assert!((found.standard_error() - (1f64 / 3.0).sqrt() * 2f64.exp()).abs() < 1e-12);
    }

    #[test]
    fn likelihoods_are_those_of_a_softmax() {
        let logits = [1000.0, 1000.0, 1000.0 - 2f32.ln()];
        assert!((negative_log_likelihood(&logits, 0) - 2.5f64.ln()).abs() < 1e-4);
        assert!((negative_log_likelihood(&logits, 2) - 5f64.ln()).abs() < 1e-4);
        assert_eq!(negative_log_likelihood(&[0.0; 8], 3), 8f64.ln());
    }
}
