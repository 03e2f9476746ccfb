//! What a request's tokens are limited to.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar::{Error, Result};

/// Says which tokens may come next: a grammar's state, for one.
pub trait TokenMask: Send {
    /// Sets the bit of each token that may come next, end tokens included where the answer may end: of token `t` bit `t % 32` of word `t / 32`. All are clear
    /// before, and there is a bit for each token of the vocabulary.
    ///
    /// # Errors
    /// It cannot be known: the request fails.
    fn allow(&mut self, words: &mut [u32]) -> Result<()>;

    /// Goes on by a token, which was allowed.
    ///
    /// # Errors
    /// It was not: the request fails.
    fn accept(&mut self, token: u32) -> Result<()>;
}

/// The mask of one request. Clones share its state.
#[derive(Clone)]
pub struct Constraint(Arc<Mutex<dyn TokenMask>>);

impl Constraint {
    /// Of a mask at the beginning of an answer.
    pub fn new(mask: impl TokenMask + 'static) -> Self {
        Self(Arc::new(Mutex::new(mask)))
    }

    /// Takes the tokens that may not come out of `scores`.
    pub(super) fn restrict(&self, scores: &mut [f32]) -> Result<()> {
        let mut words = vec![0u32; scores.len().div_ceil(32)];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).allow(&mut words)?;
        let mut is_any_allowed = false;
        for (scores, word) in scores.chunks_mut(32).zip(words) {
            for (bit, score) in scores.iter_mut().enumerate().filter(|_| word != u32::MAX) {
                *score = if word >> bit & 1 == 1 { *score } else { f32::NEG_INFINITY };
            }
            is_any_allowed |= word.trailing_zeros() < scores.len() as u32;
        }
        if !is_any_allowed {
            return Err(Error::invalid_argument("the constraint allows no token of the vocabulary: the answer cannot go on"));
        }
        Ok(())
    }

    pub(super) fn accept(&self, token: u32) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).accept(token)
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}
