//! Loading a model as the command line asks for it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use elinvar::{DType, Executor, Result};
use elinvar_llm::{Adapter, CacheType, Config, MemoryEstimate, Model, ModelFiles, Session, Weights};
use indicatif::ProgressBar;

use crate::{args::ComputeArgs, embedded};

/// Which model, and where.
#[derive(Clone, Debug, Args)]
pub(crate) struct BaseArgs {
    /// Load the model from this GGUF file, or from this folder with config.json, model.safetensors and tokenizer.json [default: the embedded model]
    #[arg(long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// Decode quantised weights to this type, f32, f16 or bf16, instead of computing with their blocks
    #[arg(long, value_name = "TYPE")]
    pub(crate) decode_to: Option<DType>,
    #[command(flatten)]
    pub(crate) device: ComputeArgs,
}

impl BaseArgs {
    /// The model's files.
    pub(crate) fn files(&self) -> Result<ModelFiles> {
        self.model.as_ref().map_or_else(embedded::files, ModelFiles::open)
    }

    /// The weights in them.
    pub(crate) fn weights(&self, files: &ModelFiles) -> Result<Weights> {
        self.decode_to.map_or_else(|| Weights::open(files), |dtype| Weights::open_decoded(files, dtype))
    }

    /// Puts weights on a device.
    pub(crate) fn load(files: &ModelFiles, executor: &Executor, config: Config, weights: &Weights) -> Result<Model> {
        let spinner = ProgressBar::new_spinner().with_message(format!("loading {files}"));
        spinner.enable_steady_tick(Duration::from_millis(100));
        let model = Model::new(executor, config, weights);
        spinner.finish_and_clear();
        model
    }
}

/// What linear layers over weights in blocks multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Activations {
    /// Multiples of 16 bits of a scale that 32 neighbours share.
    Narrow,
    /// The same of what those leave, too: about 31 bits.
    Wide,
}

/// Which model, where, and with what memory.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    #[command(flatten)]
    base: BaseArgs,
    /// Add the LoRA adapter in this folder to the model: adapter_config.json and adapter_model.safetensors, as PEFT and `lora train` write them
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Multiply weights in blocks by activations of 16 bits (narrow) or, more exactly and more slowly, of 31 (wide)
    #[arg(long, value_enum, default_value = "narrow", value_name = "WIDTH")]
    activations: Activations,
    /// Limit the context to this many tokens [default: what the command needs, at most the model's context]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<usize>,
    /// Store the KV cache in this type: f32, f16, bf16 or q8_0, which has blocks of 32 bytes and a scale
    #[arg(long, default_value = "f32", value_name = "TYPE")]
    pub(crate) cache_dtype: CacheType,
    /// Prefill this many tokens per step [default: 256 on a CPU, 1024 on a GPU, 4096 on several NVIDIA GPUs]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) chunk: Option<usize>,
}

impl ModelArgs {
    /// The model's files.
    pub(crate) fn files(&self) -> Result<ModelFiles> {
        self.base.files()
    }

    /// Loads the model beside a cache for `needed` tokens, as far as its context reaches, unless `--context` says otherwise.
    ///
    /// What does not fit the device is rejected before anything is loaded.
    pub(crate) fn load(&self, files: &ModelFiles, needed: usize) -> Result<Session> {
        self.load_on(files, needed, |_| Ok(()))
    }

    /// The same; `opened` may reject the device before anything is loaded.
    pub(crate) fn load_on(&self, files: &ModelFiles, needed: usize, opened: impl FnOnce(&Executor) -> Result<()>) -> Result<Session> {
        let estimate = |config: &Config, weights: &Weights, Room { context, chunk, ranks }| {
            MemoryEstimate::of(config, weights, context, self.cache_dtype, chunk).of_rank(config, ranks)
        };
        let (model, Room { context, chunk, .. }) = self.load_beside(files, needed, estimate, opened)?;
        let mut session = Session::new(Arc::new(model), context, self.cache_dtype)?;
        session.set_chunk(chunk);
        Ok(session)
    }

    /// The model alone, and the room that it has, where each device has what `estimate` says.
    pub(crate) fn load_beside(
        &self,
        files: &ModelFiles,
        needed: usize,
        estimate: impl Fn(&Config, &Weights, Room) -> MemoryEstimate,
        opened: impl FnOnce(&Executor) -> Result<()>,
    ) -> Result<(Model, Room)> {
        let config = Config::read(files)?;
        let weights = self.base.weights(files)?;
        let adapter = self.adapter.as_ref().map(Adapter::open).transpose()?;
        let context = self.context.unwrap_or_else(|| needed.min(config.max_context));
        // For a GPU, whose steps are the larger ones.
        let room = Room { context, chunk: self.chunk.unwrap_or(Session::GPU_CHUNK), ranks: 1 };
        let executor = self.base.device.executor_for(estimate(&config, &weights, room).total())?;
        opened(&executor)?;
        let chunk = self.chunk.unwrap_or_else(|| Session::default_chunk(&executor));
        let room = Room { chunk, ranks: executor.ranks(), ..room };
        estimate(&config, &weights, room).check(executor.memory())?;
        let mut model = BaseArgs::load(files, &executor, config, &weights)?;
        if let Some(adapter) = adapter {
            model = model.with_adapter(&adapter)?;
        }
        if self.activations == Activations::Wide {
            model = model.with_wide_activations()?;
        }
        Ok((model, room))
    }
}

/// Tokens of a text, and of a step, on so many devices.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) context: usize,
    pub(crate) chunk: usize,
    pub(crate) ranks: usize,
}
