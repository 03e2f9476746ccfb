//! A text in progress: the KV cache, the position, and the recorded steps that extend it.

use std::{
    collections::{HashMap, VecDeque},
    ops::ControlFlow,
    sync::Arc,
};

use elinvar::{Completion, DType, DeviceKind, Error, Executor, Reading, Recording, Result, Tensor, kernels::sample::Settings};

use super::{Logits, Model, attention::Context, cache::CacheType};
use crate::sampling::Sampling;

/// A step of a fixed number of tokens, recorded: write the state, which is the tokens and their positions, replay, read the logits.
struct Step {
    state: Tensor,
    recording: Recording,
    logits: Option<Tensor>,
}

/// One text on a model. Steps are recorded at first use and replayed from then on: those of one token and of the chunk's size, and the last of
/// another size.
///
/// A step is one command list: tokens and positions lie in a small buffer of the device, and nothing else differs from step to step. Where the device
/// chooses the tokens ([`Session::greedy`], [`Session::sampled`]) it also writes the next token and position there, so that nothing comes from the host.
pub struct Session {
    model: Arc<Model>,
    cache: Vec<Context>,
    capacity: usize,
    length: usize,
    chunk: usize,
    steps: HashMap<(usize, Logits), Step>,
    greedy: Option<Step>,
    sampled: Option<SampledStep>,
}

/// A step that draws its token, as settings of the device say.
struct SampledStep {
    step: Step,
    factors: Tensor,
    numbers: Tensor,
}

impl Session {
    /// Tokens of a prefill step on a GPU by default.
    pub const GPU_CHUNK: usize = 1024;

    /// Tokens of a prefill step on several NVIDIA GPUs by default: while they exchange the results of some, they compute others.
    pub const GROUP_CHUNK: usize = 4096;

    /// Tokens of a prefill step by default: enough to keep the device busy.
    pub fn default_chunk(executor: &Executor) -> usize {
        let device = executor.properties();
        if device.kind == DeviceKind::Cuda && executor.ranks() > 1 {
            Self::GROUP_CHUNK
        } else if device.has_simdgroups() {
            Self::GPU_CHUNK
        } else {
            256
        }
    }

