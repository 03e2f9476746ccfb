use std::{path::PathBuf, sync::Arc, time::Instant};

use clap::{Args, ValueEnum};
use elinvar::{Error, Executor, Result};
use elinvar_llm::{
    Adapter, CacheType, Config, Engine, EngineOptions, MemoryEstimate, Model, ModelFiles, Output, Request, Sampling, Session, WeightType, Weights,
};
use serde_json::json;

use super::timing::round_profiled;
use crate::{
    args::ComputeArgs,
    measure::{median, memory_bandwidth, processor_seconds, units},
    model::BaseArgs,
    output::print_line,
    profile::{self, Known, ProfileArgs},
};

/// Arguments of `elinvar bench decode`.
#[derive(Debug, Args)]
pub(crate) struct DecodeArgs {
    /// Use a model of this shape, with random weights
    #[arg(long, value_enum, default_value_t = Shape::Llama1b)]
    shape: Shape,
    /// Use the model in this GGUF file or folder
    #[arg(long, value_name = "PATH", conflicts_with_all = ["shape", "dtype"])]
    model: Option<PathBuf>,
    /// Store weights in this type: f32, f16, bf16 or a format of blocks, such as q4_0
    #[arg(long, default_value = "bf16", value_name = "TYPE")]
    dtype: WeightType,
    /// Store the KV cache in this type: f32, f16, bf16 or q8_0, which has blocks of 32 bytes and a scale
    #[arg(long, default_value = "f16", value_name = "TYPE")]
    cache_dtype: CacheType,
    /// Add the LoRA adapter in this folder to the model: its matrices have extents of the shape. Sequences of the engine have up to eight copies of it in turn
    #[arg(long, value_name = "FOLDER")]
    adapter: Option<PathBuf>,
    /// Prefill prompts of these lengths, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "128", value_name = "TOKENS")]
    prompt: Vec<usize>,
    /// Decode these numbers of tokens from an empty context, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "32", value_name = "TOKENS")]
    generate: Vec<usize>,
    /// Prefill and decode so many sequences at a time too, by the engine, separated by commas: each after a prompt of the first length
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    sequences: Vec<usize>,
    /// Sample at this temperature instead of taking the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Sample from this many most likely tokens; 0 for all
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Sample from the most likely tokens up to this cumulative probability
    #[arg(long, default_value_t = 1.0)]
    top_p: f32,
    /// Repeat this often and report the median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    device: ComputeArgs,
}

/// Copies of an adapter that the engine has at most.
const ADAPTERS: usize = 8;

/// Known shapes.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Shape {
    /// 2 layers of width 256: a quick check
    Tiny,
    /// 16 layers, 2048/8192, 32/8 heads, vocabulary 128256, tied
    #[value(name = "llama-1b")]
    Llama1b,
    /// 32 layers, 4096/14336, 32/8 heads, vocabulary 128256
    #[value(name = "llama-8b")]
    Llama8b,
    /// 32 layers, 4096/11008, 32/32 heads, vocabulary 32000: the first Llama, and Llama 2
    #[value(name = "llama-7b")]
    Llama7b,
}

impl Shape {
    pub(super) fn config(self) -> Config {
        match self {
            Shape::Tiny => Config { tied_embeddings: true, ..Config::llama3(2, [256, 704], [8, 4], 2048) },
            Shape::Llama1b => Config { tied_embeddings: true, ..Config::llama3(16, [2048, 8192], [32, 8], 128_256) },
            Shape::Llama8b => Config::llama3(32, [4096, 14_336], [32, 8], 128_256),
            Shape::Llama7b => Config::llama3(32, [4096, 11_008], [32, 32], 32_000),
        }
    }
}

/// Weights a decoded token reads: all matrices but the embedding, or with it where it is the output projection too.
pub(super) fn bytes_per_token(config: &Config, kind: WeightType) -> usize {
    let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
    let layer = config.hidden_size * (2 * queries + 2 * keys + 3 * config.intermediate_size);
    kind.bytes((config.layers * layer + config.vocab_size * config.hidden_size) as u128) as usize
}

impl DecodeArgs {
    /// The model with room for texts of `longest` tokens, the bytes of its weights that a token reads, and what to call it.
    fn model(&self, executor: &Executor, longest: usize) -> Result<(Model, usize, String)> {
        let chunk = Session::default_chunk(executor);
        let Some(path) = &self.model else {
            let config = self.shape.config();
            MemoryEstimate::of_random(&config, self.dtype, longest, self.cache_dtype, chunk)
                .of_rank(&config, executor.ranks())
                .check(executor.memory())?;
            let bytes = bytes_per_token(&config, self.dtype);
            return Ok((Model::random(executor, config, self.dtype, 1)?, bytes, format!("{:?} {}", self.shape, self.dtype)));
        };
        let files = ModelFiles::open(path)?;
        let (config, weights) = (Config::read(&files)?, Weights::open(&files)?);
        MemoryEstimate::of(&config, &weights, longest, self.cache_dtype, chunk).of_rank(&config, executor.ranks()).check(executor.memory())?;
        // Of the embedding a token reads a row.
        let embedding = weights.info("model.embed_tokens.weight").filter(|_| !config.tied_embeddings);
        let embedding = embedding.map_or(0, |(dims, kind)| kind.map_or(0, |kind| kind.bytes(dims.iter().product::<usize>() as u128)));
        let bytes = u128::from(weights.bytes()).saturating_sub(embedding) as usize;
        Ok((BaseArgs::load(&files, executor, config, &weights)?, bytes, files.to_string()))
    }
}

