use std::{num::NonZeroUsize, time::Instant};

use clap::Args;
use elinvar::{Error, Result};
use elinvar_llm::{
    AdapterConfig, Batch, Dataset, Loss, Model, Optimizer, Sample, Targets, Trained, Trainer, TrainerOptions, TrainingMemory, WeightType,
};
use serde_json::json;

use super::{decode::Shape, timing::round_profiled};
use crate::{
    args::{CheckpointArgs, ComputeArgs},
    measure::median,
    output::print_line,
    profile::{self, Known, ProfileArgs},
};

/// Arguments of `elinvar bench train`.
#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    /// Train beside a model of this shape, with random weights
    #[arg(long, value_enum, default_value_t = Shape::Llama1b)]
    shape: Shape,
    /// Store weights in this type: f32, f16, bf16 or a format of blocks, such as q4_0
    #[arg(long, default_value = "bf16", value_name = "TYPE")]
    dtype: WeightType,
    /// Train on this many samples at once
    #[arg(long, default_value = "4")]
    batch_size: NonZeroUsize,
    /// Add up the gradients of this many batches for a step; several devices compute them side by side
    #[arg(long, default_value = "1")]
    grad_accumulation_steps: NonZeroUsize,
    /// Predict this many tokens of each sample
    #[arg(long, default_value = "512", value_name = "TOKENS")]
    length: NonZeroUsize,
    /// Rank of the low-rank matrices
    #[arg(long, default_value = "8")]
    rank: NonZeroUsize,
    /// Train these linear layers, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "q_proj,v_proj", value_name = "NAMES")]
    target_modules: Vec<String>,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
    /// Time this many steps after two that warm up, and report the median
    #[arg(long, default_value = "10")]
    steps: NonZeroUsize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    device: ComputeArgs,
}

pub(crate) fn run(args: &TrainArgs) -> Result<()> {
    let trace = args.profile.open()?;
    let executor = args.device.executor()?.replicated();
    let mut profiler = args.profile.profiler(&executor)?;
    let model = Model::random(&executor, args.shape.config(), args.dtype, 1)?;
    let [rank, batch, batches, length, steps] =
        [args.rank, args.batch_size, args.grad_accumulation_steps, args.length, args.steps].map(NonZeroUsize::get);
    let targets = Targets::Names(args.target_modules.clone());
    let config = AdapterConfig { rank, alpha: 2.0 * rank as f64, targets, ..AdapterConfig::of_layers(&model, model.config().layers) };
    let options = TrainerOptions {
        optimizer: Optimizer::ADAMW,
        clip: Some(1.0),
        checkpointing: args.checkpoint.grad_checkpoint,
        seed: 0,
        loss: Loss::CrossEntropy,
    };
    let count = batch * batches;
    let sample = |number: usize| Sample::new((0..=length).map(|i| ((i * 31 + number * 7) % 1000) as u32).collect(), 0);
    let data = Dataset::new((0..count).map(sample).collect::<Result<_>>()?)?;
    TrainingMemory::of(&model, &config, &options, &data, batch)?.check(executor.memory())?;
    let mut trainer = Trainer::new(&model, config, None, options)?;
    let of_step = Batch::of_step(&data.samples().iter().collect::<Vec<_>>(), batch, false);
    let (mut times, mut last) = (Vec::new(), None);
    for _ in 0..2 + steps {
        let start = Instant::now();
        last = Some(trainer.step(&of_step, 1e-4)?);
        times.push(start.elapsed().as_secs_f64());
    }
    let Some(Trained { loss, norm, .. }) = last else { return Err(Error::internal("a benchmark of no steps")) };
    let (seconds, tokens, peak) = (median(times.split_off(2)), count * length, executor.pool().statistics().peak_bytes);
    let known = Known { tokens: Some(tokens), unprofiled: Some(seconds) };
    round_profiled(&mut profiler, "train", known, || trainer.step(&of_step, 1e-4).map(drop))?;
    profile::finish(profiler, trace.as_deref())?;
    let (ms, rate, peak) = (1e3 * seconds, tokens as f64 / seconds, peak as f64 / 1e9);
    if args.json {
        print_line(json!({
            "device": executor.properties().name, "milliseconds": ms, "tokens_per_second": rate, "pool_peak_gb": peak, "loss": loss, "gradient_norm": norm,
        }));
        return Ok(());
    }
    print_line(format!("{} · {:?} {} · {batches} of {batch} x {length} tokens, rank {rank}", executor.properties().name, args.shape, args.dtype));
    // Losses in full, so that two devices are compared by them.
    print_line(format!("{ms:.2} ms a step, {rate:.0} tokens/s, pool {peak:.2} GB, loss {loss}, gradient {norm} after {} steps", trainer.steps()));
    Ok(())
}
