//! What `elinvar lora train` is asked for.

use std::path::{Path, PathBuf};

use clap::{ArgAction::Set, Args, ValueEnum};
use elinvar::{Error, Result};
use elinvar_llm::{Config, DataOptions, Dataset, Decay, Loss, Optimizer, Schedule, Tokenizer, TrainerOptions, TrainingOptions};

use crate::{args::CheckpointArgs, model::BaseArgs, profile::ProfileArgs};

/// Arguments of `elinvar lora train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Folder with train.jsonl, and valid.jsonl if there is one: lines with `text`, with `prompt` and `completion`, or with `messages`
    #[arg(long, value_name = "FOLDER")]
    pub(super) data: Option<PathBuf>,
    /// Take what is not given here from this YAML file, which has the names of the options with `_` and mlx-lm's groups: lora_parameters, lr_schedule,
    /// optimizer_config
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Write the adapter, its checkpoint, the log (log.jsonl) and the loss curve (loss.png) to this folder
    #[arg(long, default_value = "adapters", value_name = "FOLDER")]
    pub(super) adapter_path: PathBuf,
    /// Take this many steps
    #[arg(long, default_value_t = 1000)]
    pub(super) iters: u64,
    /// Train on this many samples at once
    #[arg(long, default_value_t = 4)]
    pub(super) batch_size: usize,
    /// Add up the gradients of this many batches for a step; several devices (--devices cuda:0,cuda:1) compute them side by side, with the bits of one
    #[arg(long, default_value_t = 1)]
    grad_accumulation_steps: usize,
    /// Train the last layers, so many of them; -1 for all
    #[arg(long, default_value_t = 16, allow_negative_numbers = true)]
    pub(super) num_layers: i64,
    /// Train low-rank matrices (lora), these and the lengths of rows (dora), or the layers' own matrices (full)
    #[arg(long, value_enum, default_value_t = Kind::Lora)]
    pub(super) fine_tune_type: Kind,
    /// Rank of the low-rank matrices [default: 8]
    #[arg(long)]
    pub(super) rank: Option<usize>,
    /// Their product is multiplied by alpha / rank [default: twice the rank]
    #[arg(long, conflicts_with = "scale")]
    pub(super) alpha: Option<f64>,
    /// Their product is multiplied by this
    #[arg(long)]
    pub(super) scale: Option<f64>,
    /// Multiply it by alpha / sqrt(rank) instead (rsLoRA)
    #[arg(long, action = Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pub(super) rslora: bool,
    /// Leave out each element that the low-rank matrices read with this probability [default: 0]
    #[arg(long, value_name = "PROBABILITY")]
    pub(super) lora_dropout: Option<f64>,
    /// Train these linear layers, separated by commas, such as q_proj,v_proj [default: every one but the output projection]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(super) target_modules: Vec<String>,
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
    pub(super) mask_prompt: bool,
    /// Lay the samples of a batch one after the other, so that nothing but attention fills them up: faster where their lengths differ, or are short
    #[arg(long, action = Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    #[arg(hide_default_value = true, hide_possible_values = true, value_name = "BOOL")]
    pack: bool,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
    /// Begin with the adapter in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    pub(super) resume_adapter_file: Option<PathBuf>,
    /// Go on with the training in --adapter-path, from its checkpoint
    #[arg(long)]
    pub(super) resume: bool,
    /// Reject samples of more tokens [default: the model's context, at most 2048]
    #[arg(long, value_name = "TOKENS")]
    pub(super) max_seq_length: Option<usize>,
    /// Report after every so many steps
    #[arg(long, default_value_t = 10)]
    pub(super) steps_per_report: u64,
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
    pub(super) tensorboard: bool,
    /// Write a checkpoint after every so many steps, and after the last
    #[arg(long, default_value_t = 100)]
    save_every: u64,
    /// Seed of the adapter's first values and of the order of samples: with --precision strict the same seed gives the same bits on every machine
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    pub(super) profile: ProfileArgs,
    #[command(flatten)]
    pub(super) base: BaseArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
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
    /// How a step is taken.
    pub(super) fn trainer(&self, loss: Loss) -> TrainerOptions {
        let clip = (self.clip != 0.0).then_some(self.clip);
        TrainerOptions { optimizer: self.optimizer(), clip, checkpointing: self.checkpoint.grad_checkpoint, seed: self.seed, loss }
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

    pub(super) fn loss(&self) -> Result<Loss> {
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
    pub(super) fn open(&self, path: &Path, tokenizer: &Tokenizer, options: DataOptions) -> Result<Dataset> {
        match self.loss {
            Losses::CrossEntropy => Dataset::open(path, tokenizer, options),
            Losses::Dpo => Dataset::open_pairs(path, tokenizer, options),
        }
    }

    pub(super) fn options(&self) -> TrainingOptions {
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
