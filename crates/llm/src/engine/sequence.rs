//! A request on its way.

use super::{
    pages::{PAGE, Pool, START},
    request::{Request, RequestId},
};

pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) request: Request,
    /// The prompt, and the answer so far.
    pub(super) tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: usize,
    /// The pages that have them, or are to.
    pub(super) pages: Vec<u32>,
    /// Pages that are known to other sequences, and the number of the last.
    published: (usize, u64),
    /// Tokens of the prompt that were in the cache when it began, once it has.
    pub(super) cached: Option<usize>,
    /// The step that last computed a part of it.
    pub(super) served: u64,
}

impl Sequence {
    pub(super) fn new(id: RequestId, request: Request) -> Self {
        Self { id, tokens: request.prompt.clone(), request, computed: 0, pages: Vec::new(), published: (0, START), cached: None, served: 0 }
    }

    /// Tokens that are to be computed before the next one is chosen.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Tokens of the answer.
    pub(super) fn generated(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Pages for `tokens` tokens that it does not have yet.
    pub(super) fn lacking(&self, tokens: usize) -> usize {
        tokens.div_ceil(PAGE).saturating_sub(self.pages.len())
    }

    /// Begins with pages that hold the beginning of its text, and the number of the last.
    pub(super) fn begin(&mut self, pages: Vec<u32>, number: u64) {
        self.computed = pages.len() * PAGE;
        self.published = (pages.len(), number);
        self.pages = pages;
        self.cached.get_or_insert(self.computed);
    }

    /// Makes full pages known.
    pub(super) fn publish(&mut self, pool: &mut Pool) {
        let (count, number) = &mut self.published;
        let full = self.tokens.as_chunks::<PAGE>().0.iter().zip(&self.pages).take(self.computed / PAGE);
        for (&tokens, &page) in full.skip(*count) {
            *number = pool.publish(page, *number, tokens);
            *count += 1;
        }
    }

    /// Gives its pages back.
    pub(super) fn leave(&mut self, pool: &mut Pool) {
        pool.give_back(&std::mem::take(&mut self.pages));
        (self.computed, self.published) = (0, (0, START));
    }
}
