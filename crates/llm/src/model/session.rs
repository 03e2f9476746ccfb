//! A text in progress: the KV cache, the position, and the recorded steps that extend it.

use std::{collections::HashMap, sync::Arc};

use elinvar::{DType, Error, Recording, Result, Tensor};

use super::Model;

/// Which tokens' logits a step computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logits {
    /// None: the step only fills the cache.
    None,
    /// The last token's.
    Last,
    /// Every token's.
    All,
}

/// A step of a fixed number of tokens, recorded: write tokens and positions, replay, read the logits.
struct Step {
    tokens: Tensor,
    positions: Tensor,
    recording: Recording,
    logits: Option<Tensor>,
}

/// One text on a model. Steps of one token and of the chunk's size are recorded at first use and replayed from then on.
pub struct Session {
    model: Arc<Model>,
    cache: Vec<(Tensor, Tensor)>,
    capacity: usize,
    length: usize,
    chunk: usize,
    steps: HashMap<(usize, Logits), Step>,
}

impl Session {
    /// Tokens of a prefill step unless told otherwise.
    pub const DEFAULT_CHUNK: usize = 256;

    /// An empty text of at most `capacity` tokens, whose keys and values are stored as `dtype` (f32, f16 or bf16).
    ///
    /// # Errors
    /// A capacity of zero or beyond the model's context, another `dtype`, or out of memory.
    pub fn new(model: Arc<Model>, capacity: usize, dtype: DType) -> Result<Self> {
        let config = model.config();
        if capacity == 0 || capacity > config.max_context {
            return Err(Error::invalid_argument(format!("a context of {capacity} tokens: the model has 1 to {}", config.max_context)));
        }
        if !dtype.is_float() {
            return Err(Error::invalid_argument(format!("a cache of {dtype}: f32, f16 or bf16 expected")));
        }
        let dims = [config.kv_heads, capacity, config.head_dim];
        let pair = |_| Ok((model.executor().zeros(dtype, &dims)?, model.executor().zeros(dtype, &dims)?));
        let cache = (0..config.layers).map(pair).collect::<Result<Vec<_>>>()?;
        Ok(Self { model, cache, capacity, length: 0, chunk: Self::DEFAULT_CHUNK, steps: HashMap::new() })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The most tokens it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens of a prefill step.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// Changes the number of tokens of a prefill step (at least one).
    pub fn set_chunk(&mut self, tokens: usize) {
        self.chunk = tokens.max(1);
        self.steps.clear();
    }

    /// Forgets what follows the first `length` tokens.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Appends tokens and gives the logits `[vocab_size]` after the last.
    ///
    /// # Errors
    /// No tokens, one outside the vocabulary, more than fit the context, or a failed device. The text is unchanged then.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.advance(tokens, Logits::Last)
    }

    /// Appends tokens without computing logits.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn fill(&mut self, tokens: &[u32]) -> Result<()> {
        self.advance(tokens, Logits::None).map(drop)
    }

    /// Appends tokens and gives the logits after each: `[tokens, vocab_size]`.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_all(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.advance(tokens, Logits::All)
    }

    fn advance(&mut self, tokens: &[u32], wanted: Logits) -> Result<Vec<f32>> {
        if tokens.is_empty() {
            return Err(Error::invalid_argument("no tokens were given: a text begins with at least one"));
        }
        self.model.check_tokens(tokens)?;
        if tokens.len() > self.capacity - self.length {
            let (have, capacity) = (self.length, self.capacity);
            return Err(Error::invalid_argument(format!(
                "{} tokens after {have} do not fit a context of {capacity}: shorten the text or raise the context",
                tokens.len()
            )));
        }
        let before = self.length;
        let result = self.run(tokens, wanted);
        if result.is_err() {
            self.length = before;
        }
        result
    }

    fn run(&mut self, tokens: &[u32], wanted: Logits) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        let mut chunks = tokens.chunks(self.chunk).peekable();
        while let Some(chunk) = chunks.next() {
            let wanted = if wanted == Logits::Last && chunks.peek().is_some() { Logits::None } else { wanted };
            self.step(chunk, wanted, &mut logits)?;
            self.length += chunk.len();
        }
        Ok(logits)
    }

    fn step(&mut self, chunk: &[u32], wanted: Logits, logits: &mut Vec<f32>) -> Result<()> {
        let key = (chunk.len(), wanted);
        let step = match self.steps.remove(&key) {
            Some(step) => step,
            None => self.record(chunk.len(), wanted)?,
        };
        let position = |i: usize| i32::try_from(self.length + i).map_err(|_| Error::invalid_argument("positions beyond 2^31"));
        step.tokens.write(&chunk.iter().map(|&t| t.cast_signed()).collect::<Vec<_>>())?;
        step.positions.write(&(0..chunk.len()).map(position).collect::<Result<Vec<_>>>()?)?;
        let done = self.model.executor().replay(&step.recording)?;
        match &step.logits {
            Some(tensor) => logits.extend(tensor.to_vec::<f32>()?),
            None => done.wait()?,
        }
        // A remainder's odd size rarely comes again: its intermediate results are not worth keeping.
        if chunk.len() == 1 || chunk.len() == self.chunk {
            self.steps.insert(key, step);
        }
        Ok(())
    }

    fn record(&self, count: usize, wanted: Logits) -> Result<Step> {
        let model = &self.model;
        let tokens = model.executor().tensor(&[count], &vec![0i32; count])?;
        let positions = model.executor().tensor(&[count], &vec![0i32; count])?;
        let (recording, logits) = model.executor().record(|| {
            let hidden = model.hidden(&tokens, &positions, &self.cache)?;
            Ok(match wanted {
                Logits::None => None,
                Logits::Last => Some(model.head.apply(&hidden.slice(0, count - 1, 1, 1)?)?),
                Logits::All => Some(model.head.apply(&hidden)?),
            })
        })?;
        Ok(Step { tokens, positions, recording, logits })
    }
}
