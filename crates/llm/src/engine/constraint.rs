//! What a request's tokens are limited to.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar::{Error, Result};

/// Says which tokens may come next: a grammar's state, for one.
pub trait TokenMask: Send {
    /// Gives `allow` each token that may come next, end tokens included where the answer may end.
    ///
    /// # Errors
    /// It cannot be known: the request fails.
    fn allowed(&mut self, allow: &mut dyn FnMut(u32)) -> Result<()>;

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
        let mut allowed = vec![f32::NEG_INFINITY; scores.len()];
        let mut count = 0;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).allowed(&mut |token| {
            if let (Some(place), Some(score)) = (allowed.get_mut(token as usize), scores.get(token as usize)) {
                *place = *score;
                count += 1;
            }
        })?;
        if count == 0 {
            return Err(Error::invalid_argument("the constraint allows no token of the vocabulary: the answer cannot go on"));
        }
        scores.copy_from_slice(&allowed);
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
