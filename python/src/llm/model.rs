//! Models that generate.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use elinvar::{DType, Executor, Result};
use elinvar_llm::{
    Adapter, Adapters, CacheType, Config, Generated, GenerationConfig, GenerationOptions, Generator, Listener, MemoryEstimate, Model, ModelFiles,
    Sampling, Session, Tokenizer, Weights, end_tokens, fuse,
};
use pyo3::{Bound, PyAny, PyResult, Python, pyclass, pymethods, types::PyByteArray};

use super::{device::Place, stream::NativeStream, tokenizer::NativeTokenizer};
use crate::{
    errors::raise,
    fork,
    work::{lock, wait_for},
};

/// What the threads of a model share.
pub(super) struct Shared {
    files: ModelFiles,
    weights: Weights,
    pub(super) tokenizer: Tokenizer,
    recommended: GenerationConfig,
    ends: Vec<u32>,
    context: usize,
    cache: CacheType,
    chunk: usize,
    adapters: Mutex<Named>,
    /// A generator that is not at work, and the model that it has: what a prompt shares with the text before it is not computed again.
    idle: Mutex<Option<(Arc<Model>, Generator)>>,
}

/// Adapters by name, and the one in use.
struct Named {
    all: Adapters,
    current: Option<String>,
}

impl Named {
    fn model(&self) -> Result<Arc<Model>> {
        match &self.current {
            Some(name) => self.all.get(name).cloned(),
            None => Ok(self.all.base().clone()),
        }
    }
}

impl Shared {
    pub(super) fn base(&self) -> Arc<Model> {
        lock(&self.adapters).all.base().clone()
    }

    /// The model without an adapter and whole on each device, as training takes it.
    pub(super) fn whole(&self) -> Result<Arc<Model>> {
        let base = self.base();
        match base.executor().ranks() {
            1 => Ok(base),
            _ => Ok(Arc::new(Model::new(&base.executor().replicated(), base.config().clone(), &self.weights)?)),
        }
    }

    fn session(&self, model: Arc<Model>) -> Result<Session> {
        let mut session = Session::new(model, self.context, self.cache)?;
        session.set_chunk(self.chunk);
        Ok(session)
    }

    /// Continues a prompt with the idle generator, or one of its own.
    pub(super) fn generate(&self, prompt: &[u32], options: &GenerationOptions, listener: &mut Listener<'_>) -> Result<Generated> {
        let model = lock(&self.adapters).model()?;
        let idle = lock(&self.idle).take_if(|(of, _)| Arc::ptr_eq(of, &model));
        let mut generator = match idle {
            Some((_, generator)) => generator,
            None => Generator::new(self.session(model.clone())?, self.tokenizer.clone(), self.ends.clone())?,
        };
        let generated = generator.generate(prompt, options, listener)?;
        *lock(&self.idle) = Some((model, generator));
        Ok(generated)
    }
}

/// A model.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct NativeModel {
    shared: Arc<Shared>,
    executor: Executor,
    config: Config,
    /// The process that its threads belong to.
    generation: u32,
}

impl NativeModel {
    /// What its threads share, if they are of this process.
    pub(super) fn checked(&self) -> PyResult<Arc<Shared>> {
        fork::check(self.generation)?;
        Ok(self.shared.clone())
    }
}

/// Tokens of a context unless it is given.
const CONTEXT: usize = 4096;

