//! From an engine's tokens to the text of an answer.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use elinvar::Result;
use elinvar_llm::{Finish, Logprobs, StopMatcher, TextStream};

use crate::{
    api::ApiError,
    grammar::Grammar,
    models::Served,
    tools::{Call, Dialect, Parser},
    worker::{Event, Ticket},
};

/// A token of an answer with its log probability and those of the most likely.
#[derive(Clone, Debug)]
pub(crate) struct TokenLogprob {
    pub(crate) token: u32,
    pub(crate) logprobs: Logprobs,
    /// Where its text begins in the answer, in bytes.
    pub(crate) start: usize,
}

/// A part of an answer.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    pub(crate) index: usize,
    pub(crate) text: String,
    /// Of the tokens whose text begins in what was given out so far.
    pub(crate) logprobs: Vec<TokenLogprob>,
    /// Calls of tools that are complete.
    pub(crate) calls: Vec<Call>,
    pub(crate) finish: Option<Finish>,
    /// The stop string that ended it.
    pub(crate) stop: Option<String>,
}

impl Delta {
    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.logprobs.is_empty() && self.calls.is_empty() && self.finish.is_none()
    }
}

/// An answer in the making.
struct Choice {
    stream: TextStream,
    stops: StopMatcher,
    /// Bytes of text that came, and those of them that were given out.
    seen: usize,
    given: usize,
    pending: VecDeque<TokenLogprob>,
    tokens: usize,
    cached_tokens: usize,
    digest: Option<blake3::Hash>,
    parser: Option<Parser>,
    finish: Option<Finish>,
}

impl Choice {
    fn push(&mut self, token: u32, logprobs: Option<Logprobs>) -> Result<Delta> {
        self.tokens += 1;
        self.pending.extend(logprobs.map(|logprobs| TokenLogprob { token, logprobs, start: self.seen }));
        let piece = self.stream.push(token)?;
        Ok(self.pass(&piece))
    }

    fn pass(&mut self, piece: &str) -> Delta {
        self.seen += piece.len();
        let step = self.stops.push(piece);
        self.given += step.text.len();
        let finish = step.stop.as_ref().map(|_| Finish::StopString);
        self.finish = finish;
        Delta { logprobs: self.due(), text: step.text, finish, stop: step.stop, ..Delta::default() }
    }

    /// Log probabilities of what was given out.
    fn due(&mut self) -> Vec<TokenLogprob> {
        let count = self.pending.iter().take_while(|token| token.start < self.given).count();
        self.pending.drain(..count).collect()
    }

    /// Takes calls of tools out of the text.
    fn find_calls(&mut self, delta: &mut Delta) {
        let Some(parser) = &mut self.parser else { return };
        (delta.text, delta.calls) = parser.push(&delta.text);
        if delta.finish.is_some() {
            let (text, calls) = parser.end();
            delta.text.push_str(&text);
            delta.calls.extend(calls);
        }
    }

    /// Gives out what was held back.
    fn end(&mut self, finish: Finish) -> Result<Delta> {
        let rest = self.stream.rest()?;
        let mut delta = self.pass(&rest);
        if delta.finish.is_none() {
            let held = self.stops.rest();
            self.given += held.len();
            delta.text.push_str(&held);
            delta.logprobs.extend(self.pending.drain(..));
            self.finish = Some(finish);
            delta.finish = self.finish;
        }
        Ok(delta)
    }
}

/// What answers came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: usize,
    pub(crate) completion_tokens: usize,
    pub(crate) cached_tokens: usize,
}

/// Answers to prompts, several to each.
pub(crate) struct Answers {
    model: Arc<Served>,
    ticket: Ticket,
    choices: Vec<Choice>,
    /// Answers to one prompt.
    per_prompt: usize,
    prompt_tokens: usize,
    started: Instant,
    has_begun: bool,
}

/// What is asked of an engine: requests, of which `per_prompt` after each other have the same prompt.
pub(crate) struct Work {
    pub(crate) requests: Vec<elinvar_llm::Request>,
    /// What they are limited to, as their constraints have it.
    pub(crate) grammar: Option<Grammar>,
    pub(crate) per_prompt: usize,
    pub(crate) stop: Vec<String>,
    pub(crate) digest: bool,
    /// How the model calls tools, and their names.
    pub(crate) tools: Option<(Dialect, Vec<String>)>,
}

