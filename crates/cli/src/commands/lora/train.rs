use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::{ArgAction::Set, Args, ValueEnum};
use elinvar::{Error, Result, format_bytes};
use elinvar_llm::{
    Adapter, AdapterConfig, Config, DataOptions, Dataset, Decay, Loss, Model, Optimizer, Rewards, Schedule, Targets, Tokenizer, Trainer,
    TrainerOptions, TrainingEvent, TrainingFolder, TrainingMemory, TrainingOptions, train,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::{curve, tensorboard::Events};
use crate::{
    model::BaseArgs,
    output::print_line,
    profile::{self, Known, ProfileArgs, Profiler},
};

/// Arguments of `elinvar lora train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Folder with train.jsonl, and valid.jsonl if there is one: lines with `text`, with `prompt` and `completion`, or with `messages`
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Take what is not given here from this YAML file, which has the names of the options with `_` and mlx-lm's groups: lora_parameters, lr_schedule,
    /// optimizer_config
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Write the adapter, its checkpoint, the log (log.jsonl) and the loss curve (loss.png) to this folder
    #[arg(long, default_value = "adapters", value_name = "FOLDER")]
    adapter_path: PathBuf,
    /// Take this many steps
    #[arg(long, default_value_t = 1000)]
    iters: u64,
    /// Train on this many samples at once
    #[arg(long, default_value_t = 4)]
    batch_size: usize,
    /// Add up the gradients of this many batches for a step
    #[arg(long, default_value_t = 1)]
    grad_accumulation_steps: usize,
    /// Train the last layers, so many of them; -1 for all
    #[arg(long, default_value_t = 16, allow_negative_numbers = true)]
    num_layers: i64,
    /// Train low-rank matrices (lora), these and the lengths of rows (dora), or the layers' own matrices (full)
    #[arg(long, value_enum, default_value_t = Kind::Lora)]
    fine_tune_type: Kind,
    /// Rank of the low-rank matrices
    #[arg(long, default_value_t = 8)]
    rank: usize,
    /// Their product is multiplied by alpha / rank [default: twice the rank]
    #[arg(long, conflicts_with = "scale")]
    alpha: Option<f64>,
    /// Their product is multiplied by this
    #[arg(long)]
    scale: Option<f64>,
    /// Multiply it by alpha / sqrt(rank) instead (rsLoRA)
    #[arg(long, action = Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    rslora: bool,
    /// Leave out each element that the low-rank matrices read with this probability [default: 0]
    #[arg(long, value_name = "PROBABILITY")]
    lora_dropout: Option<f64>,
    /// Train these linear layers, separated by commas, such as q_proj,v_proj [default: every one but the output projection]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    target_modules: Vec<String>,
    /// Learn at this rate
    #[arg(long, default_value_t = 1e-4)]
    learning_rate: f64,
    /// Change the learning rate over the steps in this way
    #[arg(long, value_enum, default_value_t = Schedules::Constant)]
    schedule: Schedules,
    /// Raise the learning rate from zero over this many steps first
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    warmup: u64,
    /// Use this optimiser
    #[arg(long, value_enum, default_value_t = Optimizers::Adamw)]
    optimizer: Optimizers,
    /// Decay weights by this, times the learning rate [default: 0.01 for adamw, 0.1 for muon, else 0]
    #[arg(long)]
    weight_decay: Option<f64>,
    /// Shorten gradients to this length; 0 leaves them
    #[arg(long, default_value_t = 1.0)]
    clip: f64,
    /// Minimise the mean cross-entropy of tokens, or learn what is preferred (direct preference optimisation) from lines with `prompt`, `chosen` and
    /// `rejected`
    #[arg(long, value_enum, default_value_t = Losses::CrossEntropy)]
    loss: Losses,
    /// How much a change of log-probabilities counts [default: 0.1; for --loss dpo]
    #[arg(long)]
    beta: Option<f64>,
    /// Learn the completion, or the last message, alone
    #[arg(long, action = Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    mask_prompt: bool,
    /// Lay the samples of a batch one after the other, so that nothing but attention fills them up: faster where their lengths differ, or are short
    #[arg(long, action = Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pack: bool,
    /// Compute layers again on the way back: less memory, more time
    #[arg(long, action = Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    grad_checkpoint: bool,
    /// Begin with the adapter in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    resume_adapter_file: Option<PathBuf>,
    /// Go on with the training in --adapter-path, from its checkpoint
    #[arg(long)]
    resume: bool,
    /// Reject samples of more tokens [default: the model's context, at most 2048]
    #[arg(long, value_name = "TOKENS")]
    max_seq_length: Option<usize>,
    /// Report after every so many steps
    #[arg(long, default_value_t = 10)]
    steps_per_report: u64,
    /// Evaluate on valid.jsonl after every so many steps, and after the last
    #[arg(long, default_value_t = 200)]
    steps_per_eval: u64,
    /// Evaluate on this many batches at most
    #[arg(long, default_value_t = 25)]
    val_batches: usize,
    /// Stop after so many evaluations in a row that are no better than the best before them [default: train to the last step]
    #[arg(long, value_name = "COUNT")]
    patience: Option<usize>,
    /// Write an event file for TensorBoard beside the adapter, too
    #[arg(long)]
    tensorboard: bool,
    /// Write a checkpoint after every so many steps, and after the last
    #[arg(long, default_value_t = 100)]
    save_every: u64,
    /// Seed of the adapter's first values and of the order of samples: with --precision strict the same seed gives the same bits on every machine
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    base: BaseArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Lora,
    Dora,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Losses {
    CrossEntropy,
    Dpo,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Schedules {
    Constant,
    Linear,
    Cosine,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Optimizers {
    Adamw,
    Sgd,
    Lion,
    Muon,
}

/// Tokens of a sample unless it is given.
const LENGTH: usize = 2048;

impl TrainArgs {
    fn config(&self, model: &Model) -> AdapterConfig {
        let all = model.config().layers;
        let layers = usize::try_from(self.num_layers).map_or(all, |layers| layers.min(all));
        let base_model = self.base.model.as_ref().map(|path| path.display().to_string());
        if self.fine_tune_type == Kind::Full {
            return AdapterConfig { base_model, dropout: self.lora_dropout.unwrap_or(0.0), ..AdapterConfig::whole_layers(model, layers) };
        }
        let config = AdapterConfig::of_layers(model, layers);
        let divisor = if self.rslora { (self.rank as f64).sqrt() } else { self.rank as f64 };
        AdapterConfig {
            rank: self.rank,
            alpha: self.alpha.unwrap_or_else(|| self.scale.map_or(2.0 * self.rank as f64, |scale| scale * divisor)),
            use_rslora: self.rslora,
            use_dora: self.fine_tune_type == Kind::Dora,
            dropout: self.lora_dropout.unwrap_or(0.0),
            targets: if self.target_modules.is_empty() { config.targets } else { Targets::Names(self.target_modules.clone()) },
            base_model,
            ..config
        }
    }

    fn optimizer(&self) -> Optimizer {
        let optimizer = match self.optimizer {
            Optimizers::Adamw => Optimizer::ADAMW,
            Optimizers::Sgd => Optimizer::SGD,
            Optimizers::Lion => Optimizer::LION,
            Optimizers::Muon => Optimizer::MUON,
        };
        self.weight_decay.map_or(optimizer, |decay| optimizer.with_weight_decay(decay))
    }

    fn loss(&self) -> Result<Loss> {
        match (self.loss, self.beta) {
            (Losses::CrossEntropy, None) => Ok(Loss::CrossEntropy),
            (Losses::CrossEntropy, Some(_)) => Err(Error::invalid_argument("--beta is for --loss dpo: it would have no effect")),
            (Losses::Dpo, _) if self.mask_prompt => {
                Err(Error::invalid_argument("--mask-prompt would have no effect: --loss dpo never learns prompts"))
            }
            (Losses::Dpo, beta) => Ok(Loss::Dpo { beta: beta.unwrap_or(0.1) }),
        }
    }

    /// Reads a file of samples.
    fn open(&self, path: &Path, tokenizer: &Tokenizer, options: DataOptions) -> Result<Dataset> {
        match self.loss {
            Losses::CrossEntropy => Dataset::open(path, tokenizer, options),
            Losses::Dpo => Dataset::open_pairs(path, tokenizer, options),
        }
    }

    fn options(&self) -> TrainingOptions {
        let decay = match self.schedule {
            Schedules::Constant => Decay::Constant,
            Schedules::Linear => Decay::Linear,
            Schedules::Cosine => Decay::Cosine,
        };
        TrainingOptions {
            steps: self.iters,
            batch: self.batch_size,
            accumulation: self.grad_accumulation_steps,
            schedule: Schedule { rate: self.learning_rate, warmup: self.warmup, decay },
            pack: self.pack,
            seed: self.seed,
            save_every: self.save_every,
            eval_every: self.steps_per_eval,
            eval_batches: self.val_batches,
            patience: self.patience,
        }
    }
}

/// Tokens of a sample at most.
pub(super) fn longest(given: Option<usize>, config: &Config) -> Result<usize> {
    match given {
        Some(tokens) if tokens > config.max_context => {
            Err(Error::invalid_argument(format!("--max-seq-length {tokens}: the model's context has {} tokens", config.max_context)))
        }
        given => Ok(given.unwrap_or_else(|| config.max_context.min(LENGTH))),
    }
}

pub(crate) fn run(args: &TrainArgs) -> Result<()> {
    let data_folder = args.data.as_ref().ok_or_else(|| Error::invalid_argument("no data: give --data FOLDER, or 'data' in the file of --config"))?;
    let trace = args.profile.open()?;
    let files = args.base.files()?;
    let config = Config::read(&files)?;
    let tokenizer = Tokenizer::open(&files)?;
    let data = DataOptions { mask_prompt: args.mask_prompt, max_tokens: longest(args.max_seq_length, &config)? };
    let loss = args.loss()?;
    let samples = args.open(&data_folder.join("train.jsonl"), &tokenizer, data)?;
    let validation = Some(data_folder.join("valid.jsonl")).filter(|path| path.exists());
    let validation = validation.map(|path| args.open(&path, &tokenizer, data)).transpose()?;
    let initial = args.resume_adapter_file.as_ref().map(|path| Adapter::open(if path.is_file() { path.with_file_name("") } else { path.clone() }));
    let initial = initial.transpose()?;
    let folder = TrainingFolder::open(&args.adapter_path)?;
    if folder.has_checkpoint() != args.resume {
        let shown = args.adapter_path.display();
        return Err(Error::invalid_argument(match args.resume {
            true => format!("{shown} has no checkpoint to go on from: train without --resume"),
            false => format!("{shown} has a training already: --resume goes on with it, another --adapter-path begins a new one"),
        }));
    }
    let weights = args.base.weights(&files)?;
    let executor = args.base.device.executor_for(weights.bytes())?;
    let profiler = args.profile.profiler(&executor)?;
    let model = BaseArgs::load(&files, &executor, config, &weights)?;
    let adapter = initial.as_ref().map_or_else(
        || args.config(&model),
        |adapter| {
            let config = adapter.config().clone();
            AdapterConfig { dropout: args.lora_dropout.unwrap_or(config.dropout), ..config }
        },
    );
    let clip = (args.clip != 0.0).then_some(args.clip);
    let options = TrainerOptions { optimizer: args.optimizer(), clip, checkpointing: args.grad_checkpoint, seed: args.seed, loss };
    let memory = TrainingMemory::of(&model, &adapter, &options, &samples, args.batch_size)?;
    memory.check(executor.memory())?;
    let mut trainer = Trainer::new(&model, adapter, initial.as_ref(), options)?;
    match args.resume {
        true => folder.resume(&mut trainer)?,
        false => folder.keep_log(0)?,
    }
    let [need, parameters, activations, logits] = [memory.total(), memory.parameters, memory.activations, memory.logits].map(format_bytes);
    print_line(format!("memory beside the model: about {need} (parameters {parameters}, activations {activations}, logits {logits})"));
    let of = if loss == Loss::CrossEntropy { "samples" } else { "pairs" };
    print_line(format!("training {} parameters on {} {of}", trainer.parameters(), samples.len()));
    let style = ProgressStyle::with_template("{bar:30} step {pos} of {len}, {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let mut report = Report {
        bar: ProgressBar::new(args.iters).with_style(style),
        every: args.steps_per_report.max(1),
        steps: args.iters,
        begun: (Instant::now(), trainer.steps()),
        since: Sum::default(),
        of_pairs: loss != Loss::CrossEntropy,
    };
    let mut profiled = Profiled { profiler, first: trainer.steps() + 1, last: args.iters, begun: None, tokens: 0 };
    profiled.begin(profiled.first)?;
    let mut events = args.tensorboard.then(|| Events::new(&args.adapter_path, trainer.steps())).transpose()?;
    let trained = train(&mut trainer, &folder, (&samples, validation.as_ref()), &args.options(), &mut |event| {
        events.as_mut().map_or(Ok(()), |events| events.listen(event))?;
        report.show(event, executor.pool().statistics().peak_bytes);
        profiled.listen(event)
    });
    report.bar.finish_and_clear();
    curve::write(&folder)?;
    trained?;
    profile::finish(profiled.profiler, trace.as_deref())?;
    print_line(format!("the adapter is in {}: use it with `elinvar generate --adapter {0}`", args.adapter_path.display()));
    Ok(())
}

/// Profiles the first step, which makes what the others use, and the others together.
struct Profiled {
    profiler: Option<Profiler>,
    /// Steps of this run.
    first: u64,
    last: u64,
    /// The first step of the part that is being timed, and the tokens of its steps so far.
    begun: Option<u64>,
    tokens: usize,
}

impl Profiled {
    fn begin(&mut self, step: u64) -> Result<()> {
        (self.begun, self.tokens) = (Some(step), 0);
        self.profiler.as_mut().map_or(Ok(()), Profiler::begin)
    }

    fn end(&mut self, last: u64) -> Result<()> {
        let (Some(first), Some(profiler)) = (self.begun.take(), &mut self.profiler) else { return Ok(()) };
        let name = if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
        profiler.end(name, Known { tokens: Some(self.tokens), unprofiled: None })
    }

    fn listen(&mut self, event: TrainingEvent) -> Result<()> {
        match event {
            TrainingEvent::Step { step, tokens, .. } => {
                self.tokens += tokens;
                if step == self.first || step == self.last {
                    self.end(step)?;
                }
                if step == self.first && step < self.last { self.begin(step + 1) } else { Ok(()) }
            }
            TrainingEvent::Stopped { step, .. } => self.end(step),
            TrainingEvent::Validated { .. } | TrainingEvent::Saved { .. } => Ok(()),
        }
    }
}

/// What is shown of a training.
struct Report {
    bar: ProgressBar,
    every: u64,
    steps: u64,
    begun: (Instant, u64),
    since: Sum,
    /// What the loss is of.
    of_pairs: bool,
}

/// Of the steps since the last report.
#[derive(Default)]
struct Sum {
    steps: u64,
    loss: f64,
    tokens: usize,
    seconds: f64,
    margin: f64,
    accuracy: f64,
}

impl Report {
    fn show(&mut self, event: TrainingEvent, memory: usize) {
        match event {
            TrainingEvent::Step { step, loss, rewards, rate, tokens, seconds, .. } => {
                if let Some(Rewards { chosen, rejected, accuracy }) = rewards {
                    self.since.margin += f64::from(chosen - rejected);
                    self.since.accuracy += f64::from(accuracy);
                }
                self.since.steps += 1;
                self.since.loss += f64::from(loss);
                self.since.tokens += tokens;
                self.since.seconds += seconds;
                let (start, first) = self.begun;
                let left = start.elapsed().mul_f64((self.steps - step) as f64 / (step - first) as f64);
                self.bar.set_position(step);
                self.bar.set_message(format!("loss {loss:.4}, {} left", time(left)));
                if step % self.every == 0 || step == self.steps {
                    let Sum { steps, loss, tokens, seconds, margin, accuracy } = std::mem::take(&mut self.since);
                    let mean = |sum: f64| sum / steps as f64;
                    let pairs = match rewards {
                        Some(_) => format!(", margin {:.4}, {:.0} % in order", mean(margin), 100.0 * mean(accuracy)),
                        None => String::new(),
                    };
                    self.line(format!(
                        "step {step}: loss {:.4}{pairs}, learning rate {rate:.2e}, {:.0} tokens/s, peak memory {}, {} left",
                        mean(loss),
                        tokens as f64 / seconds,
                        format_bytes(memory as u64),
                        time(left)
                    ));
                }
            }
            TrainingEvent::Validated { step, loss } if self.of_pairs => self.line(format!("step {step}: validation loss {loss:.4}")),
            TrainingEvent::Validated { step, loss } => self.line(format!("step {step}: validation loss {loss:.4}, perplexity {:.2}", loss.exp())),
            TrainingEvent::Stopped { step, best } => self.line(format!("step {step}: stopped, no evaluation was better than that of step {best}")),
            TrainingEvent::Saved { step } => self.line(format!("step {step}: saved")),
        }
    }

    fn line(&self, line: String) {
        self.bar.suspend(|| print_line(line));
    }
}

/// `1:05:09`, or `5:09`.
fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}