#[pymethods]
impl NativeModel {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        device: &Bound<'_, PyAny>,
        precision: Option<&str>,
        threads: Option<usize>,
        context: Option<usize>,
        cache_dtype: &str,
        chunk: Option<usize>,
        decode_to: Option<&str>,
    ) -> PyResult<Self> {
        let place = Place::read(device, precision, threads)?;
        let cache: CacheType = cache_dtype.parse().map_err(raise)?;
        let decode_to: Option<DType> = decode_to.map(str::parse).transpose().map_err(raise)?;
        let (files, config, weights) = wait_for(py, move || {
            let files = ModelFiles::open(path)?;
            let config = Config::read(&files)?;
            let weights = decode_to.map_or_else(|| Weights::open(&files), |dtype| Weights::open_decoded(&files, dtype))?;
            Ok((files, config, weights))
        })?;
        let context = context.unwrap_or_else(|| config.max_context.min(CONTEXT));
        // For a GPU, whose steps are the larger ones.
        let estimate = MemoryEstimate::of(&config, &weights, context, cache, chunk.unwrap_or(Session::GPU_CHUNK));
        let executor = place.open(py, estimate.total())?;
        let on = executor.clone();
        let shared = wait_for(py, move || {
            let executor = on;
            let tokenizer = Tokenizer::open(&files)?;
            let recommended = GenerationConfig::read(&files)?;
            let chunk = chunk.unwrap_or_else(|| Session::default_chunk(&executor));
            MemoryEstimate::of(&config, &weights, context, cache, chunk).of_rank(&config, executor.ranks()).check(executor.memory())?;
            let ends = end_tokens(&config, &recommended, &tokenizer);
            let model = Arc::new(Model::new(&executor, config, &weights)?);
            let adapters = Mutex::new(Named { all: Adapters::new(model), current: None });
            let shared = Shared { files, weights, tokenizer, recommended, ends, context, cache, chunk, adapters, idle: Mutex::default() };
            // A context or a cache that the model does not have is rejected before anything is generated.
            shared.session(shared.base())?;
            Ok(shared)
        })?;
        let config = shared.base().config().clone();
        Ok(Self { shared: Arc::new(shared), executor, config, generation: fork::generation() })
    }

    #[getter]
    fn tokenizer(&self) -> NativeTokenizer {
        NativeTokenizer(self.shared.tokenizer.clone())
    }

    #[getter]
    fn device(&self) -> String {
        self.executor.properties().name.clone()
    }

    #[getter]
    fn precision(&self) -> String {
        self.executor.precision().to_string()
    }

    #[getter]
    fn context(&self) -> usize {
        self.shared.context
    }

    /// Architecture, tokens of the vocabulary, width, layers and the longest context.
    #[getter]
    fn config(&self) -> (&'static str, [usize; 4]) {
        let Config { architecture, vocab_size, hidden_size, layers, max_context, .. } = self.config;
        (architecture.name(), [vocab_size, hidden_size, layers, max_context])
    }

    /// Begins to continue a prompt; what is not given is as the model recommends.
    #[expect(clippy::too_many_arguments, reason = "they are named in Python")]
    fn stream(
        &self,
        prompt: Vec<u32>,
        max_tokens: usize,
        stop: Vec<String>,
        greedy: bool,
        temperature: Option<f32>,
        top_k: Option<usize>,
        top_p: Option<f32>,
        min_p: Option<f32>,
        repetition_penalty: Option<f32>,
        seed: u64,
    ) -> PyResult<NativeStream> {
        let base = if greedy { Sampling { seed, ..Sampling::greedy() } } else { Sampling::recommended(&self.shared.recommended, seed) };
        let sampling = Sampling {
            temperature: temperature.unwrap_or(base.temperature),
            top_k: top_k.unwrap_or(base.top_k),
            top_p: top_p.unwrap_or(base.top_p),
            min_p: min_p.unwrap_or(base.min_p),
            repetition_penalty: repetition_penalty.unwrap_or(base.repetition_penalty),
            seed,
        };
        NativeStream::new(self.checked()?, prompt, GenerationOptions { max_tokens, stop, sampling })
    }

    /// The logits after each token, f32 `[tokens, vocab_size]`.
    fn logits<'py>(&self, py: Python<'py>, tokens: Vec<u32>) -> PyResult<Bound<'py, PyByteArray>> {
        let shared = self.checked()?;
        let logits = wait_for(py, move || {
            let model = lock(&shared.adapters).model()?;
            let context = tokens.len().clamp(1, model.config().max_context);
            let mut session = Session::new(model, context, shared.cache)?;
            session.set_chunk(shared.chunk);
            session.feed_all(&tokens)
        })?;
        Ok(PyByteArray::new(py, bytemuck::cast_slice(&logits)))
    }

    /// Loads an adapter under a name.
    fn load_adapter(&self, py: Python<'_>, name: String, folder: PathBuf) -> PyResult<()> {
        let shared = self.checked()?;
        wait_for(py, move || lock(&shared.adapters).all.load(&name, folder).map(drop))
    }

    /// Drops an adapter; the model goes on without one if it was in use.
    fn unload_adapter(&self, name: &str) -> PyResult<()> {
        let mut adapters = lock(&self.shared.adapters);
        adapters.all.unload(name).map_err(raise)?;
        if adapters.current.as_deref() == Some(name) {
            adapters.current = None;
        }
        // It may hold the adapter.
        drop(lock(&self.shared.idle).take());
        Ok(())
    }

    /// Goes on with an adapter, or without one.
    fn set_adapter(&self, name: Option<String>) -> PyResult<()> {
        let mut adapters = lock(&self.shared.adapters);
        if let Some(name) = &name {
            adapters.all.get(name).map_err(raise)?;
        }
        adapters.current = name;
        Ok(())
    }

    #[getter]
    fn adapter(&self) -> Option<String> {
        lock(&self.shared.adapters).current.clone()
    }

    #[getter]
    fn adapters(&self) -> Vec<String> {
        lock(&self.shared.adapters).all.names().map(str::to_owned).collect()
    }

    /// Writes the model with an adapter in its weights to a new folder.
    fn save_merged(&self, py: Python<'_>, adapter: PathBuf, output: PathBuf) -> PyResult<()> {
        let shared = self.checked()?;
        wait_for(py, move || {
            let (adapter, model) = (Adapter::open(adapter)?, shared.whole()?);
            fuse(&shared.files, &shared.weights, &model, &adapter, &output, &mut |_, _| {})
        })
    }
}
