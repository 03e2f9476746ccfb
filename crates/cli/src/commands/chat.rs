use std::{
    fs,
    io::{BufRead, IsTerminal, Write, stderr, stdin},
    path::PathBuf,
};

use clap::Args;
use elinvar::{Error, ErrorKind, Result};
use elinvar_llm::{Chat, ChatOptions, GenerationConfig, GenerationOptions, Generator, Message, Tokenizer, end_tokens};
use indicatif::ProgressBar;

use super::generate::{show, summary};
use crate::{model::ModelArgs, output::print_line, sampling::SamplingArgs, world};

/// Arguments of `elinvar chat`.
#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// Start the conversation with this system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Use this chat template (Jinja) instead of the model's
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Generate at most this many tokens per answer
    #[arg(short = 'n', long, default_value_t = 512)]
    max_tokens: usize,
    /// Print no statistics
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    model: ModelArgs,
}

/// Context of a conversation unless it is given.
const CONTEXT: usize = 4096;

pub(crate) fn run(args: &ChatArgs) -> Result<()> {
    let files = args.model.files()?;
    let tokenizer = Tokenizer::open(&files)?;
    let recommended = GenerationConfig::read(&files)?;
    let read = |file: &PathBuf| fs::read_to_string(file).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", file.display()), e));
    let template = args.template.as_ref().map(read).transpose()?;
    let session = args.model.load(&files, CONTEXT)?;
    let ends = end_tokens(session.model().config(), &recommended, &tokenizer);
    let generator = Generator::new(session, tokenizer, ends)?;
    let mut chat = Chat::new(generator, template.as_deref(), ChatOptions::default())?;
    let options = GenerationOptions { max_tokens: args.max_tokens, stop: Vec::new(), sampling: args.sampling.settings(&recommended) };
    let begin = |chat: &mut Chat| {
        chat.clear();
        if let Some(system) = &args.system {
            chat.push(Message::new("system", system));
        }
    };
    begin(&mut chat);
    let talking = stdin().is_terminal();
    if talking {
        eprintln!("Type a message; /clear starts again, /exit or Ctrl-D ends.");
    }
    loop {
        if talking {
            eprint!("> ");
            // The prompt is a courtesy: nothing is lost if it cannot be shown.
            let _ = stderr().flush();
        }
        let line = world::shared(|| {
            let mut line = String::new();
            stdin().lock().read_line(&mut line).map_err(|e| Error::with_source(ErrorKind::Io, "cannot read standard input", e))?;
            Ok(line)
        })?;
        match line.trim() {
            _ if line.is_empty() => return Ok(()),
            "/exit" => return Ok(()),
            "/clear" => begin(&mut chat),
            "" => {}
            message => {
                let answer = chat.answer(message, &options, &mut |event| show(event, &ProgressBar::hidden()))?;
                print_line("");
                if !args.quiet {
                    eprintln!("{}", summary(&answer.statistics, answer.finish));
                }
            }
        }
    }
}
