//! Models that are served.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use elinvar::{DeviceKind, Error, ErrorKind, Result};
use elinvar_llm::{
    ChatTemplate, Constraint, Engine, EngineOptions, EngineStatistics, GenerationConfig, Model, ModelFiles, Request, Tokenizer, end_tokens,
};
use serde_json::{Value, json};

use crate::{
    api::ApiError,
    embedder::Embedder,
    grammar::{Grammar, Grammars},
    metrics::Metrics,
    tools::Dialect,
    worker::{self, Worker},
};

/// The conversation of a model that has no template: a play, in which a blank line ends a turn.
const PLAY: &str = "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}{{ message.content }}\n\n{% else %}\
    {{ message.role | upper }}:\n{{ message.content }}\n\n{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:\n{% endif %}";
const END_OF_TURN: &str = "\n\n";

/// A model with its tokenizer and its engine.
pub struct Served {
    name: String,
    pub(crate) created: u64,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) template: ChatTemplate,
    /// Stop strings of conversations.
    pub(crate) turn_ends: Vec<String>,
    pub(crate) end_tokens: Vec<u32>,
    pub(crate) recommended: GenerationConfig,
    pub(crate) vocabulary: usize,
    pub(crate) options: EngineOptions,
    pub(crate) grammars: Grammars,
    /// The names of its adapters, by which requests ask for it with one.
    adapters: Vec<String>,
    /// How it calls tools, if its template says.
    pub(crate) dialect: Option<Dialect>,
    pub(crate) worker: Worker,
    pub(crate) metrics: Metrics,
}

impl Served {
    /// Starts an engine for a model that was loaded from `files`, with adapters of it: names, and folders as PEFT and `lora train` write them. On GPUs its
    /// kernels are compiled first. Without a chat template its conversations are written as a play: each turn after its role in capitals, up to a blank line.
    ///
    /// # Errors
    /// Those of [`Engine::new`], [`Engine::load_adapter`] and [`Engine::compile`], a damaged tokenizer or template, or no thread.
    pub fn start(
        name: impl Into<String>,
        files: &ModelFiles,
        model: Arc<Model>,
        options: EngineOptions,
        adapters: &[(String, PathBuf)],
    ) -> Result<Self> {
        let name = name.into();
        let tokenizer = Tokenizer::open(files)?;
        let recommended = GenerationConfig::read(files)?;
        let end_tokens = end_tokens(model.config(), &recommended, &tokenizer);
        let turn_ends = if tokenizer.chat_template().is_some() { Vec::new() } else { vec![END_OF_TURN.to_owned()] };
        let template = ChatTemplate::new(tokenizer.chat_template().unwrap_or(PLAY), tokenizer.bos(), tokenizer.eos())?;
        let vocabulary = model.config().vocab_size;
        let engine = engine(&name, model, options, adapters)?;
        let options = engine.options().clone();
        Ok(Self {
            name,
            created: unix_time(),
            dialect: tokenizer.chat_template().and_then(Dialect::of),
            tokenizer,
            template,
            turn_ends,
            end_tokens,
            recommended,
            vocabulary,
            options,
            grammars: Grammars::default(),
            adapters: adapters.iter().map(|(name, _)| name.clone()).collect(),
            worker: Worker::start(engine)?,
            metrics: Metrics::default(),
        })
    }

    /// What the other processes of a job do for the first one's [`Served::start`], of which they are given the same: their engines do what that one's does, until
    /// it ends.
    ///
    /// # Errors
    /// As [`Served::start`]; a process is lost, or there is one alone.
    pub fn follow(name: &str, files: &ModelFiles, model: Arc<Model>, options: EngineOptions, adapters: &[(String, PathBuf)]) -> Result<()> {
        let (tokenizer, grammars, vocabulary) = (Tokenizer::open(files)?, Grammars::default(), model.config().vocab_size);
        let world = model.executor().world().cloned().ok_or_else(|| Error::invalid_argument("one process alone has no other to follow"))?;
        let limit = |grammar: &Grammar, request: &Request| grammars.mask(grammar, &tokenizer, vocabulary, &request.end_tokens).map(Constraint::new);
        let _signals = ignore_signals()?;
        worker::follow(engine(name, model, options, adapters)?, &world, limit)
    }

    /// What it answers to, besides `default` if it is the first.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What clients are shown of it and its adapters.
    fn objects(&self) -> Vec<Value> {
        let adapter = |name: &String| json!({"id": name, "object": "model", "created": self.created, "owned_by": "elinvar", "parent": self.name});
        std::iter::once(self.object()).chain(self.adapters.iter().map(adapter)).collect()
    }

    pub(crate) fn object(&self) -> Value {
        let meta = json!({"n_vocab": self.vocabulary, "n_ctx": self.context(), "has_chat_template": self.turn_ends.is_empty()});
        json!({"id": self.name, "object": "model", "created": self.created, "owned_by": "elinvar", "meta": meta})
    }