pub(crate) fn run(args: &DecodeArgs) -> Result<()> {
    let trace = args.profile.open()?;
    let executor = args.device.executor()?;
    let mut profiler = args.profile.profiler(&executor)?;
    let properties = executor.properties().clone();
    let (bandwidth, how) = memory_bandwidth(&executor)?;
    let longest = args.prompt.iter().chain(&args.generate).copied().max().unwrap_or(1);
    let (base, bytes, name) = args.model(&executor, longest)?;
    let base = Arc::new(base);
    let adapter = args.adapter.as_ref().map(Adapter::open).transpose()?;
    let model = adapter.map_or(Ok(base.clone()), |adapter| base.with_adapter(&adapter).map(Arc::new))?;
    let mut session = Session::new(model, longest, args.cache_dtype)?;
    let sampling = Sampling { temperature: args.temperature, top_k: args.top_k, top_p: args.top_p, ..Sampling::default() };
    let mut rows = Vec::new();
    for &tokens in &args.prompt {
        let (name, (seconds, processor)) = (format!("pp{tokens}"), rounds(args.rounds, || prefill(&mut session, tokens))?);
        round_profiled(&mut profiler, &name, Known { tokens: Some(tokens), unprofiled: Some(seconds) }, || prefill(&mut session, tokens).map(drop))?;
        rows.push(Row { name, tokens, seconds, processor, limit: None });
    }
    for &tokens in &args.generate {
        let (seconds, processor) = rounds(args.rounds, || decode(&mut session, tokens, &sampling))?;
        let (name, limit) = (format!("tg{tokens}"), bytes as f64 * tokens as f64 / seconds / bandwidth);
        round_profiled(&mut profiler, &name, Known { tokens: Some(tokens), unprofiled: Some(seconds) }, || {
            decode(&mut session, tokens, &sampling).map(drop)
        })?;
        rows.push(Row { name, tokens, seconds, processor, limit: Some(limit) });
    }
    for (&count, &tokens) in args.sequences.iter().flat_map(|count| args.generate.iter().map(move |tokens| (count, tokens))) {
        let prompt = args.prompt.first().copied().unwrap_or(1);
        // Of each sequence, the tokens after the first.
        let steps = tokens.saturating_sub(1).max(1);
        let mut engine = engine(&base, count, [prompt, steps], args.cache_dtype)?;
        if let Some(folder) = &args.adapter {
            (0..count.min(ADAPTERS)).try_for_each(|number| engine.load_adapter(&number.to_string(), folder))?;
        }
        let mut prefilling = Vec::new();
        let (seconds, processor) = rounds(args.rounds, || {
            let [prefill, decoding] = decode_many(&mut engine, count, [prompt, steps], &sampling, || Ok(()))?;
            prefilling.push(prefill);
            Ok(decoding)
        })?;
        if args.generate.first() == Some(&tokens) {
            let seconds = median(prefilling.split_off(WARMING));
            rows.push(Row { name: format!("{count} x pp{prompt}"), tokens: count * prompt, seconds, processor: None, limit: None });
        }
        let name = format!("{count} x tg{tokens}");
        let limit = Some(bytes as f64 * steps as f64 / seconds / bandwidth);
        if let Some(profiler) = &mut profiler {
            decode_many(&mut engine, count, [prompt, steps], &sampling, || profiler.begin())?;
            profiler.end(&name, Known { tokens: Some(count * steps), unprofiled: Some(seconds) })?;
        }
        rows.push(Row { name, tokens: count * steps, seconds, processor, limit });
    }
    profile::finish(profiler, trace.as_deref())?;
    if args.json {
        print_line(serde_json::Value::Array(rows.iter().map(Row::json).collect()));
        return Ok(());
    }
    print_line(format!(
        "{} · {} {} · {name} · {:.2} GB of weights a token",
        properties.name,
        properties.compute_units,
        units(&properties),
        bytes as f64 / 1e9
    ));
    print_line(format!("bandwidth: {how} {:.1} GB/s", bandwidth / 1e9));
    print_line(format!("{:<11} {:>10} {:>13}", "test", "tokens/s", "of bandwidth"));
    for Row { name, tokens, seconds, limit, .. } in rows {
        let limit = limit.map_or("–".to_owned(), |l| format!("{:.0} %", l * 100.0));
        print_line(format!("{name:<11} {:>10.2} {limit:>13}", tokens as f64 / seconds));
    }
    Ok(())
}

/// What was measured of a prompt or of tokens generated.
struct Row {
    name: String,
    tokens: usize,
    seconds: f64,
    /// Of this process's threads, the least of the rounds.
    processor: Option<f64>,
    /// Of the memory's bandwidth.
    limit: Option<f64>,
}

