//! Training of adapters.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

use elinvar::{Error, Result};
use elinvar_llm::{
    Adapter, AdapterConfig, DataOptions, Dataset, Decay, Loss, Model, Optimizer, Schedule, Targets, Trainer, TrainerOptions, TrainingEvent,
    TrainingFolder, TrainingMemory, TrainingOptions, train,
};
use pyo3::{Bound, FromPyObject, IntoPyObject, PyAny, PyResult, Python, pyfunction, types::PyAnyMethods};

use super::model::{NativeModel, Shared};
use crate::{
    errors::{InternalError, raise},
    work::{receive, start},
};

/// The options of `elinvar lora train`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    train: PathBuf,
    valid: Option<PathBuf>,
    adapter_path: PathBuf,
    iters: u64,
    batch_size: usize,
    grad_accumulation_steps: usize,
    num_layers: i64,
    fine_tune_type: String,
    rank: usize,
    alpha: Option<f64>,
    rslora: bool,
    lora_dropout: f64,
    target_modules: Vec<String>,
    learning_rate: f64,
    schedule: String,
    warmup: u64,
    optimizer: String,
    weight_decay: Option<f64>,
    clip: f64,
    loss: String,
    beta: f64,
    mask_prompt: bool,
    pack: bool,
    grad_checkpoint: String,
    resume_adapter_file: Option<PathBuf>,
    resume: bool,
    max_seq_length: Option<usize>,
    steps_per_eval: u64,
    val_batches: usize,
    patience: Option<usize>,
    save_every: u64,
    seed: u64,
}

/// One of several names.
fn one_of<T: Copy>(what: &str, found: &str, known: &[(&str, T)]) -> Result<T> {
    known.iter().find(|(name, _)| *name == found).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        Error::invalid_argument(format!("{what} '{}' is not supported: {} are", found.escape_debug(), names.join(", ")))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lora,
    Dora,
    Full,
}

/// Tokens of a sample unless it is given.
const LENGTH: usize = 2048;

impl Options {
    fn loss(&self) -> Result<Loss> {
        one_of("loss", &self.loss, &[("cross-entropy", Loss::CrossEntropy), ("dpo", Loss::Dpo { beta: self.beta })])
    }

    fn config(&self, model: &Model) -> Result<AdapterConfig> {
        let kind = one_of("fine_tune_type", &self.fine_tune_type, &[("lora", Kind::Lora), ("dora", Kind::Dora), ("full", Kind::Full)])?;
        let layers = usize::try_from(self.num_layers).map_or(model.config().layers, |layers| layers.min(model.config().layers));
        if kind == Kind::Full {
            return Ok(AdapterConfig { dropout: self.lora_dropout, ..AdapterConfig::whole_layers(model, layers) });
        }
        let config = AdapterConfig::of_layers(model, layers);
        Ok(AdapterConfig {
            rank: self.rank,
            alpha: self.alpha.unwrap_or(2.0 * self.rank as f64),
            use_rslora: self.rslora,
            use_dora: kind == Kind::Dora,
            dropout: self.lora_dropout,
            targets: if self.target_modules.is_empty() { config.targets } else { Targets::Names(self.target_modules.clone()) },
            ..config
        })
    }

    fn trainer(&self) -> Result<TrainerOptions> {
        let optimizers = [("adamw", Optimizer::ADAMW), ("sgd", Optimizer::SGD), ("lion", Optimizer::LION), ("muon", Optimizer::MUON)];
        let optimizer = one_of("optimizer", &self.optimizer, &optimizers)?;
        Ok(TrainerOptions {
            loss: self.loss()?,
            optimizer: self.weight_decay.map_or(optimizer, |decay| optimizer.with_weight_decay(decay)),
            clip: (self.clip != 0.0).then_some(self.clip),
            checkpointing: self.grad_checkpoint.parse()?,
            seed: self.seed,
        })
    }

    fn training(&self) -> Result<TrainingOptions> {
        let decay = one_of("schedule", &self.schedule, &[("constant", Decay::Constant), ("linear", Decay::Linear), ("cosine", Decay::Cosine)])?;
        Ok(TrainingOptions {
            steps: self.iters,
            batch: self.batch_size,
            accumulation: self.grad_accumulation_steps,
            schedule: Schedule { rate: self.learning_rate, warmup: self.warmup, decay },
            seed: self.seed,
            save_every: self.save_every,
            eval_every: self.steps_per_eval,
            eval_batches: self.val_batches,
            patience: self.patience,
            pack: self.pack,
        })
    }

