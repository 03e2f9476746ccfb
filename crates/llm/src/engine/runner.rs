//! Steps over the paged cache: from parts of texts to the tokens that come after them.

use std::{iter, ops::Range, sync::Arc};

use elinvar::{Completion, Error, Reading, Result, Workspace, kernels::sample::Settings};

use super::{pages::PAGE, request::EngineOptions};
use crate::model::{Model, PagedCache, PagedStep, Stacks, StepData, StepShape, drawn_tokens};

/// Recorded steps that are kept: one for each shape.
const RECORDINGS: usize = 32;

/// Tokens of one text that a step computes.
pub(super) struct Part<'a> {
    pub(super) tokens: &'a [u32],
    /// Guesses of what comes after them, to be checked: the token after each is drawn too.
    pub(super) drafts: &'a [u32],
    /// Where the first stands in its text.
    pub(super) position: usize,
    /// The text's pages, with room for these tokens.
    pub(super) pages: &'a [u32],
    /// The number of its adapter.
    pub(super) adapter: Option<u32>,
    /// How the tokens after the last and after drafts are drawn.
    pub(super) settings: Settings,
}

impl Part<'_> {
    /// Tokens, drafts among them.
    fn len(&self) -> usize {
        self.tokens.len() + self.drafts.len()
    }
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
    /// The intermediates of steps, of which one runs at a time.
    workspace: Workspace,
    /// The first slot of no page: where tokens go that only fill up a step.
    spare: usize,
    /// Rows of a step, unless a text by itself has more.
    step_tokens: usize,
    /// Whether steps follow others although the device does not compute beside the host.
    pub(super) always_follows: bool,
}

/// A step that was submitted.
pub(super) struct Run {
    /// Which logits are those of each part: those after it, and after each of its drafts.
    places: Vec<Range<usize>>,
    done: Completion,
    /// What it draws, if it is sent for.
    drawn: Option<Reading>,
}

/// The order of parts in a step: those of one token, those of more, those with drafts.
pub(super) fn order(tokens: usize, drafts: usize) -> usize {
    if drafts > 0 { 2 } else { usize::from(tokens > 1) }
}

/// The least of 1, 2, 3, 4, 6, 8, 12, 16, … that is at least `count`: steps are filled up to it, by at most half.
pub(super) fn bucket(count: usize) -> usize {
    let power = count.next_power_of_two();
    if count <= power / 4 * 3 { power / 4 * 3 } else { power }.max(count.min(2))
}

/// Parts of one token, of more, and with drafts.
fn kinds<'a, 'b>(parts: &'a [Part<'b>]) -> [&'a [Part<'b>]; 3] {
    let first = parts.partition_point(|part| order(part.tokens.len(), part.drafts.len()) < 1);
    let second = parts.partition_point(|part| part.drafts.is_empty());
    [&parts[..first], &parts[first..second], &parts[second..]]
}

/// Rows of so many texts of at most `longest` tokens, filled up.
pub(super) fn filled(texts: usize, longest: usize) -> usize {
    if texts == 0 { 0 } else { bucket(texts) * bucket(longest) }
}

/// Entries of the tables of a step whose texts have at most so many pages.
fn entries(pages: usize) -> usize {
    pages.next_power_of_two().max(8)
}

/// Steps of every number of tokens that requests bring, of prompts and of texts that go on, with the shortest table; with the longer ones each alone.
fn usual_shapes(options: &EngineOptions) -> Vec<StepShape> {
    let buckets = |first: usize, most: usize| {
        let mut buckets: Vec<_> = (first..=most).map(bucket).collect();
        buckets.dedup();
        buckets
    };
    let (prompts, singles) = (buckets(2, options.step_tokens), buckets(1, options.running));
    let none = StepShape { singles: 0, chunks: 0, tokens: 0, checked: 0, width: 0, entries: entries(1), adapted: false };
    let beside = |singles: usize, entries| {
        let most = options.step_tokens.saturating_sub(singles);
        prompts
            .iter()
            .map(move |&tokens| StepShape { singles, chunks: 1, tokens: tokens.min(most), entries, ..none })
            .filter(|shape| shape.tokens > 1)
    };
    let mixed = singles.iter().flat_map(|&singles| beside(singles, none.entries));
    let of_table = |entries| beside(0, entries).chain(singles.iter().map(move |&singles| StepShape { singles, entries, ..none }));
    let tables = iter::successors(Some(none.entries), |&entries| (entries * PAGE < options.context).then_some(2 * entries));
    mixed.chain(tables.flat_map(of_table)).collect()
}

