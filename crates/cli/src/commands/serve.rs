use std::{
    net::IpAddr,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use elinvar::{DType, Error, Executor, Precision, Result, format_bytes};
use elinvar_llm::{CacheType, Config, Encoder, EngineOptions, MemoryEstimate, ModelFiles, Weights};
use elinvar_server::{Embedder, Models, Served, Server, ServerOptions};

use crate::{args::DeviceArgs, embedded, model::BaseArgs, output::print_line};

/// Arguments of `elinvar serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve this model, or encoder for embeddings: a GGUF file, or a folder with config.json, model.safetensors and tokenizer.json; NAME=PATH gives it a
    /// name other than the file's; repeat for more [default: the embedded model]
    #[arg(long, value_name = "[NAME=]PATH")]
    model: Vec<String>,
    /// Listen on this address
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Listen on this port; 0 for any that is free
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Demand this key of requests, as `Authorization: Bearer KEY`; repeat for more
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// Limit prompt and answer together to this many tokens [default: 4096, at most the model's context]
    #[arg(long, value_name = "TOKENS")]
    context: Option<usize>,
    /// Keep this many tokens in the KV cache, of all requests together [default: eight contexts]
    #[arg(long, value_name = "TOKENS")]
    cache_tokens: Option<usize>,
    /// Store the KV cache in this type: f32, f16, bf16 or q8_0, which has blocks of 32 bytes and a scale
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    cache_dtype: CacheType,
    /// Compute at most this many requests at a time
    #[arg(long, default_value_t = 64, value_name = "REQUESTS")]
    running: usize,
    /// Let at most this many requests wait; others are asked to come again
    #[arg(long, default_value_t = 1024, value_name = "REQUESTS")]
    waiting: usize,
    /// Compute at most this many tokens per step
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    step_tokens: usize,
    /// Give up a request after this many seconds
    #[arg(long, default_value = "600", value_name = "SECONDS")]
    timeout: NonZeroU64,
    /// Accept at most this many bytes of a request
    #[arg(long, default_value_t = 8 << 20, value_name = "BYTES")]
    max_body: usize,
    /// Keep at most this many connections open
    #[arg(long, default_value = "1024", value_name = "CONNECTIONS")]
    connections: NonZeroUsize,
    /// Decode quantised weights to this type, f32, f16 or bf16, instead of computing with their blocks
    #[arg(long, value_name = "TYPE")]
    decode_to: Option<DType>,
    /// Compute matmul and attention in this precision: strict (an answer does not depend on what else is asked) or fast
    #[arg(long, default_value = "strict")]
    precision: Precision,
    /// Use this many threads on the CPU device [default: one per core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Print what memory the models and their caches take, and serve nothing
    #[arg(long)]
    plan: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Context unless it is given.
const CONTEXT: usize = 4096;

/// A model as it is asked for, with what it takes.
struct Planned {
    name: String,
    files: ModelFiles,
    config: Config,
    weights: Weights,
    options: EngineOptions,
    estimate: MemoryEstimate,
}

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let (planned, encoders) = args.planned()?;
    let needed = planned.iter().map(|model| model.estimate.total()).fold(0, u64::saturating_add);
    let executor = args.device.executor_for(args.threads, needed)?.with_precision(args.precision);
    if args.plan {
        planned.iter().for_each(Planned::print);
        print_line(format!("{} of {} free", format_bytes(executor.memory().available as u64), format_bytes(executor.memory().total as u64)));
        return Ok(());
    }
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let served = planned.into_iter().map(|model| model.start(&executor)).collect::<Result<_>>()?;
    let open = |(name, files)| Ok(Embedder::new(name, Encoder::open(&executor, &files)?));
    let models = Models::new(served, encoders.into_iter().map(open).collect::<Result<_>>()?)?;
    let options = ServerOptions {
        host: args.host,
        port: args.port,
        keys: args.api_key.clone(),
        body_bytes: args.max_body,
        request_time: Duration::from_secs(args.timeout.get()),
        connections: args.connections.get(),
        ..ServerOptions::default()
    };
    let names = models.names().join(", ");
    let server = Server::bind(models, options)?;
    eprintln!("serving {names} on http://{}", server.address());
    server.run()
}

impl ServeArgs {
    /// The models to serve, and the encoders, with their names.
    fn planned(&self) -> Result<(Vec<Planned>, Vec<(String, ModelFiles)>)> {
        let (mut models, mut encoders) = (Vec::new(), Vec::new());
        for given in &self.model {
            let (name, path) = named(given)?;
            let files = ModelFiles::open(path)?;
            if Encoder::is_in(&files) {
                encoders.push((name, files));
            } else {
                models.push(self.plan(name, files)?);
            }
        }
        if self.model.is_empty() {
            models.push(self.plan("shakespeare".to_owned(), embedded::files()?)?);
        }
        Ok((models, encoders))
    }

    fn plan(&self, name: String, files: ModelFiles) -> Result<Planned> {
        let config = Config::read(&files)?;
        let weights = self.decode_to.map_or_else(|| Weights::open(&files), |dtype| Weights::open_decoded(&files, dtype))?;
        let context = self.context.unwrap_or_else(|| CONTEXT.min(config.max_context));
        let default = EngineOptions::new(context, self.cache_dtype);
        let cache_tokens = self.cache_tokens.unwrap_or(default.cache_tokens);
        let options = EngineOptions { cache_tokens, running: self.running, waiting: self.waiting, step_tokens: self.step_tokens, ..default };
        let estimate = MemoryEstimate::of(&config, &weights, cache_tokens, self.cache_dtype, self.step_tokens);
        Ok(Planned { name, files, config, weights, options, estimate })
    }
}

/// A model's name and path: the name before `=`, or that of the file or folder.
fn named(given: &str) -> Result<(String, PathBuf)> {
    let path = PathBuf::from(given);
    if let Some((name, path)) = given.split_once('=').filter(|_| !path.exists()) {
        return if name.is_empty() || name == "default" {
            Err(Error::invalid_argument(format!("--model {given}: give a name before the '=', other than 'default'")))
        } else {
            Ok((name.to_owned(), path.into()))
        };
    }
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let name = name.map(|name| name.to_string_lossy().into_owned());
    name.map(|name| (name, path)).ok_or_else(|| Error::invalid_argument(format!("--model {given}: no name in it, give one as NAME={given}")))
}

impl Planned {
    fn start(self, executor: &Executor) -> Result<Served> {
        self.estimate.check(executor.memory())?;
        let model = BaseArgs::load(&self.files, executor, self.config, &self.weights)?;
        Served::start(self.name, &self.files, Arc::new(model), self.options)
    }

    fn print(&self) {
        let Self { name, options, estimate, .. } = self;
        let [weights, cache, activations] = [estimate.weights, estimate.cache, estimate.activations].map(format_bytes);
        let (pages, whole) = (options.cache_tokens / 32, options.cache_tokens / options.context.max(1));
        print_line(format!(
            "{name}: weights {weights} · cache {cache}, {pages} pages of 32 tokens: {whole} requests of {} tokens, or {} of 512 · activations at most {activations}",
            options.context,
            options.cache_tokens / 512
        ));
    }
}
