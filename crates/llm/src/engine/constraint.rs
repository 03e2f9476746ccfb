//! What a request's tokens are limited to.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
pub struct Constraint(Arc<Mutex<State<dyn TokenMask>>>);

struct State<M: ?Sized> {
    /// What may come next, once it is found.
    allowed: Option<Result<Vec<u32>>>,
    mask: M,
}

impl Constraint {
    /// Of a mask at the beginning of an answer.
    pub fn new(mask: impl TokenMask + 'static) -> Self {
        Self(Arc::new(Mutex::new(State { allowed: None, mask })))
    }

    fn state(&self) -> MutexGuard<'_, State<dyn TokenMask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds what may come next of a vocabulary, so that [`Self::restrict`] has it.
    pub(super) fn find(&self, vocabulary: usize) {
        self.state().allowed(vocabulary);
    }

    /// Takes the tokens that may not come out of `scores`.
    pub(super) fn restrict(&self, scores: &mut [f32]) -> Result<()> {
        let mut state = self.state();
        let words = state.allowed(scores.len()).as_ref().map_err(Error::clone)?;
        let mut is_any_allowed = false;
        for (scores, word) in scores.chunks_mut(32).zip(words) {
            for (bit, score) in scores.iter_mut().enumerate().filter(|_| *word != u32::MAX) {
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
        let mut state = self.state();
        state.allowed = None;
        state.mask.accept(token)
    }
}

impl State<dyn TokenMask> {
    fn allowed(&mut self, vocabulary: usize) -> &Result<Vec<u32>> {
        self.allowed.get_or_insert_with(|| {
            let mut words = vec![0; vocabulary.div_ceil(32)];
            self.mask.allow(&mut words).map(|()| words)
        })
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constraint")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allows token `next` alone, and each once.
    struct Ascending {
        next: u32,
        is_asked: bool,
    }

    impl TokenMask for Ascending {
        fn allow(&mut self, words: &mut [u32]) -> Result<()> {
            if std::mem::replace(&mut self.is_asked, true) {
                return Err(Error::internal("asked again"));
            }
            words[self.next as usize / 32] |= 1 << (self.next % 32);
            Ok(())
        }

        fn accept(&mut self, token: u32) -> Result<()> {
            *self = Self { next: token + 1, is_asked: false };
            Ok(())
        }
    }

    #[test]
    fn a_mask_is_found_once_for_each_token() {
        let constraint = Constraint::new(Ascending { next: 31, is_asked: false });
        let allowed = || {
            let mut scores = [1.0f32; 40];
            constraint.restrict(&mut scores).unwrap();
            (0..40).filter(|&token| scores[token].is_finite()).collect::<Vec<_>>()
        };
        constraint.find(40);
        assert_eq!((allowed(), allowed()), (vec![31], vec![31]));
        constraint.accept(31).unwrap();
        assert_eq!(allowed(), [32]);
        constraint.accept(39).unwrap();
        constraint.find(40);
        assert!(constraint.restrict(&mut [1.0; 40]).unwrap_err().to_string().contains("allows no token"));
    }
}
