//! Models with an engine each, as the command line asks for them.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use elinvar::{DType, Error, Executor, Result, World};
use elinvar_llm::{CacheType, Config, Encoder, EngineOptions, MemoryEstimate, ModelFiles, Weights};
use elinvar_server::{Embedder, Models, Served};

use crate::{
    args::ComputeArgs,
    drafts::{DraftArgs, DraftModel},
    embedded,
    model::BaseArgs,
    output::print_line,
    plan::{self, Footprint, Plan},
    world::world,
};

/// Which models, where, and what their engines may use.
#[derive(Debug, Args)]
pub(crate) struct ServedArgs {
    /// Serve this model, or encoder for embeddings: a GGUF file, or a folder with config.json, model.safetensors and tokenizer.json; NAME=PATH gives it a
    /// name other than the file's; repeat for more [default: the embedded model]
    #[arg(long, value_name = "[NAME=]PATH")]
    model: Vec<String>,
    /// Serve the model with this LoRA adapter, too, as a model of the adapter's name: a folder as PEFT and `lora train` write it; MODEL:NAME=FOLDER for a model
    /// other than the first; repeat for more
    #[arg(long, value_name = "[MODEL:]NAME=FOLDER")]
    adapter: Vec<String>,
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
    /// Compute at most this many tokens per step
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    step_tokens: usize,
    /// Decode quantised weights to this type, f32, f16 or bf16, instead of computing with their blocks
    #[arg(long, value_name = "TYPE")]
    decode_to: Option<DType>,
    #[command(flatten)]
    drafts: DraftArgs,
    #[command(flatten)]
    device: ComputeArgs,
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
}

/// An encoder by its name.
type Named = (String, ModelFiles);

impl ServedArgs {
    /// Loads the models and starts their engines, for each of which at most `waiting` requests wait. What does not fit the device is rejected before it is
    /// loaded. None on a process that has followed the first one until that ended.
    pub(crate) fn start(&self, waiting: usize) -> Result<Option<Models>> {
        let (planned, encoders) = self.planned()?;
        if world().is_some() && (planned.len() > 1 || !encoders.is_empty()) {
            return Err(Error::unsupported("several processes serve one model that continues texts: give one --model"));
        }
        let draft = self.drafts.open()?;
        let needed = |ranks| Ok(plan::total(&plans(&planned, draft.as_ref(), ranks), &weights(&encoders)?));
        let executor = self.device.executor_for(needed(1)?)?;
        plan::check(needed(executor.ranks())?, executor.memory().available as u64).map_err(Error::out_of_memory)?;
        let adapters = self.adapters(&planned)?;
        let draft = draft.map(|draft| draft.load(&executor)).transpose()?;
        let served = planned.into_iter().zip(adapters).map(|(model, adapters)| {
            let options = EngineOptions { waiting, drafts: self.drafts.drafts(draft.as_ref()), ..model.options.clone() };
            model.start(&executor, options, &adapters)
        });
        let Some(served) = served.collect::<Result<Option<_>>>()? else { return Ok(None) };
        let open = |(name, files)| Ok(Embedder::new(name, Encoder::open(&executor, &files)?));
        Models::new(served, encoders.into_iter().map(open).collect::<Result<_>>()?).map(Some)
    }

    /// The names and folders of each model's adapters.
    fn adapters(&self, models: &[Planned]) -> Result<Vec<Vec<(String, PathBuf)>>> {
        let mut adapters: Vec<_> = models.iter().map(|_| Vec::new()).collect();
        for given in &self.adapter {
            let reject = |what: &str| Error::invalid_argument(format!("--adapter {given}: {what}, as in NAME=FOLDER or MODEL:NAME=FOLDER"));
            let (name, folder) = given.split_once('=').ok_or_else(|| reject("give it a name"))?;
            let (model, name) = name.split_once(':').map_or((None, name), |(model, name)| (Some(model), name));
            let place = models.iter().position(|planned| model.is_none_or(|model| planned.name == model));
            let place = place.ok_or_else(|| reject("there is no such model"))?;
            if name.is_empty() || name == "default" {
                return Err(reject("give it a name other than 'default'"));
            }
            adapters[place].push((name.to_owned(), PathBuf::from(folder)));
        }
        Ok(adapters)
    }

    /// Prints what memory that takes, and what fits into `memory`, or what is free on the device.
    pub(crate) fn print_plan(&self, memory: Option<u64>) -> Result<()> {
        let (planned, encoders) = self.planned()?;
        let draft = self.drafts.open()?;
        let (memory, ranks) = match memory {
            Some(memory) => (memory, 1),
            None => {
                let executor = self.device.executor()?;
                (executor.memory().available as u64, executor.ranks())
            }
        };
        plan::lines(&plans(&planned, draft.as_ref(), ranks), &weights(&encoders)?, memory).iter().for_each(print_line);
        Ok(())
    }

    /// The models, and the encoders, with their names.
    fn planned(&self) -> Result<(Vec<Planned>, Vec<Named>)> {
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
        let options = EngineOptions { cache_tokens, running: self.running, step_tokens: self.step_tokens, ..default };
        Ok(Planned { name, files, config, weights, options })
    }
}

/// What models take of each rank of a group of devices, each with a cache of the draft model, whose weights they share.
fn plans(models: &[Planned], draft: Option<&DraftModel>, ranks: usize) -> Vec<Plan> {
    let plan = |(index, model): (usize, &Planned)| {
        let Planned { name, config, weights, options, .. } = model;
        let footprint = Footprint::new(config, weights, options, ranks);
        let draft = draft.map(|draft| {
            let Footprint { estimate, page } = draft.footprint(options, ranks);
            Footprint { estimate: MemoryEstimate { weights: if index == 0 { estimate.weights } else { 0 }, ..estimate }, page }
        });
        Plan { name: name.clone(), options: options.clone(), footprint: draft.map_or(footprint, |draft| footprint.with(draft)) }
    };
    models.iter().enumerate().map(plan).collect()
}

/// The names of encoders, and the bytes of their weights.
fn weights(encoders: &[Named]) -> Result<Vec<(String, u64)>> {
    encoders.iter().map(|(name, files)| Ok((name.clone(), Weights::open(files)?.bytes()))).collect()
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
    fn start(self, executor: &Executor, options: EngineOptions, adapters: &[(String, PathBuf)]) -> Result<Option<Served>> {
        let model = Arc::new(BaseArgs::load(&self.files, executor, self.config, &self.weights)?);
        if world().is_none_or(World::is_first) {
            return Served::start(self.name, &self.files, model, options, adapters).map(Some);
        }
        Served::follow(&self.name, &self.files, model, options, adapters).map(|()| None)
    }
}