    /// Trains, and reports to `listener`; gives the number of trained parameters to `begun` first.
    fn run(&self, model: &Shared, listener: &mut dyn FnMut(Report) -> Result<()>) -> Result<()> {
        let base = model.whole()?;
        let most = base.config().max_context;
        let max_tokens = self.max_seq_length.unwrap_or(most.min(LENGTH));
        if max_tokens > most {
            return Err(Error::invalid_argument(format!("max_seq_length is {max_tokens}: the model's context has {most} tokens")));
        }
        let (options, loss) = (self.trainer()?, self.loss()?);
        let data = DataOptions { mask_prompt: self.mask_prompt, max_tokens };
        let open = |path: &Path| match loss {
            Loss::CrossEntropy => Dataset::open(path, &model.tokenizer, data),
            Loss::Dpo { .. } => Dataset::open_pairs(path, &model.tokenizer, data),
        };
        let (samples, validation) = (open(&self.train)?, self.valid.as_deref().map(open).transpose()?);
        let initial = self.resume_adapter_file.as_ref().map(Adapter::open).transpose()?;
        let config = initial.as_ref().map_or_else(|| self.config(&base), |adapter| Ok(adapter.config().clone()))?;
        let folder = TrainingFolder::open(&self.adapter_path)?;
        if folder.has_checkpoint() != self.resume {
            let shown = self.adapter_path.display();
            return Err(Error::invalid_argument(match self.resume {
                true => format!("{shown} has no checkpoint to go on from: train without resume"),
                false => format!("{shown} has a training already: resume=True goes on with it, another adapter_path begins a new one"),
            }));
        }
        TrainingMemory::of(&base, &config, &options, &samples, self.batch_size)?.check(base.executor().memory())?;
        let mut trainer = Trainer::new(&base, config, initial.as_ref(), options)?;
        match self.resume {
            true => folder.resume(&mut trainer)?,
            false => folder.keep_log(0)?,
        }
        listener(Report::Begun { parameters: trainer.parameters(), samples: samples.len() })?;
        train(&mut trainer, &folder, (&samples, validation.as_ref()), &self.training()?, &mut |event| listener(Report::Event(event)))
    }
}

enum Report {
    Begun { parameters: usize, samples: usize },
    Event(TrainingEvent),
}

enum Message {
    Report(Report),
    Done(Result<()>),
}

/// Trains an adapter. `listener` is called with the name of each event and its numbers; what it raises ends the training.
#[pyfunction]
pub(crate) fn _train(py: Python<'_>, model: &NativeModel, options: Options, listener: &Bound<'_, PyAny>) -> PyResult<()> {
    let (sender, receiver) = sync_channel(0);
    let (answer, answers) = sync_channel(0);
    let shared = model.checked()?;
    start(move || work(&shared, &options, &sender, &answers))?;
    let receiver = Mutex::new(Some(receiver));
    loop {
        match receive(py, &receiver)? {
            Some(Message::Report(report)) => {
                if let Err(raised) = call(listener, report) {
                    drop(answer);
                    // It ends at once, and its folder is free then.
                    while let Some(Message::Report(_)) = receive(py, &receiver)? {}
                    return Err(raised);
                }
                // It waits for this, unless it has ended.
                let _ = py.detach(|| answer.send(()));
            }
            Some(Message::Done(result)) => return result.map_err(raise),
            None => return Err(InternalError::new_err("the training ended without a result")),
        }
    }
}

fn work(model: &Arc<Shared>, options: &Options, sender: &SyncSender<Message>, answers: &Receiver<()>) {
    let ended = |_| Error::invalid_argument("the training was ended");
    let result = options.run(model, &mut |report| {
        sender.send(Message::Report(report)).map_err(|_| ended(()))?;
        answers.recv().map_err(|_| ended(()))
    });
    // Nothing is left to do if nothing waits any more.
    drop(sender.send(Message::Done(result)));
}

/// Calls Python's listener.
fn call(listener: &Bound<'_, PyAny>, report: Report) -> PyResult<()> {
    fn pass<'py>(listener: &Bound<'py, PyAny>, name: &str, numbers: impl IntoPyObject<'py>) -> PyResult<()> {
        listener.call1((name, numbers)).map(drop)
    }
    match report {
        Report::Begun { parameters, samples } => pass(listener, "begun", (parameters, samples)),
        Report::Event(TrainingEvent::Step { step, loss, norm, rewards, rate, tokens, seconds }) => {
            let rewards = rewards.map(|rewards| (rewards.chosen, rewards.rejected, rewards.accuracy));
            pass(listener, "step", (step, loss, norm, rate, tokens, seconds, rewards))
        }
        Report::Event(TrainingEvent::Validated { step, loss }) => pass(listener, "validated", (step, loss)),
        Report::Event(TrainingEvent::Stopped { step, best }) => pass(listener, "stopped", (step, best)),
        Report::Event(TrainingEvent::Saved { step }) => pass(listener, "saved", (step,)),
    }
}