impl Work {
    pub(crate) fn has_logprobs(&self) -> bool {
        self.requests.iter().any(|request| request.logprobs.is_some())
    }
}

impl Answers {
    /// Hands the requests to the engine; returns when they are in its queue.
    pub(crate) async fn start(model: Arc<Served>, work: Work) -> Result<Self, ApiError> {
        let Work { requests, grammar, per_prompt, stop, digest, tools } = work;
        let prompt_tokens = requests.iter().step_by(per_prompt).map(|request| request.prompt.len()).sum();
        let choice = |request: &elinvar_llm::Request| {
            Ok(Choice {
                stream: model.tokenizer.stream(&request.prompt)?,
                stops: StopMatcher::new(&stop)?,
                seen: 0,
                given: 0,
                pending: VecDeque::new(),
                tokens: 0,
                cached_tokens: 0,
                digest: digest.then(|| blake3::hash(b"")),
                parser: tools.as_ref().map(|(dialect, names)| Parser::new(*dialect, names.clone())),
                finish: None,
            })
        };
        let choices = requests.iter().map(choice).collect::<Result<Vec<_>>>()?;
        let started = Instant::now();
        let mut ticket = model.worker.submit(requests, grammar);
        match ticket.next().await {
            Some((_, Event::Accepted)) => {}
            Some((_, Event::Busy)) => {
                return Err(ApiError::with_status(429, "rate_limit_error", "the queue is full: ask again later"));
            }
            Some((_, Event::Failed(error))) => return Err(error.into()),
            Some((_, Event::Token { .. } | Event::Finished { .. })) => {
                return Err(ApiError::with_status(500, "server_error", "an answer before its request"));
            }
            None => return Err(gone()),
        }
        model.metrics.prompt_tokens.add(prompt_tokens);
        Ok(Self { model, ticket, choices, per_prompt, prompt_tokens, started, has_begun: false })
    }

    /// The next part of an answer; nothing when all are complete.
    pub(crate) async fn next(&mut self) -> Result<Option<Delta>, ApiError> {
        while !self.is_complete() {
            let Some((index, event)) = self.ticket.next().await else { return Err(gone()) };
            let Some(choice) = self.choices.get_mut(index).filter(|choice| choice.finish.is_none()) else { continue };
            let delta = match event {
                Event::Token { token, logprobs, digest, cached_tokens } => {
                    if !std::mem::replace(&mut self.has_begun, true) {
                        self.model.metrics.first_token.add(self.started.elapsed());
                    }
                    choice.cached_tokens = cached_tokens;
                    choice.digest = digest.or(choice.digest);
                    choice.push(token, logprobs)
                }
                Event::Finished { finish, cached_tokens } => {
                    choice.cached_tokens = cached_tokens;
                    choice.end(finish)
                }
                Event::Failed(error) => {
                    self.model.metrics.failed.add(1);
                    return Err(error.into());
                }
                Event::Accepted | Event::Busy => continue,
            };
            let mut delta = Delta { index, ..delta? };
            choice.find_calls(&mut delta);
            if delta.finish.is_some() {
                self.model.metrics.finished.add(1);
                self.ticket.cancel(index);
            }
            if !delta.is_empty() {
                return Ok(Some(delta));
            }
        }
        Ok(None)
    }

    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.choices.len()
    }

    /// Whether all have ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.choices.iter().map(|choice| choice.tokens).sum(),
            cached_tokens: self.choices.iter().step_by(self.per_prompt).map(|choice| choice.cached_tokens).sum(),
        }
    }

    /// Of each answer, if it was asked for.
    pub(crate) fn digests(&self) -> Option<Vec<String>> {
        self.choices.iter().map(|choice| choice.digest.map(|digest| digest.to_hex().to_string())).collect()
    }
}

fn gone() -> ApiError {
    ApiError::with_status(500, "server_error", "the engine has stopped: restart the server")
}
