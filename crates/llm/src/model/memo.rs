//! What is kept of layers that are computed again for their gradients.

use std::{cell::RefCell, str::FromStr, vec};

use elinvar::{Error, Result, Tensor};

/// How much of the forward pass is computed again on the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpointing {
    /// Nothing: all that gradients need is kept.
    #[default]
    None,
    /// Whole layers: only the stream between them is kept.
    Layers,
    /// Of the linear layers those of the feed-forward networks, and what is no linear layer: kept are the stream between layers and, of each, queries, keys,
    /// values and what attention gives.
    FeedForward,
}

impl FromStr for Checkpointing {
    type Err = Error;

    /// `none`, `layers` or `feed-forward`; `true` and `false`, as mlx-lm has them, are all and nothing.
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" | "false" => Ok(Self::None),
            "layers" | "true" => Ok(Self::Layers),
            "feed-forward" => Ok(Self::FeedForward),
            other => Err(Error::invalid_argument(format!("'{}' cannot be computed again: none, layers and feed-forward can", other.escape_debug()))),
        }
    }
}

/// Results of a layer that are kept while it is computed, and stand for them when it is computed again.
#[derive(Default)]
pub(super) struct Memo(RefCell<State>);

#[derive(Default)]
enum State {
    /// Nothing is kept.
    #[default]
    Idle,
    /// What comes is kept.
    Keeping(Vec<Tensor>),
    /// What comes was kept, in order.
    Kept(vec::IntoIter<Tensor>),
}

impl Memo {
    /// What `compute` gives, keeping its results.
    pub(super) fn keeping<T>(&self, compute: impl FnOnce() -> Result<T>) -> Result<T> {
        self.0.replace(State::Keeping(Vec::new()));
        compute()
    }

    /// What `compute` gives, in which results that were kept stand for those that are computed again; they are kept no longer.
    pub(super) fn repeating<T>(&self, compute: impl FnOnce() -> Result<T>) -> Result<T> {
        if let State::Keeping(kept) = self.0.take() {
            self.0.replace(State::Kept(kept.into_iter()));
        }
        let found = compute();
        self.0.take();
        found
    }

    /// A result, or what was kept of it.
    pub(super) fn keep(&self, result: Tensor) -> Result<Tensor> {
        match &mut *self.0.borrow_mut() {
            State::Idle => Ok(result),
            State::Keeping(kept) => {
                kept.push(result.detach());
                Ok(result)
            }
            State::Kept(kept) => {
                kept.next().ok_or_else(|| Error::internal("a layer computed again has more results than were kept"))?.in_place_of(&result)
            }
        }
    }
}