impl Runner {
    pub(super) fn new(model: Arc<Model>, options: &EngineOptions, pages: usize) -> Result<Self> {
        // Other processes must take the same steps, whenever what is read arrives.
        let always_follows = model.executor().world().is_some();
        let cache = PagedCache::new(&model, [pages, PAGE, options.spare_slots()], options.context, options.cache)?;
        Ok(Self {
            model,
            cache,
            stacks: None,
            steps: Vec::new(),
            workspace: Workspace::default(),
            spare: pages * PAGE,
            step_tokens: options.step_tokens,
            always_follows,
        })
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

    /// How many steps are recorded, and the bytes of what they share.
    #[cfg(test)]
    pub(super) fn recordings(&self) -> (usize, usize) {
        (self.steps.len(), self.workspace.bytes())
    }

    /// Rows of the largest recorded step.
    #[cfg(test)]
    pub(super) fn most_rows(&self) -> usize {
        self.steps.iter().map(|step| step.shape().rows()).max().unwrap_or(0)
    }

    /// Computes the parts, in the order of [`order`], and gives the token after each, and after each of its drafts.
    ///
    /// # Errors
    /// Out of memory, logits that are no numbers, or a failed device.
    pub(super) fn run(&mut self, parts: &[Part<'_>]) -> Result<Vec<Vec<u32>>> {
        let mut run = self.submit(parts)?;
        self.wait(&mut run)
    }

    /// Submits a step of the parts, in the order of [`order`], to be waited for before another one is submitted.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub(super) fn submit(&mut self, parts: &[Part<'_>]) -> Result<Run> {
        let shape = self.shape(parts);
        let (data, places) = self.data(&shape, parts)?;
        let index = self.prepare(shape)?;
        let done = self.steps[index].submit(&self.model, &data, false)?;
        Ok(Run { places, done, drawn: None })
    }

    /// Submits a step of the tokens that `run`, the last one, draws, before they are known: in the same order, with nothing for their `tokens`. There is none
    /// where the device has not computed beside the host, or steps of other shapes are between.
    ///
    /// # Errors
    /// A failed device.
    pub(super) fn follow(&mut self, run: &mut Run, parts: &[Part<'_>]) -> Result<Option<Run>> {
        let shape = self.shape(parts);
        if self.last()?.shape() != shape || !shape.goes_on() {
            return Ok(None);
        }
        if run.drawn.insert(self.last()?.read_later()?).is_complete() && !self.always_follows {
            return Ok(None);
        }
        let (data, places) = self.data(&shape, parts)?;
        let index = self.prepare(shape)?;
        let done = self.steps[index].submit(&self.model, &data, true)?;
        Ok(Some(Run { places, done, drawn: None }))
    }

    /// Waits for the last run, or for the one that it follows, and gives the token after each part, and after each of its drafts.
    ///
    /// # Errors
    /// Logits that are no numbers, or a failed device.
    pub(super) fn wait(&self, run: &mut Run) -> Result<Vec<Vec<u32>>> {
        let drawn = run.drawn.take().map_or_else(|| self.last()?.drawn(), |reading| Ok(drawn_tokens(&reading.wait()?)));
        run.done.wait()?;
        let drawn = drawn?;
        let of_part = |place: &Range<usize>| drawn.get(place.clone()).map(<[u32]>::to_vec);
        run.places.iter().map(of_part).collect::<Option<_>>().ok_or_else(|| Error::internal("a step drew too few tokens"))
    }

    /// The logits after part `index` of the last run, or after one of its drafts.
    ///
    /// # Errors
    /// A failed device.
    pub(super) fn logits(&self, run: &Run, index: usize, draft: usize) -> Result<Vec<f32>> {
        let place = run.places.get(index).ok_or_else(|| Error::internal("logits of no part"))?;
        self.last()?.logits(place.start + draft)
    }

    fn last(&self) -> Result<&PagedStep> {
        self.steps.last().ok_or_else(|| Error::internal("no step has run"))
    }

    /// What a step of these parts has.
    fn shape(&self, parts: &[Part<'_>]) -> StepShape {
        let [singles, chunks, checked] = kinds(parts);
        let longest = |parts: &[Part<'_>]| parts.iter().map(Part::len).max().unwrap_or(0);
        let others = filled(singles.len(), 1) + filled(checked.len(), longest(checked));
        // A step of as many rows as it may have, and no more, fills the tiles of its products.
        let most = self.step_tokens.saturating_sub(others) / chunks.len().max(1);
        StepShape {
            singles: filled(singles.len(), 1),
            chunks: chunks.len(),
            tokens: bucket(longest(chunks)).min(most).max(longest(chunks)),
            checked: filled(checked.len(), 1),
            width: bucket(longest(checked)),
            entries: entries(parts.iter().map(|part| part.pages.len()).max().unwrap_or(1)),
            adapted: parts.iter().any(|part| part.adapter.is_some()),
        }
    }

    /// The data of a step, and which logits are those of each part.
    fn data(&self, shape: &StepShape, parts: &[Part<'_>]) -> Result<(StepData, Vec<Range<usize>>)> {
        let (mut data, mut places, [singles, chunks, checked]) = (StepData::default(), Vec::new(), kinds(parts));
        for (parts, count, tokens, wanted) in
            [(singles, shape.singles, 1, 1), (chunks, shape.chunks, shape.tokens, 1), (checked, shape.checked, shape.width, shape.width)]
        {
            for index in 0..count {
                let (part, place) = (parts.get(index), data.wanted.len());
                places.extend(part.map(|part| place..place + 1 + part.drafts.len()));
                self.add(&mut data, shape, [tokens, wanted], part)?;
            }
        }
        Ok((data, places))
    }

    /// A text of the step, of `tokens` tokens: those of a part, filled up with such as attend nothing. Logits are computed of `wanted` of them, the last.
    fn add(&self, data: &mut StepData, shape: &StepShape, [tokens, wanted]: [usize; 2], part: Option<&Part<'_>>) -> Result<()> {
        let index = |n: usize| i32::try_from(n).map_err(|_| Error::invalid_argument("positions beyond 2^31"));
        let (given, drafts, pages): (&[u32], &[u32], &[u32]) = part.map_or((&[], &[], &[]), |part| (part.tokens, part.drafts, part.pages));
        let (first, place) = (part.map_or(0, |part| part.position), data.tokens.len());
        let adapter = part.and_then(|part| part.adapter).map_or(Ok(-1), |number| index(number as usize))?;
        data.adapters.resize(data.adapters.len() + tokens, adapter);
        for (position, &token) in (first..).zip(given.iter().chain(drafts)) {
            let Some(&page) = pages.get(position / PAGE) else { return Err(Error::internal("a token without a page")) };
            data.slots.push(index(page as usize * PAGE + position % PAGE)?);
            data.positions.push(index(position)?);
            data.tokens.push(token.cast_signed());
        }
        let count = given.len() + drafts.len();
        for ahead in 0..wanted {
            // Nobody looks at the logits of what fills up.
            let token = given.len() + ahead;
            data.wanted.push(index(if given.is_empty() || token > count { place } else { place + token - 1 })?);
            data.settings.push(part.map_or(GREEDY, |part| part.settings));
        }
        for filled in count..tokens {
            data.slots.push(index(self.spare + place + filled)?);
            data.positions.push(-1);
            data.tokens.push(0);
        }
        let texts = data.tables.len() / shape.entries + 1;
        data.tables.extend(pages.iter().map(|page| page.cast_signed()));
        data.tables.resize(texts * shape.entries, 0);
        Ok(())
    }

    /// Compiles the kernels of [`usual_shapes`], side by side.
    ///
    /// # Errors
    /// A kernel does not compile, or out of memory.
    pub(super) fn compile(&mut self, options: &EngineOptions) -> Result<()> {
        let mut recordings = Vec::new();
        for shape in usual_shapes(options) {
            let step = self.prepare(shape)?;
            recordings.push(self.steps[step].recording().clone());
        }
        recordings.iter().try_for_each(|recording| self.model.executor().compile(recording))
    }

    /// The place of the step of this shape, which is the last.
    fn prepare(&mut self, shape: StepShape) -> Result<usize> {
        let step = match self.steps.iter().position(|step| step.shape() == shape) {
            Some(index) => self.steps.remove(index),
            None => {
                if self.steps.len() == RECORDINGS {
                    self.steps.remove(0);
                }
                PagedStep::record(&self.model, self.stacks.as_ref(), &self.cache, &mut self.workspace, shape)?
            }
        };
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use elinvar::DType;

    use super::*;

    #[test]
    fn usual_steps_have_every_number_of_tokens_and_every_table() {
        let shapes = usual_shapes(&EngineOptions { running: 3, step_tokens: 7, ..EngineOptions::new(600, DType::F32) });
        let steps: Vec<_> = shapes.iter().map(|shape| (shape.entries, shape.singles, shape.chunks * shape.tokens)).collect();
        let beside = |singles, prompts: [usize; 5]| prompts.map(|tokens| (8, singles, tokens));
        let mixed = [beside(1, [2, 3, 4, 6, 6]), beside(2, [2, 3, 4, 5, 5]), beside(3, [2, 3, 4, 4, 4])].concat();
        let alone = |entries| [&[2, 3, 4, 6, 7].map(|tokens| (entries, 0, tokens))[..], &[1, 2, 3].map(|singles| (entries, singles, 0))].concat();
        assert_eq!(steps, [mixed, alone(8), alone(16), alone(32)].concat());
    }

    #[test]
    fn steps_are_filled_up_by_half_at_most() {
        let buckets: Vec<_> = (1..=17).map(super::bucket).collect();
        assert_eq!(buckets, [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16, 24]);
    }
}
