//! Text from tokens from logits: the loop that prefills a prompt and continues it, and conversations.

mod chat;
mod statistics;

use std::ops::ControlFlow;

use elinvar::{Error, Result};

use crate::{
    config::{Config, GenerationConfig},
    engine::{Engine, Output, Request},
    model::{Decoding, Session},
    sampling::{Sampler, Sampling},
    text::{StopMatcher, TextStream, Tokenizer},
};
pub use chat::Chat;
pub use statistics::Statistics;

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerationOptions {
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self { max_tokens: 256, stop: Vec::new(), sampling: Sampling::greedy() }
    }
}

/// What happens while generating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// So many of the prompt's tokens are in the cache.
    Prefilled {
        /// Tokens in the cache.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// Text that was generated.
    Text(&'a str),
}

/// Gets each [`Event`]; `Break` cancels.
pub type Listener<'a> = dyn FnMut(Event<'_>) -> ControlFlow<()> + 'a;

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model gave an end token.
    EndToken,
    /// A stop string came.
    StopString,
    /// As many tokens as were asked for.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The listener asked to stop.
    Cancelled,
}

/// A generated text.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The text, without stop string and special tokens.
    pub text: String,
    /// Its tokens, the end token left out.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// How long it took.
    pub statistics: Statistics,
}

/// The tokens that end a text: those that configuration, generation configuration and tokenizer name.
pub fn end_tokens(config: &Config, generation: &GenerationConfig, tokenizer: &Tokenizer) -> Vec<u32> {
    let mut all: Vec<u32> = config.eos.iter().chain(&generation.eos).copied().collect();
    all.extend(tokenizer.eos().and_then(|token| tokenizer.id(token)));
    all.sort_unstable();
    all.dedup();
    all
}

/// Continues prompts. What a prompt shares with the text before it stays in the cache and is not computed again.
pub struct Generator {
    texts: Texts,
    tokenizer: Tokenizer,
    end_tokens: Vec<u32>,
}

/// What computes the texts.
enum Texts {
    Session(Continued),
    /// One at a time.
    Engine(Box<Engine>),
}

/// A session, and the tokens in its cache.
struct Continued {
    session: Session,
    cached: Vec<u32>,
}

/// An answer in the making.
struct Answer<'a, 'b> {
    stream: TextStream,
    stops: StopMatcher,
    listener: &'a mut Listener<'b>,
    text: String,
}

impl Generator {
    /// On an empty session. `end_tokens` end every answer; see [`end_tokens`].
    ///
    /// # Errors
    /// The session has text already.
    pub fn new(session: Session, tokenizer: Tokenizer, end_tokens: Vec<u32>) -> Result<Self> {
        if !session.is_empty() {
            return Err(Error::invalid_argument("the session has text already: give the generator an empty one"));
        }
        Ok(Self { texts: Texts::Session(Continued { session, cached: Vec::new() }), tokenizer, end_tokens })
    }

    /// On an engine without requests, which may guess tokens ahead ([`Drafts`](crate::Drafts)).
    ///
    /// # Errors
    /// The engine has requests already.
    pub fn on_engine(engine: Engine, tokenizer: Tokenizer, end_tokens: Vec<u32>) -> Result<Self> {
        if !engine.is_idle() {
            return Err(Error::invalid_argument("the engine has requests already: give the generator one without"));
        }
        Ok(Self { texts: Texts::Engine(Box::new(engine)), tokenizer, end_tokens })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The most tokens of prompt and answer together.
    pub fn capacity(&self) -> usize {
        match &self.texts {
            Texts::Session(continued) => continued.session.capacity(),
            Texts::Engine(engine) => engine.options().context.min(engine.options().cache_tokens),
        }
    }

    /// Continues `prompt`, telling `listener` as it goes.
    ///
    /// # Errors
    /// A prompt that is empty, leaves no room in the context or has a token outside the vocabulary; settings outside their range; logits that are no
    /// numbers; a failed device.
    pub fn generate(&mut self, prompt: &[u32], options: &GenerationOptions, listener: &mut Listener<'_>) -> Result<Generated> {
        self.check(prompt)?;
        let stops = StopMatcher::new(&options.stop)?;
        let answer = Answer { stream: self.tokenizer.stream(prompt)?, stops, listener, text: String::new() };
        match &mut self.texts {
            Texts::Session(continued) => continued.generate(prompt, options, &self.end_tokens, answer),
            Texts::Engine(engine) => on_engine(engine, prompt, options, &self.end_tokens, answer),
        }
    }

    fn check(&self, prompt: &[u32]) -> Result<()> {
        if prompt.is_empty() {
            return Err(Error::invalid_argument("the prompt is empty: give a text, or a model whose tokenizer begins texts with a token"));
        }
        let (length, capacity) = (prompt.len(), self.capacity());
        if length >= capacity {
            return Err(Error::invalid_argument(format!(
                "the prompt of {length} tokens leaves no room in a context of {capacity}: shorten it or raise the context"
            )));
        }
        Ok(())
    }
}

impl Continued {
    fn generate(&mut self, prompt: &[u32], options: &GenerationOptions, end_tokens: &[u32], mut answer: Answer<'_, '_>) -> Result<Generated> {
        let mut sampler = Sampler::new(options.sampling)?;
        let mut tokens = Vec::new();
        let mut watch = statistics::Watch::start(prompt.len());
        let Some(logits) = self.prefill(prompt, &mut watch, answer.listener)? else {
            return Ok(Generated { text: answer.text, tokens, finish: Finish::Cancelled, statistics: watch.finish(0) });
        };
        let most = options.max_tokens.min(self.session.capacity() - prompt.len());
        let mut context = prompt.to_vec();
        if most == 0 {
            return Ok(Generated { text: answer.text, tokens, finish: Finish::MaxTokens, statistics: watch.finish(0) });
        }
        let mut token = sampler.sample(&logits, &context)?;
        let mut source = Source::new(&mut self.session, sampler, token, most - 1)?;
        let finish = loop {
            watch.token();
            if end_tokens.contains(&token) {
                break Finish::EndToken;
            }
            tokens.push(token);
            context.push(token);
            if let Some(finish) = answer.push(token)? {
                return Ok(Generated { text: answer.text, finish, statistics: watch.finish(tokens.len()), tokens });
            }
            if tokens.len() == most {
                break if most == options.max_tokens { Finish::MaxTokens } else { Finish::ContextFull };
            }
            let next = source.after(token, &context)?;
            self.cached.push(token);
            token = next;
        };
        answer.finish()?;
        Ok(Generated { text: answer.text, finish, statistics: watch.finish(tokens.len()), tokens })
    }

