//! Steps of many texts, whose keys and values lie in the pages of one cache.
//!
//! A step is recorded for its shape and replayed. What differs from step to step is data: the tokens, their positions and slots, the tables of pages, and how
//! the next tokens are drawn.

use std::sync::Arc;

use elinvar::{Completion, DType, Reading, Recording, Result, Tensor, Workspace, kernels::sample::Settings};

use super::{
    CacheType, Model, Stacks,
    attention::{Context, Group, Kept, LayerCache, Places},
    memo::Memo,
};

/// Keys and values of all layers, in pages.
pub(crate) struct PagedCache {
    layers: Vec<LayerCache>,
    /// Of each layer.
    frequencies: Vec<Tensor>,
    page: usize,
}

impl PagedCache {
    /// So many pages of `page` tokens, for texts of at most `capacity`, and slots for `spare` tokens of no text behind them.
    ///
    /// # Errors
    /// A type of cache that the model's heads do not have, or out of memory.
    pub(crate) fn new(model: &Model, [pages, page, spare]: [usize; 3], capacity: usize, kind: CacheType) -> Result<Self> {
        let slots = (pages * page + spare).next_multiple_of(page);
        let layers = (0..model.config.layers).map(|_| model.layer_cache(slots, kind)).collect::<Result<_>>()?;
        Ok(Self { layers, frequencies: model.frequencies(capacity)?, page })
    }
}

/// How many tokens of how many texts a step has: `singles` texts of one token, `chunks` texts of `tokens` tokens, then `checked` texts of `width` tokens, of
/// which the logits of all are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StepShape {
    pub(crate) singles: usize,
    pub(crate) chunks: usize,
    pub(crate) tokens: usize,
    pub(crate) checked: usize,
    pub(crate) width: usize,
    /// Entries of a text's table.
    pub(crate) entries: usize,
    /// Whether tokens have adapters.
    pub(crate) adapted: bool,
}

impl StepShape {
    /// Tokens.
    pub(crate) fn rows(&self) -> usize {
        self.singles + self.chunks * self.tokens + self.checked * self.width
    }

    pub(crate) fn texts(&self) -> usize {
        self.singles + self.chunks + self.checked
    }

    /// Tokens whose logits are computed.
    pub(crate) fn wanted(&self) -> usize {
        self.singles + self.chunks + self.checked * self.width
    }

    /// Whether the tokens that it draws are those that the next step of its texts computes.
    pub(crate) fn goes_on(&self) -> bool {
        self.rows() == self.singles
    }
}

/// A recorded step.
pub(crate) struct PagedStep {
    shape: StepShape,
    /// Positions, slots, adapters if there are some, tokens and those whose logits are wanted unless they are in `drawn`, and tables.
    state: Tensor,
    recording: Recording,
    /// `[wanted, 2]`: the tokens drawn, and their positions; before, of a step that goes on, the tokens that it computes.
    drawn: Tensor,
    factors: Tensor,
    numbers: Tensor,
    /// What `factors` and `numbers` have.
    settings: Vec<Settings>,
    logits: Tensor,
}

/// The data of a step, in the order of its texts.
#[derive(Default)]
pub(crate) struct StepData {
    pub(crate) tokens: Vec<i32>,
    pub(crate) positions: Vec<i32>,
    pub(crate) slots: Vec<i32>,
    /// The number of each token's adapter; -1 for none.
    pub(crate) adapters: Vec<i32>,
    /// The tokens whose logits are computed.
    pub(crate) wanted: Vec<i32>,
    pub(crate) tables: Vec<i32>,
    /// How the token after each of them is drawn.
    pub(crate) settings: Vec<Settings>,
}