impl Row {
    fn json(&self) -> serde_json::Value {
        let rate = |seconds: f64| self.tokens as f64 / seconds;
        json!({
            "test": self.name,
            "tokens_per_second": rate(self.seconds),
            "tokens_per_processor_second": self.processor.map(rate),
            "fraction_of_bandwidth": self.limit
        })
    }
}

/// Rounds before those that are measured: in the second one a GPU makes a graph of what it ran in the first.
const WARMING: usize = 2;

/// The median of some rounds, and the least processor time of one.
fn rounds(count: usize, mut body: impl FnMut() -> Result<f64>) -> Result<(f64, Option<f64>)> {
    for _ in 0..WARMING {
        body()?;
    }
    let (mut seconds, mut processor) = (Vec::new(), None);
    for _ in 0..count.max(1) {
        let before = processor_seconds();
        seconds.push(body()?);
        let taken = processor_seconds().zip(before).map(|(after, before)| after - before);
        processor = [processor, taken].into_iter().flatten().reduce(f64::min);
    }
    Ok((median(seconds), processor))
}

/// The prompt of a sequence: tokens that every vocabulary has, and other ones for each sequence.
fn prompt(vocabulary: usize, tokens: usize, sequence: usize) -> Vec<u32> {
    (0..tokens).map(|i| ((i * 31 + sequence * 7) % vocabulary.min(1000)) as u32).collect()
}

fn prefill(session: &mut Session, tokens: usize) -> Result<f64> {
    session.truncate(0);
    let prompt = prompt(session.model().config().vocab_size, tokens, 0);
    let start = Instant::now();
    session.feed(&prompt)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Each token read back, as in generation.
fn decode(session: &mut Session, tokens: usize, sampling: &Sampling) -> Result<f64> {
    session.truncate(0);
    let start = Instant::now();
    let mut decoding = if sampling.temperature == 0.0 { session.greedy(1, tokens)? } else { session.sampled(1, tokens, sampling)? };
    decoding.try_for_each(|token| token.map(drop))?;
    Ok(start.elapsed().as_secs_f64())
}

/// An engine with room for `count` texts that decode together for so many steps, after a prompt each.
fn engine(model: &Arc<Model>, count: usize, [prompt, steps]: [usize; 2], cache: CacheType) -> Result<Engine> {
    let most = model.config().max_context;
    let default = EngineOptions::new(most, cache);
    let step_tokens = default.step_tokens.max(count.saturating_mul(2));
    // The first text decodes while others begin, each of which takes as many steps at most.
    let ahead = count.saturating_mul(prompt.div_ceil(step_tokens - count) + 1);
    let context = prompt.saturating_add(ahead).saturating_add(steps + 1).min(most);
    let cache_tokens = count.saturating_mul(context.next_multiple_of(32));
    Engine::new(model.clone(), EngineOptions { context, cache_tokens, running: count, step_tokens, shares_prefixes: false, ..default })
}

/// Seconds until all of `count` texts have their prompts, and of so many steps after that, in which all decode. `begin` is called before the first of these.
fn decode_many(
    engine: &mut Engine,
    count: usize,
    [tokens, steps]: [usize; 2],
    sampling: &Sampling,
    begin: impl FnOnce() -> Result<()>,
) -> Result<[f64; 2]> {
    let adapters = engine.adapters().count();
    let submit = |number: usize| {
        let prompt = prompt(engine.model().config().vocab_size, tokens, number);
        let adapter = (adapters > 0).then(|| (number % adapters).to_string());
        engine.submit(Request { sampling: *sampling, adapter, ..Request::new(prompt, usize::MAX) })
    };
    let requests = (0..count).map(submit).collect::<Result<Vec<_>>>()?;
    let (mut prefill, mut seconds, mut measured, mut begin) = (0.0, 0.0, 0, Some(begin));
    let mut are_all_there = false;
    while measured < steps {
        if engine.is_idle() {
            let context = engine.options().context;
            return Err(Error::invalid_argument(format!(
                "{count} sequences never decode together for {steps} steps after prompts of {tokens} tokens in a context of {context}: ask for fewer or shorter ones"
            )));
        }
        if are_all_there && let Some(begin) = begin.take() {
            begin()?;
        }
        let before = engine.statistics();
        let start = Instant::now();
        if let Some(Output::Failed { error, .. }) = engine.step().into_iter().find(|output| matches!(output, Output::Failed { .. })) {
            return Err(error);
        }
        let (after, taken) = (engine.statistics(), start.elapsed().as_secs_f64());
        let [made, computed] = [after.generated_tokens - before.generated_tokens, after.computed_tokens - before.computed_tokens];
        are_all_there = made == count as u64;
        if are_all_there && computed == made {
            (seconds, measured) = (seconds + taken, measured + 1);
        } else {
            prefill += taken;
        }
    }
    for request in requests {
        engine.cancel(request);
    }
    Ok([prefill, seconds])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_have_tokens_that_small_vocabularies_have() {
        assert!(prompt(97, 300, 11).into_iter().all(|token| token < 97));
        assert_eq!(prompt(128_256, 40, 1)[..2], [7, 38]);
    }
}