    /// An empty text of at most `capacity` tokens, whose keys and values are stored as `cache` says.
    /// A model with two sets of rotary divisors takes the one for `capacity` tokens ([`Divisors`](crate::Divisors)).
    ///
    /// # Errors
    /// A capacity of zero or beyond the model's context, a type of cache that the model's heads do not have, or out of memory.
    pub fn new(model: Arc<Model>, capacity: usize, cache: impl Into<CacheType>) -> Result<Self> {
        let config = model.config();
        if capacity == 0 || capacity > config.max_context {
            return Err(Error::invalid_argument(format!("a context of {capacity} tokens: the model has 1 to {}", config.max_context)));
        }
        let cache = model.cache(capacity, cache.into())?;
        let chunk = Self::default_chunk(model.executor());
        Ok(Self { model, cache, capacity, length: 0, chunk, steps: HashMap::new(), greedy: None, sampled: None })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Goes on with another model of the same shape: the same weights with another adapter, or without one. The text is forgotten, because its keys and
    /// values are the other's.
    ///
    /// # Errors
    /// A model of another configuration or device.
    pub fn set_model(&mut self, model: Arc<Model>) -> Result<()> {
        if model.config() != self.model.config() || !model.executor().device().same(self.model.executor().device()) {
            return Err(Error::invalid_argument("a session goes on with a model of its configuration and device: make another session"));
        }
        (self.model, self.length) = (model, 0);
        (self.greedy, self.sampled) = (None, None);
        self.steps.clear();
        Ok(())
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
        self.advance(tokens, Logits::Last, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Session::feed`], reporting to `progress` after each step how many of the tokens are appended: where that breaks, the text ends, and there are no logits.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_with(&mut self, tokens: &[u32], progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<Option<Vec<f32>>> {
        let mut flow = ControlFlow::Continue(());
        let logits = self.advance(tokens, Logits::Last, &mut |appended| {
            flow = progress(appended);
            flow
        })?;
        Ok(flow.is_continue().then_some(logits))
    }

    /// Appends tokens and gives the logits after each: `[tokens, vocab_size]`.
    ///
    /// # Errors
    /// As [`Session::feed`].
    pub fn feed_all(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.advance(tokens, Logits::All, &mut |_| ControlFlow::Continue(()))
    }

    fn advance(&mut self, tokens: &[u32], wanted: Logits, progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<Vec<f32>> {
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
        let result = self.run(tokens, wanted, progress);
        if result.is_err() {
            self.length = before;
        }
        result
    }

    /// Step by step, until `progress` breaks.
    fn run(&mut self, tokens: &[u32], wanted: Logits, progress: &mut dyn FnMut(usize) -> ControlFlow<()>) -> Result<Vec<f32>> {
        let (before, mut logits) = (self.length, Vec::new());
        let mut chunks = tokens.chunks(self.chunk).peekable();
        while let Some(chunk) = chunks.next() {
            let wanted = if wanted == Logits::Last && chunks.peek().is_some() { Logits::None } else { wanted };
            self.step(chunk, wanted, &mut logits)?;
            self.length += chunk.len();
            if progress(self.length - before).is_break() {
                break;
            }
        }
        Ok(logits)
    }

    fn step(&mut self, chunk: &[u32], wanted: Logits, logits: &mut Vec<f32>) -> Result<()> {
        let key = (chunk.len(), wanted);
        let step = match self.steps.remove(&key) {
            Some(step) => step,
            None => {
                // Of the odd sizes of remainders, which keep their intermediate results too, only the last stays.
                self.steps.retain(|(count, _), _| *count == 1 || *count == self.chunk);
                self.record(chunk.len(), wanted)?
            }
        };
        step.state.write(&self.state(chunk)?)?;
        let done = self.model.executor().replay(&step.recording)?;
        match &step.logits {
            Some(tensor) => logits.extend(tensor.to_vec::<f32>()?),
            None => done.wait()?,
        }
        self.steps.insert(key, step);
        Ok(())
    }

    /// These tokens, and the positions that come next.
    fn state(&self, tokens: &[u32]) -> Result<Vec<i32>> {
        let position = |i: usize| i32::try_from(self.length + i).map_err(|_| Error::invalid_argument("positions beyond 2^31"));
        tokens.iter().map(|&token| Ok(token.cast_signed())).chain((0..tokens.len()).map(position)).collect()
    }

    fn record(&self, count: usize, wanted: Logits) -> Result<Step> {
        self.record_with(count, wanted, |_, _| Ok(()))
    }

    /// A step whose state and logits `end` has the last word on.
    fn record_with(&self, count: usize, wanted: Logits, end: impl FnOnce(&Tensor, Option<&Tensor>) -> Result<()>) -> Result<Step> {
        let model = &self.model;
        let state = model.executor().zeros(DType::I32, &[2 * count])?;
        let (tokens, positions) = (state.slice(0, 0, count, 1)?, state.slice(0, count, count, 1)?);
        let (recording, logits) = model.executor().record(|recorded| {
            let logits = model.logits(&tokens.on(recorded)?, &positions.on(recorded)?, &self.cache, wanted)?;
            end(&state, logits.as_ref())?;
            Ok(logits)
        })?;
        Ok(Step { state, recording, logits })
    }

    /// Appends `token` and gives the most likely token after it, appends that, and so on, for as long as it is asked for: at most `most` tokens, and as
    /// many as fit the context. The last token given is not appended yet.
    ///
    /// The device chooses each token and feeds it to its next step, of the same bits as [`Session::feed`] and the first of the greatest logits. Where
    /// it works beside the host, the next step is under way before a token is looked at.
    ///
    /// # Errors
    /// A token outside the vocabulary, or a failed device.
    pub fn greedy(&mut self, token: u32, most: usize) -> Result<Decoding<'_>> {
        self.decode(token, most, None)
    }

    /// As [`Session::greedy`], with tokens drawn as [`Sampler`](crate::Sampler) draws them from the logits of [`Session::feed`].
    ///
    /// # Errors
    /// As [`Session::greedy`]; settings outside their range, or a repetition penalty, for which the device does not look at the text.
    pub fn sampled(&mut self, token: u32, most: usize, sampling: &Sampling) -> Result<Decoding<'_>> {
        let settings = sampling.settings()?;
        if sampling.repetition_penalty != 1.0 {
            return Err(Error::unsupported("a repetition penalty on the device: draw from the logits of `feed` with a `Sampler`"));
        }
        self.decode(token, most, Some(settings))
    }

    fn decode(&mut self, token: u32, most: usize, settings: Option<Settings>) -> Result<Decoding<'_>> {
        self.model.check_tokens(&[token])?;
        let left = most.min(self.capacity - self.length);
        Ok(Decoding { session: self, first: Some(token), settings, coming: VecDeque::new(), left })
    }

    /// Makes the recorded step that chooses as `settings` say (without any: the most likely) ready for `token`.
    fn prepare(&mut self, token: u32, settings: Option<&Settings>) -> Result<()> {
        let state = self.state(&[token])?;
        let step = match settings {
            None => {
                if self.greedy.is_none() {
                    let end = |state: &Tensor, logits: Option<&Tensor>| logits.map_or(Ok(()), |logits| state.sample_argmax(logits));
                    self.greedy = Some(self.record_with(1, Logits::Last, end)?);
                }
                self.greedy.as_ref()
            }
            Some(settings) => {
                if self.sampled.is_none() {
                    self.sampled = Some(self.record_sampled()?);
                }
                if let Some(sampled) = &self.sampled {
                    sampled.factors.write(&settings.factors())?;
                    sampled.numbers.write(&settings.numbers())?;
                }
                self.sampled.as_ref().map(|sampled| &sampled.step)
            }
        };
        step.map_or(Ok(()), |step| step.state.write(&state))
    }

    fn record_sampled(&self) -> Result<SampledStep> {
        let executor = self.model.executor();
        let (factors, numbers) = (executor.zeros(DType::F32, &[3])?, executor.zeros(DType::U32, &[3])?);
        let end = |state: &Tensor, logits: Option<&Tensor>| logits.map_or(Ok(()), |logits| state.sample(logits, &factors, &numbers));
        let step = self.record_with(1, Logits::Last, end)?;
        Ok(SampledStep { step, factors, numbers })
    }
}

/// Decoding under way on the device: see [`Session::greedy`] and [`Session::sampled`]. When it is dropped, the text has the tokens it was given and gave, but
/// for the last.
pub struct Decoding<'a> {
    session: &'a mut Session,
    /// What begins, until it is given to the device.
    first: Option<u32>,
    /// How tokens are drawn; the most likely without.
    settings: Option<Settings>,
    /// Steps that were submitted, and their tokens.
    coming: VecDeque<(Completion, Reading)>,
    /// Steps that may still be submitted.
    left: usize,
}

impl Decoding<'_> {
    /// Submits a step, if one is left.
    fn submit(&mut self) -> Result<()> {
        if let Some(token) = self.first.take_if(|_| self.left > 0) {
            self.session.prepare(token, self.settings.as_ref())?;
        }
        let sampled = self.session.sampled.as_ref().filter(|_| self.settings.is_some()).map(|sampled| &sampled.step);
        let step = sampled.or(self.session.greedy.as_ref());
        if let (Some(step), 1..) = (step, self.left) {
            let done = self.session.model.executor().replay(&step.recording)?;
            self.coming.push_back((done, step.state.slice(0, 0, 1, 1)?.read_later()?));
            self.left -= 1;
        }
        Ok(())
    }

    fn token(&mut self) -> Result<Option<u32>> {
        if self.coming.is_empty() {
            self.submit()?;
        }
        let Some((done, reading)) = self.coming.pop_front() else { return Ok(None) };
        if !reading.is_complete() && self.coming.is_empty() {
            self.submit()?;
        }
        done.wait()?;
        let bytes = reading.wait()?;
        let token = <[u8; 4]>::try_from(bytes.as_slice()).map_err(|_| Error::invalid_data("a token is not four bytes"))?;
        self.session.length += 1;
        Ok(Some(u32::from_ne_bytes(token)))
    }
}

impl Iterator for Decoding<'_> {
    type Item = Result<u32>;

    fn next(&mut self) -> Option<Result<u32>> {
        let token = self.token();
        if token.is_err() {
            // What is under way follows a step that failed.
            (self.left, self.coming) = (0, VecDeque::new());
        }
        token.transpose()
    }
}

#[cfg(test)]
mod tests {
    use elinvar::{BackendType, Executor, kernels::quantized::Format};

    use super::*;
    use crate::{WeightType, adapter::tests::waves, config::Config};

    const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5}"#;

    #[test]
    fn other_architectures_are_fused_where_a_llama_is() {
        let executor = Executor::new_with_backend(BackendType::Null).unwrap();
        let launches = |architecture: &str, more: &str| {
            let config = CONFIG.replace("LlamaForCausalLM", architecture).replace("1e-5", &format!("1e-5, {more}"));
            let model = Model::random(&executor, Config::parse(&config).unwrap(), WeightType::Plain(DType::BF16), 1).unwrap();
            Session::new(Arc::new(model), 512, DType::F16).unwrap().record(1, Logits::Last).unwrap().recording.len()
        };
        // Rows of a projection stored as one are read where they lie.
        assert_eq!(launches("Phi3ForCausalLM", r#""sliding_window": 100"#), 2 + 3 * 6 + 1);
        // Norms of query and key heads.
        assert_eq!(launches("Qwen3ForCausalLM", r#""head_dim": 8"#), 2 + 3 * 8 + 1);
        // The gate's function; and, twice, the norm of what is added, and the sum. Then the soft cap.
        assert_eq!(launches("Gemma2ForCausalLM", r#""head_dim": 8"#), 2 + 3 * (6 + 1 + 2 * 2) + 2);
        assert_eq!(launches("Gemma3ForCausalLM", r#""head_dim": 8"#), 2 + 3 * (8 + 1 + 2 * 2) + 1);
    }

    #[test]
    fn an_adapter_of_a_quantised_model_leaves_its_layers_fused() {
        let executor = Executor::new_with_backend(BackendType::Null).unwrap();
        let config = CONFIG.replace("48", "64").replace("80", "96").replace("\"num_attention_heads\": 6", "\"num_attention_heads\": 2");
        let base = Model::random(&executor, Config::parse(&config).unwrap(), WeightType::Block(Format::Q4_0), 1).unwrap();
        let of_cache =
            |model: Model, cache: CacheType| Session::new(Arc::new(model), 512, cache).unwrap().record(1, Logits::Last).unwrap().recording.len();
        let launches = |model: Model| of_cache(model, DType::F16.into());
        let adapted = |targets: &str| {
            let config = format!(r#"{{"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": {targets}}}"#);
            base.with_adapter(&waves(&base, &config, [0.0, 0.1])).unwrap()
        };
        assert_eq!([launches(base.clone()), of_cache(base.clone(), CacheType::Q8_0)], [2 + 3 * 6 + 1; 2]);
        // The first halves of both adapters, and each second half with the sum.
        assert_eq!(launches(adapted(r#"["q_proj", "v_proj"]"#)), 2 + 3 * (6 + 1 + 2) + 1);
        // Queries, keys and values 5, attention 2, its output 3, gate and up 4, their product, and down 3.
        let all = r#"["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]"#;
        assert_eq!(launches(adapted(all)), 2 + 3 * (5 + 2 + 3 + 4 + 1 + 3) + 1);
    }

    #[test]
    fn a_step_of_one_token_is_a_few_launches_a_layer_on_a_gpu() {
        let executor = Executor::new_with_backend(BackendType::Null).unwrap();
        let model = Arc::new(Model::random(&executor, Config::parse(CONFIG).unwrap(), WeightType::Plain(DType::BF16), 1).unwrap());
        let launches = |capacity: usize, count: usize, wanted: Logits| {
            Session::new(model.clone(), capacity, DType::F16).unwrap().record(count, wanted).unwrap().recording.len()
        };
        // Embedding and its widening; projections, attention over blocks of the caches with the token appended, its merging, output, gate, down; the head.
        assert_eq!(launches(512, 1, Logits::Last), 2 + 3 * 6 + 1);
        assert_eq!(launches(512, 1, Logits::None), 2 + 3 * 6);
        assert_eq!(launches(1024, 1, Logits::Last), 2 + 3 * 6 + 1);
        // One block of the caches leaves nothing to be merged.
        assert_eq!(launches(256, 1, Logits::Last), 2 + 3 * 5 + 1);
        // Rows of several tokens are normalised by launches of their own.
        assert_eq!(launches(256, 4, Logits::All), 2 + 3 * 8 + 2);
        let mut session = Session::new(model.clone(), 512, DType::F16).unwrap();
        session.prepare(1, None).unwrap();
        session.prepare(1, Some(&Sampling { temperature: 1.0, ..Sampling::default() }.settings().unwrap())).unwrap();
        assert_eq!(session.greedy.unwrap().recording.len(), 2 + 3 * 6 + 2);
        assert_eq!(session.sampled.unwrap().step.recording.len(), 2 + 3 * 6 + 2);
    }
}
