//! A request on its way.

use elinvar::{Result, kernels::sample::Settings};

use super::{
    adapters::AdapterSlot,
    drafts::Ahead,
    pages::{PAGE, Pool, START},
    request::{Request, RequestId},
    runner::GREEDY,
};

pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) request: Request,
    pub(super) adapter: Option<AdapterSlot>,
    /// The prompt, and the answer so far.
    pub(super) tokens: Vec<u32>,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: usize,
    /// The pages that have them, or are to.
    pub(super) pages: Vec<u32>,
    /// Pages that are known to other sequences, and the number of the last.
    published: (usize, u64),
    /// Guesses of what comes after the tokens, for the next step to check.
    pub(super) drafts: Vec<u32>,
    pub(super) ahead: Ahead,
    /// Tokens whose keys and values a draft model has in the same pages.
    pub(super) followed: usize,
    /// Tokens that it found in the cache.
    pub(super) cached: usize,
    /// The step that last computed a part of it.
    pub(super) served: u64,
    /// Whether it lost its pages once.
    pub(super) preempted: bool,
}

impl Sequence {
    pub(super) fn new(id: RequestId, request: Request, adapter: Option<AdapterSlot>, ahead: Ahead) -> Self {
        Self {
            id,
            tokens: request.prompt.clone(),
            request,
            adapter,
            computed: 0,
            pages: Vec::new(),
            published: (0, start_of(adapter)),
            drafts: Vec::new(),
            ahead,
            followed: 0,
            cached: 0,
            served: 0,
            preempted: false,
        }
    }

    /// How the device draws its tokens.
    ///
    /// # Errors
    /// Settings outside their range.
    pub(super) fn settings(&self) -> Result<Settings> {
        if self.request.is_drawn_on_device() { self.request.sampling.settings() } else { Ok(GREEDY) }
    }

    /// The number of what comes before its first page.
    pub(super) fn start(&self) -> u64 {
        start_of(self.adapter)
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

    /// What comes next, if it is a page that another sequence may have, and the number of what is before.
    pub(super) fn next_page(&self) -> Option<(u64, [u32; PAGE])> {
        let (count, number) = self.published;
        let is_next = self.computed == count * PAGE && self.pages.len() == count;
        // At least the last token is computed, for its logits.
        if is_next && self.remaining() > PAGE { self.tokens[self.computed..].first_chunk().map(|&tokens| (number, tokens)) } else { None }
    }

    /// Takes pages that are known to hold what comes next.
    pub(super) fn adopt(&mut self, pool: &mut Pool) {
        while let Some((before, tokens)) = self.next_page()
            && let Some((page, number)) = pool.find(before, tokens)
        {
            pool.share(page);
            self.pages.push(page);
            self.computed += PAGE;
            self.followed = self.computed;
            self.published = (self.published.0 + 1, number);
            // What it computed itself, before it lost that, does not count.
            self.cached += if self.preempted { 0 } else { PAGE };
        }
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
        self.drafts.clear();
        (self.computed, self.followed, self.published) = (0, 0, (0, self.start()));
    }
}

fn start_of(adapter: Option<AdapterSlot>) -> u64 {
    adapter.map_or(START, |adapter| adapter.start)
}