    /// The logits after the prompt, or `None` if cancelled. At least the last token is computed, even if all are cached.
    fn prefill(&mut self, prompt: &[u32], watch: &mut statistics::Watch, listener: &mut Listener<'_>) -> Result<Option<Vec<f32>>> {
        let common = self.cached.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(prompt.len() - 1);
        self.session.truncate(common);
        self.cached.truncate(common);
        watch.reused(common);
        let mut report = |appended| listener(Event::Prefilled { done: common + appended, total: prompt.len() });
        let logits = self.session.feed_with(&prompt[common..], &mut report)?;
        self.cached.extend_from_slice(&prompt[common..self.session.len()]);
        if logits.is_some() {
            watch.prefilled();
        }
        Ok(logits)
    }
}

/// An answer of an engine.
fn on_engine(engine: &mut Engine, prompt: &[u32], options: &GenerationOptions, end_tokens: &[u32], mut answer: Answer<'_, '_>) -> Result<Generated> {
    let (mut watch, before) = (statistics::Watch::start(prompt.len()), engine.statistics());
    let request = Request { sampling: options.sampling, end_tokens: end_tokens.to_vec(), ..Request::new(prompt.to_vec(), options.max_tokens) };
    let (id, mut tokens) = (engine.submit(request)?, Vec::new());
    let total = prompt.len();
    let mut go_on = || {
        loop {
            for output in engine.step() {
                match output {
                    Output::Token { token, cached_tokens, .. } => {
                        if tokens.is_empty() {
                            watch.reused(cached_tokens);
                            watch.prefilled();
                            if (answer.listener)(Event::Prefilled { done: total, total }).is_break() {
                                return Ok(Finish::Cancelled);
                            }
                        }
                        watch.token();
                        tokens.push(token);
                        if let Some(finish) = answer.push(token)? {
                            return Ok(finish);
                        }
                    }
                    Output::Finished { finish, .. } => return answer.finish().map(|()| finish),
                    Output::Failed { error, .. } => return Err(error),
                }
            }
            let done = (engine.statistics().computed_tokens - before.computed_tokens) as usize;
            if tokens.is_empty() && (answer.listener)(Event::Prefilled { done: done.min(total), total }).is_break() {
                return Ok(Finish::Cancelled);
            }
        }
    };
    let finish = go_on();
    engine.cancel(id);
    let finish = finish?;
    let after = engine.statistics();
    watch.guessed(after.drafted_tokens - before.drafted_tokens, after.accepted_tokens - before.accepted_tokens);
    Ok(Generated { text: answer.text, finish, statistics: watch.finish(tokens.len()), tokens })
}

/// Where an answer's tokens after the first come from.
enum Source<'a> {
    /// Logits that the host draws from.
    Host(&'a mut Session, Sampler),
    /// The device.
    Device(Decoding<'a>),
}

impl<'a> Source<'a> {
    /// After `first`, at most `most` tokens.
    fn new(session: &'a mut Session, sampler: Sampler, first: u32, most: usize) -> Result<Self> {
        let sampling = *sampler.sampling();
        Ok(match sampling {
            Sampling { repetition_penalty, .. } if repetition_penalty != 1.0 => Self::Host(session, sampler),
            Sampling { temperature: 0.0, .. } => Self::Device(session.greedy(first, most)?),
            _ => Self::Device(session.sampled(first, most, &sampling)?),
        })
    }

    /// The token after `last`, with which `context` ends.
    fn after(&mut self, last: u32, context: &[u32]) -> Result<u32> {
        match self {
            Self::Host(session, sampler) => sampler.sample(&session.feed(&[last])?, context),
            Self::Device(tokens) => tokens.next().unwrap_or_else(|| Err(Error::invalid_argument("the context is full"))),
        }
    }
}

impl Answer<'_, '_> {
    /// Gives out what a token completes.
    fn push(&mut self, token: u32) -> Result<Option<Finish>> {
        let piece = self.stream.push(token)?;
        self.pass(&piece)
    }

    fn pass(&mut self, piece: &str) -> Result<Option<Finish>> {
        let step = self.stops.push(piece);
        if self.give(&step.text).is_break() {
            return Ok(Some(Finish::Cancelled));
        }
        Ok(step.stop.map(|_| Finish::StopString))
    }

    fn give(&mut self, text: &str) -> ControlFlow<()> {
        self.text.push_str(text);
        if text.is_empty() { ControlFlow::Continue(()) } else { (self.listener)(Event::Text(text)) }
    }

    /// Gives out what was held back.
    fn finish(&mut self) -> Result<()> {
        let rest = self.stream.rest()?;
        if self.pass(&rest)?.is_none() {
            let held = self.stops.rest();
            // Nothing is left to cancel.
            let _ = self.give(&held);
        }
        Ok(())
    }
}