impl PagedStep {
    /// Records a step of `model`, whose adapters are stacked if the step has some. Logits are there until another step of the workspace runs.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn record(model: &Model, stacks: Option<&Stacks>, cache: &PagedCache, workspace: &mut Workspace, shape: StepShape) -> Result<Self> {
        let (executor, rows, count) = (model.executor(), shape.rows(), shape.wanted());
        let given = if shape.goes_on() { 0 } else { rows + count };
        let state = executor.zeros(DType::I32, &[(2 + usize::from(shape.adapted)) * rows + given + shape.texts() * shape.entries])?;
        let (drawn, factors, numbers) =
            (executor.zeros(DType::I32, &[count, 2])?, executor.zeros(DType::F32, &[count, 3])?, executor.zeros(DType::U32, &[count, 3])?);
        let (recording, logits) = executor.record_in(workspace, |recorded| {
            let (state, drawn) = (state.on(recorded)?, drawn.on(recorded)?);
            let mut start = 0;
            let mut next = |count: usize| {
                start += count;
                state.slice(0, start - count, count, 1)
            };
            let (positions, slots) = (next(rows)?, next(rows)?);
            let adapters = shape.adapted.then(|| next(rows)).transpose()?;
            let (tokens, wanted) =
                if shape.goes_on() { (drawn.slice(1, 0, 1, 1)?.reshape(&[rows])?, None) } else { (next(rows)?, Some(next(count)?)) };
            let mut groups = Vec::new();
            let mut first = 0;
            for (texts, tokens) in [(shape.singles, 1), (shape.chunks, shape.tokens), (shape.checked, shape.width)] {
                if texts > 0 {
                    let positions = positions.slice(0, first, texts * tokens, 1)?.reshape(&[texts, tokens])?;
                    groups.push(Group { table: next(texts * shape.entries)?.reshape(&[texts, shape.entries])?, positions });
                    first += texts * tokens;
                }
            }
            let places = Arc::new(Places { slots, page: cache.page, groups });
            let layers = cache.layers.iter().zip(&cache.frequencies);
            let contexts: Vec<_> = layers
                .map(|(layer, rates)| Context { kept: Kept::Pages(layer.clone(), places.clone()), memo: Memo::default(), frequencies: rates.clone() })
                .collect();
            let adapted = match (stacks, adapters) {
                (Some(stacks), Some(adapters)) => {
                    let of_logits = wanted.as_ref().map_or(Ok(adapters.clone()), |wanted| adapters.gather(wanted, 0))?;
                    Some(model.with_rows(stacks, [&adapters, &of_logits]))
                }
                _ => None,
            };
            let logits = adapted.as_ref().unwrap_or(model).logits_of(&tokens, &positions, &contexts, wanted.as_ref())?;
            drawn.sample(&logits, &factors, &numbers)?;
            Ok(logits)
        })?;
        Ok(Self { shape, state, recording, drawn, factors, numbers, settings: Vec::new(), logits })
    }

    /// Submits the step, whose tokens are those that its last run drew, if it `follows` that one.
    ///
    /// # Errors
    /// A failed device. Of the completion: logits that are no numbers, or a failed device.
    pub(crate) fn submit(&mut self, model: &Model, data: &StepData, follows: bool) -> Result<Completion> {
        let StepData { tokens, positions, slots, adapters, wanted, tables, settings } = data;
        let adapters: &[i32] = if self.shape.adapted { adapters } else { &[] };
        let given: [&[i32]; 2] = if self.shape.goes_on() { [&[], &[]] } else { [tokens, wanted] };
        self.state.write(&[positions, slots, adapters, given[0], given[1], tables].concat())?;
        if !follows {
            // A draw is that of the position after.
            let of_row = |&row: &i32| [tokens, positions].map(|of| of.get(row as usize).copied().unwrap_or(0));
            self.drawn.write(&wanted.iter().flat_map(of_row).collect::<Vec<_>>())?;
        }
        if self.settings != *settings {
            // A write that fails leaves neither known.
            self.settings.clear();
            self.factors.write(&settings.iter().flat_map(Settings::factors).collect::<Vec<_>>())?;
            self.numbers.write(&settings.iter().flat_map(Settings::numbers).collect::<Vec<_>>())?;
            self.settings.clone_from(settings);
        }
        model.executor().replay(&self.recording)
    }

    /// Waits for the last run, and gives the token after each whose logits are computed.
    ///
    /// # Errors
    /// A failed device.
    pub(crate) fn drawn(&self) -> Result<Vec<u32>> {
        Ok(self.drawn.to_vec::<i32>()?.chunks_exact(2).map(|state| state[0].cast_unsigned()).collect())
    }

    /// The same, which the next run does not change: for [`drawn_tokens`].
    ///
    /// # Errors
    /// A failed device.
    pub(crate) fn read_later(&self) -> Result<Reading> {
        self.drawn.read_later()
    }

    /// The logits `[vocab_size]` of one of the tokens of the last run whose logits are computed.
    ///
    /// # Errors
    /// A failed device.
    pub(crate) fn logits(&self, wanted: usize) -> Result<Vec<f32>> {
        self.logits.slice(0, wanted, 1, 1)?.to_vec()
    }

    /// Its commands.
    pub(crate) fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Its shape.
    pub(crate) fn shape(&self) -> StepShape {
        self.shape
    }
}

/// What [`PagedStep::read_later`] read.
pub(crate) fn drawn_tokens(bytes: &[u8]) -> Vec<u32> {
    let of_state = |&[a, b, c, d, ..]: &[u8; 8]| u32::from_ne_bytes([a, b, c, d]);
    bytes.as_chunks().0.iter().map(of_state).collect()
}

impl Model {
    /// The logits `[wanted, vocab_size]` after some of the tokens of a step of many texts, or after all of them.
    fn logits_of(&self, tokens: &Tensor, positions: &Tensor, contexts: &[Context], wanted: Option<&Tensor>) -> Result<Tensor> {
        let layers = self.layers.iter().zip(contexts);
        let stream = layers.fold(self.embed(tokens), |stream, (layer, context)| layer.forward(&stream?, positions, context))?;
        self.project(&wanted.map_or(Ok(stream.clone()), |wanted| stream.gather(wanted, 0))?)
    }
}
