//! Steps over the paged cache: from parts of texts to the tokens that come after them.

use std::sync::Arc;

use elinvar::{Error, Result, kernels::sample::Settings};

use super::{pages::PAGE, request::EngineOptions};
use crate::model::{Model, PagedCache, PagedStep, Stacks, StepData, StepShape};

/// Recorded steps that are kept: one for each shape, which has its own intermediate results.
pub(crate) const RECORDINGS: usize = 32;

/// Tokens of one text that a step computes.
pub(super) struct Part<'a> {
    pub(super) tokens: &'a [u32],
    /// Where the first stands in its text.
    pub(super) position: usize,
    /// The text's pages, with room for these tokens.
    pub(super) pages: &'a [u32],
    /// The number of its adapter.
    pub(super) adapter: Option<u32>,
    /// How the token after the last is drawn.
    pub(super) settings: Settings,
}

/// How a token is drawn that nobody looks at, or that the host chooses.
pub(super) const GREEDY: Settings = Settings { temperature: 0.0, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 0 };

/// A model with a paged cache and the steps recorded so far, the last used at the end.
pub(super) struct Runner {
    model: Arc<Model>,
    cache: PagedCache,
    /// The adapters of steps that have some.
    stacks: Option<Stacks>,
    steps: Vec<PagedStep>,
    /// The first slot of no page: where tokens go that only fill up a step.
    spare: usize,
}

/// The least of 1, 2, 3, 4, 6, 8, 12, 16, … that is at least `count`: steps are filled up to it, by at most half.
pub(super) fn bucket(count: usize) -> usize {
    let power = count.next_power_of_two();
    if count <= power / 4 * 3 { power / 4 * 3 } else { power }.max(count.min(2))
}

impl Runner {
    pub(super) fn new(model: Arc<Model>, options: &EngineOptions, pages: usize) -> Result<Self> {
        let cache = PagedCache::new(&model, [pages, PAGE, options.spare_slots()], options.context, options.cache)?;
        Ok(Self { model, cache, stacks: None, steps: Vec::new(), spare: pages * PAGE })
    }

    pub(super) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Takes other adapters, given as models by their numbers.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub(super) fn set_adapters(&mut self, adapted: &[Option<Arc<Model>>]) -> Result<()> {
        self.steps.retain(|step| !step.shape().adapted);
        self.stacks = if adapted.iter().all(Option::is_none) { None } else { Some(self.model.stacks(adapted)?) };
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn recordings(&self) -> usize {
        self.steps.len()
    }

    /// Computes the parts, those of one token first, and gives the token after each.
    ///
    /// # Errors
    /// Out of memory, logits that are no numbers, or a failed device.
    pub(super) fn run(&mut self, parts: &[Part<'_>]) -> Result<Vec<u32>> {
        let singles = parts.iter().take_while(|part| part.tokens.len() == 1).count();
        let chunks = &parts[singles..];
        let tokens = chunks.iter().map(|part| part.tokens.len()).max().map_or(0, bucket);
        let entries = parts.iter().map(|part| part.pages.len()).max().unwrap_or(1).next_power_of_two().max(8);
        let adapted = parts.iter().any(|part| part.adapter.is_some());
        let shape = StepShape { singles: if singles == 0 { 0 } else { bucket(singles) }, chunks: chunks.len(), tokens, entries, adapted };
        let mut data = StepData::default();
        for index in 0..shape.singles {
            self.add(&mut data, &shape, 1, parts[..singles].get(index))?;
        }
        for part in chunks {
            self.add(&mut data, &shape, tokens, Some(part))?;
        }
        let index = self.prepare(shape)?;
        let mut drawn = self.steps[index].run(&self.model, &data)?;
        drawn.drain(singles..shape.singles);
        Ok(drawn)
    }

    /// The logits after part `index` of the last run, of which `singles` parts had one token.
    ///
    /// # Errors
    /// A failed device.
    pub(super) fn logits(&self, index: usize, singles: usize) -> Result<Vec<f32>> {
        let Some(step) = self.steps.last() else { return Err(Error::internal("no step has run")) };
        step.logits(if index < singles { index } else { index - singles + step.shape().singles })
    }

    /// A text of the step, of `tokens` tokens: those of a part, filled up with such as attend nothing.
    fn add(&self, data: &mut StepData, shape: &StepShape, tokens: usize, part: Option<&Part<'_>>) -> Result<()> {
        let index = |n: usize| i32::try_from(n).map_err(|_| Error::invalid_argument("positions beyond 2^31"));
        let (given, pages): (&[u32], &[u32]) = part.map_or((&[], &[]), |part| (part.tokens, part.pages));
        let first = part.map_or(0, |part| part.position);
        let adapter = part.and_then(|part| part.adapter).map_or(Ok(-1), |number| index(number as usize))?;
        data.adapters.resize(data.adapters.len() + tokens, adapter);
        for (i, &token) in given.iter().enumerate() {
            let position = first + i;
            let Some(&page) = pages.get(position / PAGE) else { return Err(Error::internal("a token without a page")) };
            data.slots.push(index(page as usize * PAGE + position % PAGE)?);
            data.positions.push(index(position)?);
            data.tokens.push(token.cast_signed());
        }
        // Nobody looks at the logits of what fills up.
        data.wanted.push(if given.is_empty() { 0 } else { index(data.tokens.len() - 1)? });
        for _ in given.len()..tokens {
            data.slots.push(index(self.spare + data.tokens.len())?);
            data.positions.push(-1);
            data.tokens.push(0);
        }
        data.tables.extend(pages.iter().map(|page| page.cast_signed()));
        data.tables.resize(data.wanted.len() * shape.entries, 0);
        data.settings.push(part.map_or(GREEDY, |part| part.settings));
        Ok(())
    }

    /// The place of the step of this shape, which is the last.
    fn prepare(&mut self, shape: StepShape) -> Result<usize> {
        let step = match self.steps.iter().position(|step| step.shape() == shape) {
            Some(index) => self.steps.remove(index),
            None => {
                if self.steps.len() == RECORDINGS {
                    self.steps.remove(0);
                }
                PagedStep::record(&self.model, self.stacks.as_ref(), &self.cache, shape)?
            }
        };
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn steps_are_filled_up_by_half_at_most() {
        let buckets: Vec<_> = (1..=17).map(super::bucket).collect();
        assert_eq!(buckets, [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 24]);
    }
}
