//! Which requests run, and what of them a step computes.

use std::collections::{HashSet, VecDeque};

use super::{
    pages::{PAGE, Pool},
    request::{EngineOptions, RequestId},
    runner::{bucket, filled, order},
    sequence::Sequence,
};

/// The requests of an engine and the pages that they have.
pub(super) struct Schedule {
    pub(super) pool: Pool,
    /// By arrival; requests that lost their pages are before those that never ran.
    pub(super) waiting: VecDeque<Sequence>,
    /// By arrival.
    pub(super) running: Vec<Sequence>,
    pub(super) preemptions: u64,
    pub(super) steps: u64,
}

/// What a step computes of a request: so many tokens, for which it has pages, and guesses of those after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) id: RequestId,
    pub(super) tokens: usize,
    pub(super) drafts: usize,
}

impl Schedule {
    pub(super) fn new(pages: usize) -> Self {
        Self { pool: Pool::new(pages), waiting: VecDeque::new(), running: Vec::new(), preemptions: 0, steps: 0 }
    }

    pub(super) fn find(&mut self, id: RequestId) -> Option<&mut Sequence> {
        self.running.iter_mut().find(|sequence| sequence.id == id)
    }

    /// All requests, running and waiting.
    pub(super) fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.running.iter().chain(&self.waiting)
    }

    /// Takes a request away with its pages given back, wherever it is.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Sequence> {
        let mut sequence = match self.running.iter().position(|sequence| sequence.id == id) {
            Some(index) => self.running.remove(index),
            None => self.waiting.iter().position(|sequence| sequence.id == id).and_then(|index| self.waiting.remove(index))?,
        };
        sequence.leave(&mut self.pool);
        Some(sequence)
    }

    /// Lets requests run, the first that waits first, as long as there are pages for what they have to compute.
    pub(super) fn admit(&mut self, options: &EngineOptions) {
        while self.running.len() < options.running
            && let Some(mut sequence) = self.waiting.pop_front()
        {
            let pages = if options.shares_prefixes {
                self.pool.beginning(sequence.start(), &sequence.tokens[..sequence.tokens.len() - 1])
            } else {
                Vec::new()
            };
            let needed = (sequence.tokens.len() + 1).div_ceil(PAGE) - pages.len() + self.pool.idle_among(&pages);
            let promised: usize = self.running.iter().map(|sequence| sequence.lacking(sequence.tokens.len())).sum();
            if !self.running.is_empty() && needed + promised > self.pool.available() {
                self.waiting.push_front(sequence);
                return;
            }
            if options.shares_prefixes {
                sequence.adopt(&mut self.pool);
            }
            let place = self.running.partition_point(|other| other.id < sequence.id);
            self.running.insert(place, sequence);
        }
    }

    /// What the next step computes: the last token of each request that has no other, then parts of prompts, within the step's tokens. Parts go to the
    /// requests that have waited longest for one.
    pub(super) fn plan(&mut self, options: &EngineOptions) -> Vec<Share> {
        self.steps += 1;
        let mut shares = Vec::new();
        let single: Vec<_> =
            self.running.iter().filter(|sequence| sequence.remaining() == 1).map(|sequence| (sequence.id, sequence.drafts.len())).collect();
        for (id, drafts) in single {
            if self.make_room(id, 1 + drafts) {
                shares.push(Share { id, tokens: 1, drafts });
            }
        }
        let prompts = self.prompts(options);
        let checked = || shares.iter().filter(|share| share.drafts > 0);
        let width = checked().map(|share| share.tokens + share.drafts).max().unwrap_or(0);
        let others = filled(shares.len() - checked().count(), 1) + filled(checked().count(), width);
        // One at least, unless as many texts go on.
        let left = options.step_tokens.saturating_sub(others).max(usize::from(shares.len() < options.step_tokens));
        if let Some(&(_, first)) = prompts.first().filter(|_| left > 0) {
            // As many as the first's are filled up to; of a power of two of prompts, so that steps have few shapes.
            let length = bucket(first).min(left);
            let most = (left / length).min(prompts.len()).max(1);
            for (id, remaining) in prompts.into_iter().take(1 << most.ilog2()) {
                let tokens = remaining.min(length);
                if self.make_room(id, tokens) {
                    shares.push(Share { id, tokens, drafts: 0 });
                }
            }
        }
        // Room may have been made by those that were to be computed.
        shares.retain(|share| self.running.iter().any(|sequence| sequence.id == share.id));
        shares.sort_by_key(|share| order(share.tokens, share.drafts));
        for share in &shares {
            let steps = self.steps;
            if let Some(sequence) = self.find(share.id) {
                sequence.served = steps;
            }
        }
        shares
    }

    /// Requests with more than one token to compute, and how many, those first that have waited longest for a part. Of those that go on alike only the first:
    /// the others find its pages later.
    fn prompts(&mut self, options: &EngineOptions) -> Vec<(RequestId, usize)> {
        if options.shares_prefixes {
            self.running.iter_mut().filter(|sequence| sequence.remaining() > 1).for_each(|sequence| sequence.adopt(&mut self.pool));
        }
        let mut prompts: Vec<_> = self.running.iter().filter(|sequence| sequence.remaining() > 1).collect();
        prompts.sort_by_key(|sequence| (sequence.served, sequence.id));
        let mut pages = HashSet::new();
        prompts.retain(|sequence| !options.shares_prefixes || sequence.next_page().is_none_or(|page| pages.insert(page)));
        prompts.into_iter().map(|sequence| (sequence.id, sequence.remaining())).collect()
    }

    /// Gives a request pages for its next `tokens` tokens, if there is a free page for each of the others too.
    pub(super) fn has_room_ahead(&mut self, id: RequestId, tokens: usize) -> bool {
        let others = self.running.len();
        let lacking = self.find(id).map_or(0, |sequence| sequence.lacking(sequence.computed + tokens));
        lacking == 0 || (lacking + others <= self.pool.available() && self.make_room(id, tokens))
    }

    /// Gives a request pages for its next `tokens` tokens, if need be those of the requests that came last; if it is the last itself, it gives up its own.
    fn make_room(&mut self, id: RequestId, tokens: usize) -> bool {
        loop {
            let Some(index) = self.running.iter().position(|sequence| sequence.id == id) else { return false };
            let sequence = &mut self.running[index];
            while sequence.lacking(sequence.computed + tokens) > 0
                && let Some(page) = self.pool.take()
            {
                sequence.pages.push(page);
            }
            if sequence.lacking(sequence.computed + tokens) == 0 {
                return true;
            }
            self.preempt_last();
        }
    }

    fn preempt_last(&mut self) {
        if let Some(mut sequence) = self.running.pop() {
            sequence.leave(&mut self.pool);
            sequence.preempted = true;
            self.preemptions += 1;
            let place = self.waiting.partition_point(|other| other.id < sequence.id);
            self.waiting.insert(place, sequence);
        }
    }
}
