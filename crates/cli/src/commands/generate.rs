use std::{
    fs,
    io::{self, Read, Write, stdin, stdout},
    ops::ControlFlow,
    path::PathBuf,
    sync::Arc,
};

use clap::Args;
use elinvar::{Error, ErrorKind, Executor, Result};
use elinvar_llm::{
    Config, Engine, EngineOptions, Event, Finish, GenerationConfig, GenerationOptions, Generator, ModelFiles, Statistics, Tokenizer, Weights,
    end_tokens,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    drafts::DraftArgs,
    model::{ModelArgs, Room},
    output::print_line,
    plan::{Footprint, PAGE},
    profile::{self, Known, ProfileArgs, Profiler},
    sampling::SamplingArgs,
    world,
};

/// Arguments of `elinvar generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// Text to continue; '-' reads standard input; without it the model begins by itself
    prompt: Option<String>,
    /// Continue the text in this file
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompt_file: Option<PathBuf>,
    /// Generate at most this many tokens
    #[arg(short = 'n', long, default_value_t = 200)]
    max_tokens: usize,
    /// Stop before this text; repeat for more
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Print no statistics
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    profile: ProfileArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    drafts: DraftArgs,
    #[command(flatten)]
    model: ModelArgs,
}

pub(crate) fn run(args: &GenerateArgs) -> Result<()> {
    let trace = args.profile.open()?;
    let files = args.model.files()?;
    let tokenizer = Tokenizer::open(&files)?;
    let recommended = GenerationConfig::read(&files)?;
    let prompt = tokenizer.encode(&text(args)?.unwrap_or_default())?;
    let mut profiler = None;
    let mut generator = generator(args, &files, tokenizer, &recommended, prompt.len(), |executor| {
        profiler = args.profile.profiler(executor)?;
        Ok(())
    })?;
    let options = GenerationOptions { max_tokens: args.max_tokens, stop: args.stop.clone(), sampling: args.sampling.settings(&recommended) };
    let progress = progress_bar(prompt.len());
    let mut prefilled = profiler.as_mut().map_or(Ok(()), Profiler::begin);
    let answer = generator.generate(&prompt, &options, &mut |event| {
        if let (Event::Prefilled { done, total }, Some(profiler)) = (event, &mut profiler)
            && done == total
        {
            prefilled = std::mem::replace(&mut prefilled, Ok(())).and_then(|()| {
                profiler.end("prefill", Known { tokens: Some(total), unprofiled: None })?;
                profiler.begin()
            });
        }
        if prefilled.is_err() { ControlFlow::Break(()) } else { show(event, &progress) }
    })?;
    progress.finish_and_clear();
    print_line("");
    prefilled?;
    if let Some(profiler) = &mut profiler {
        profiler.end("decode", Known { tokens: Some(answer.statistics.generated_tokens.saturating_sub(1)), unprofiled: None })?;
    }
    profile::finish(profiler, trace.as_deref())?;
    if !args.quiet {
        eprintln!("{}", summary(&answer.statistics, answer.finish));
    }
    Ok(())
}

/// On a session, or, where tokens are guessed, on an engine.
fn generator(
    args: &GenerateArgs,
    files: &ModelFiles,
    tokenizer: Tokenizer,
    recommended: &GenerationConfig,
    prompt: usize,
    opened: impl FnOnce(&Executor) -> Result<()>,
) -> Result<Generator> {
    let needed = prompt.saturating_add(args.max_tokens);
    if !args.drafts.is_given() {
        let session = args.model.load_on(files, needed, opened)?;
        let ends = end_tokens(session.model().config(), recommended, &tokenizer);
        return Generator::new(session, tokenizer, ends);
    }
    let draft = args.drafts.open()?;
    let options = |Room { context, chunk, .. }| EngineOptions {
        cache_tokens: context.next_multiple_of(PAGE),
        running: 1,
        step_tokens: chunk,
        ..EngineOptions::new(context, args.model.cache_dtype)
    };
    let estimate = |config: &Config, weights: &Weights, room: Room| {
        let options = options(room);
        let footprint = Footprint::new(config, weights, &options, room.ranks);
        draft.as_ref().map_or(footprint, |draft| footprint.with(draft.footprint(&options, room.ranks))).estimate
    };
    let (model, room) = args.model.load_beside(files, needed, estimate, opened)?;
    let draft = draft.map(|draft| draft.load(model.executor())).transpose()?;
    let ends = end_tokens(model.config(), recommended, &tokenizer);
    let options = EngineOptions { drafts: args.drafts.drafts(draft.as_ref()), ..options(room) };
    Generator::on_engine(Engine::new(Arc::new(model), options)?, tokenizer, ends)
}

/// The prompt, if one was given.
fn text(args: &GenerateArgs) -> Result<Option<String>> {
    let reject = |what: String| move |e: io::Error| Error::with_source(ErrorKind::Io, what, e);
    let text = match (&args.prompt, &args.prompt_file) {
        (None, None) => return Ok(None),
        (Some(dash), _) if dash == "-" => world::shared(|| {
            let mut text = String::new();
            stdin().read_to_string(&mut text).map_err(reject("cannot read the prompt from standard input".into()))?;
            Ok(text)
        })?,
        (Some(prompt), _) => prompt.clone(),
        (None, Some(file)) => fs::read_to_string(file).map_err(reject(format!("cannot read the prompt from {}", file.display())))?,
    };
    if text.is_empty() {
        return Err(Error::invalid_argument("the prompt is empty: give a text, or leave it out and the model begins by itself"));
    }
    Ok(Some(text))
}

/// Shown on standard error while a long prompt is read.
pub(super) fn progress_bar(tokens: usize) -> ProgressBar {
    const LONG: usize = 512;
    if tokens < LONG {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("reading the prompt {bar:32} {pos}/{len} tokens").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(tokens as u64).with_style(style)
}

/// Prints text as it comes; a closed pipe ends the generation.
pub(super) fn show(event: Event<'_>, progress: &ProgressBar) -> ControlFlow<()> {
    match event {
        Event::Prefilled { done, .. } => {
            progress.set_position(done as u64);
            ControlFlow::Continue(())
        }
        Event::Text(text) => {
            progress.finish_and_clear();
            let mut out = stdout().lock();
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }
}

/// One line about an answer.
pub(super) fn summary(s: &Statistics, finish: Finish) -> String {
    let ended = match finish {
        Finish::EndToken => "end of text",
        Finish::StopString => "stop text",
        Finish::MaxTokens => "token limit",
        Finish::ContextFull => "context full: raise --context if the model's allows more",
        Finish::Cancelled => "cancelled",
    };
    let (prompt, generated, first) = (s.prompt_tokens - s.reused_tokens, s.generated_tokens, s.first_token.as_secs_f64() * 1e3);
    let (prefill, decode) = (s.prefill_rate(), s.decode_rate());
    let guesses = if s.drafted_tokens > 0 { format!(" · {} of {} guesses right", s.accepted_tokens, s.drafted_tokens) } else { String::new() };
    format!("prompt {prompt} tokens at {prefill:.0}/s · generated {generated} at {decode:.1}/s · first after {first:.0} ms{guesses} · {ended}")
}
