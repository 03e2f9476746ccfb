//! `elinvar bench predict`: what Apple's GPUs should take, which this project has none of.

mod model;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use clap::Args;
use elinvar::{
    Executor, Precision, Result,
    chips::{CHIPS, Gpu},
};
use elinvar_core::{CommandList, Device, NullBackend};
use elinvar_llm::{CacheType, Model, Session, WeightType};
use serde_json::{Value, json};

use self::model::Cost;
use super::decode::Shape;
use crate::output::print_line;

/// Arguments of `elinvar bench predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// GPUs by name, `Apple M3 Max` (its smallest configuration) or `Apple M3 Max, 40 cores` [default: every one known of the M series]
    chips: Vec<Gpu>,
    /// Use a model of this shape
    #[arg(long, value_enum, default_value_t = Shape::Llama1b)]
    shape: Shape,
    /// Store weights in this type: f32, f16, bf16 or a format of blocks, such as q4_0
    #[arg(long, default_value = "bf16", value_name = "TYPE")]
    dtype: WeightType,
    /// Store the KV cache in this type: f32, f16, bf16 or q8_0, which has blocks of 32 bytes and a scale
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    cache_dtype: CacheType,
    /// Prefill a prompt of this length
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    prompt: usize,
    /// Decode this many tokens from an empty context
    #[arg(long, default_value_t = 128, value_name = "TOKENS")]
    generate: usize,
    /// Compute matmul and attention in this precision: strict, invariant or fast [default: invariant]
    #[arg(long)]
    precision: Option<Precision>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A prompt and a run of tokens on a GPU.
struct Prediction {
    gpu: Gpu,
    prefill: Cost,
    decode: Cost,
}

pub(crate) fn run(args: &PredictArgs) -> Result<()> {
    let macs = || CHIPS.iter().filter(|chip| chip.name.starts_with('M')).flat_map(Gpu::of).collect();
    let gpus = if args.chips.is_empty() { macs() } else { args.chips.clone() };
    let predictions = gpus.into_iter().map(|gpu| predict(args, gpu)).collect::<Result<Vec<_>>>()?;
    if args.json {
        print_line(Value::Array(predictions.iter().map(|prediction| prediction.json(args)).collect()));
        return Ok(());
    }
    print_line(format!(
        "predictions for {:?} in {}, from bytes and operations of the planned launches; none of them was measured",
        args.shape, args.dtype
    ));
    let tests = [format!("pp{} t/s", args.prompt), format!("tg{} t/s", args.generate)];
    print_line(format!("{:<26} {:>6} {:>11} {:>11} {:>16} {:>16}", "GPU", "GB/s", tests[0], tests[1], "launches a token", "starting them"));
    predictions.iter().for_each(|prediction| print_line(prediction.text(args)));
    if predictions.iter().any(|prediction| prediction.gpu.chip.megahertz.is_none()) {
        print_line("* the clock is not published: that of the M4 is taken");
    }
    Ok(())
}

/// Records what the session submits on a device of this GPU's properties.
fn predict(args: &PredictArgs, gpu: Gpu) -> Result<Prediction> {
    let submitted = Arc::<Mutex<Vec<Arc<CommandList>>>>::default();
    let lists = submitted.clone();
    let observe = move |list: &Arc<CommandList>| lists.lock().unwrap_or_else(PoisonError::into_inner).push(list.clone());
    let device = Device::new(NullBackend::with_properties(gpu.properties()).observed(observe));
    let cost = || Cost::of(std::mem::take(&mut *submitted.lock().unwrap_or_else(PoisonError::into_inner)).iter().map(Arc::as_ref), &gpu);
    let executor = Executor::from_device(device).with_precision(args.precision.unwrap_or(Executor::DEFAULT_PRECISION));
    let model = Arc::new(Model::without_weights(&executor, args.shape.config(), args.dtype)?);
    // Caches of just the tokens of each test: launches bind them whole.
    let session = |tokens: usize| Session::new(model.clone(), tokens, args.cache_dtype);
    let mut prefilled = session(args.prompt)?;
    cost();
    prefilled.feed(&vec![0; args.prompt])?;
    let prefill = cost();
    let mut decoded = session(args.generate)?;
    cost();
    decoded.greedy(0, args.generate)?.try_for_each(|token| token.map(drop))?;
    let decode = cost();
    Ok(Prediction { gpu, prefill, decode })
}

impl Prediction {
    /// Tokens per second of the prompt and of the run.
    fn rates(&self, args: &PredictArgs) -> [f64; 2] {
        [args.prompt as f64 / self.prefill.seconds(), args.generate as f64 / self.decode.seconds()]
    }

    fn text(&self, args: &PredictArgs) -> String {
        let ([prefill, decode], clock) = (self.rates(args), if self.gpu.chip.megahertz.is_some() { "" } else { " *" });
        let (launches, starts) = (self.decode.commands / args.generate.max(1), 100.0 * self.decode.starts / self.decode.seconds());
        format!("{:<26} {:>6} {prefill:>11.1} {decode:>11.1} {launches:>16} {starts:>14.0} %", format!("{}{clock}", self.gpu), self.gpu.bandwidth)
    }

    fn json(&self, args: &PredictArgs) -> Value {
        let cost = |cost: &Cost| {
            json!({
                "seconds": cost.seconds(), "commands": cost.commands, "memory_seconds": cost.memory, "arithmetic_seconds": cost.arithmetic,
                "start_seconds": cost.starts,
            })
        };
        let [prefill, decode] = self.rates(args);
        json!({
            "prediction": true, "gpu": self.gpu.to_string(), "gigabytes_per_second": self.gpu.bandwidth, "clock_known": self.gpu.chip.megahertz.is_some(),
            "prompt_tokens_per_second": prefill, "tokens_per_second": decode, "prefill": cost(&self.prefill), "decode": cost(&self.decode),
        })
    }
}