    /// Its name, and those of its adapters.
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name()).chain(self.adapters.iter().map(String::as_str))
    }

    /// What its engine has and does.
    pub fn statistics(&self) -> EngineStatistics {
        self.worker.statistics()
    }

    /// The most tokens of prompt and answer together.
    pub fn context(&self) -> usize {
        self.options.context.min(self.options.cache_tokens)
    }
}

/// Has this process outlast what asks all of a job to end: the first finishes its answers, for which it needs the others, and then ends them.
fn ignore_signals() -> Result<impl Sized> {
    let reject = |e| Error::with_source(ErrorKind::Io, "signals cannot be received", e);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(reject)?;
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let _context = runtime.enter();
        let caught = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        caught.into_iter().collect::<std::io::Result<Vec<_>>>().map_err(reject)?;
    }
    Ok(runtime)
}

/// An engine with these adapters, whose kernels are compiled on GPUs.
fn engine(name: &str, model: Arc<Model>, options: EngineOptions, adapters: &[(String, PathBuf)]) -> Result<Engine> {
    let mut engine = Engine::new(model, options)?;
    for (name, folder) in adapters {
        engine.load_adapter(name, folder)?;
    }
    match engine.model().executor().properties().kind {
        DeviceKind::Cuda | DeviceKind::Metal => {
            let start = Instant::now();
            tracing::info!(model = name, "compiling kernels, which are kept for the next start");
            engine.compile()?;
            tracing::info!(model = name, milliseconds = start.elapsed().as_millis() as u64, "kernels are compiled");
        }
        // Compiled ahead, or as they are used: a test uses few.
        DeviceKind::Cpu | DeviceKind::MetalSim | DeviceKind::Null => {}
    }
    Ok(engine)
}

/// Seconds since 1970.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The models that requests may name.
#[derive(Clone)]
pub struct Models(Arc<All>);

struct All {
    served: Vec<Arc<Served>>,
    embedders: Vec<Arc<Embedder>>,
}

impl Models {
    /// Those that continue texts, and those that give vectors of them. The first of either answers to `default`, too, and where a request names none.
    ///
    /// # Errors
    /// None is given, or two have one name.
    pub fn new(served: Vec<Served>, embedders: Vec<Embedder>) -> Result<Self> {
        let names = served.iter().flat_map(Served::names).chain(embedders.iter().map(Embedder::name)).collect::<Vec<_>>();
        if names.is_empty() {
            return Err(Error::invalid_argument("no model to serve: give at least one"));
        }
        if let Some((_, name)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
            return Err(Error::invalid_argument(format!("two models are named '{name}': give one another name, as in --model NAME=PATH")));
        }
        let (served, embedders) = (served.into_iter().map(Arc::new).collect(), embedders.into_iter().map(Arc::new).collect());
        Ok(Self(Arc::new(All { served, embedders })))
    }

    /// Those that continue texts.
    pub fn served(&self) -> &[Arc<Served>] {
        &self.0.served
    }

    /// Those that give vectors.
    pub fn embedders(&self) -> &[Arc<Embedder>] {
        &self.0.embedders
    }

    /// Whether the processes that compute with this one are there.
    ///
    /// # Errors
    /// One is lost.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.served.iter().try_for_each(|model| model.worker.check())
    }

    /// The names of all, and of adapters.
    pub fn names(&self) -> Vec<&str> {
        self.0.served.iter().flat_map(|model| model.names()).chain(self.0.embedders.iter().map(|model| model.name())).collect()
    }

    /// What clients are shown of them.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.0.served.iter().flat_map(|model| model.objects()).chain(self.0.embedders.iter().map(|model| model.object())).collect()
    }

    /// The model that continues texts of a name, and the adapter if that is one's.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<(&Arc<Served>, Option<String>), ApiError> {
        let adapter = name.and_then(|name| {
            let model = self.0.served.iter().find(|model| model.adapters.iter().any(|adapter| adapter == name))?;
            Some((model, Some(name.to_owned())))
        });
        adapter.map_or_else(|| Ok((find(&self.0.served, name, Served::name, "continue texts")?, None)), Ok)
    }

    /// The model that gives vectors of a name.
    pub(crate) fn find_embedder(&self, name: Option<&str>) -> Result<&Arc<Embedder>, ApiError> {
        find(&self.0.embedders, name, Embedder::name, "give vectors")
    }
}

fn find<'a, T>(all: &'a [Arc<T>], name: Option<&str>, name_of: fn(&T) -> &str, purpose: &str) -> Result<&'a Arc<T>, ApiError> {
    let found = match name {
        None | Some("default") => all.first(),
        Some(name) => all.iter().find(|model| name_of(model) == name),
    };
    found.ok_or_else(|| {
        let (name, names) = (name.unwrap_or("default").escape_debug(), all.iter().map(|model| name_of(model)).collect::<Vec<_>>().join(", "));
        let names = if names.is_empty() { "none" } else { &names };
        ApiError::model_not_found(format!("there is no model '{name}': those that {purpose} are {names}"))
    })
}
