//! Many texts at a time on one model: requests share steps, pages of the cache, and the beginnings of their prompts.
//!
//! In strict precision a request's tokens and log probabilities have the bits that it has alone, whatever else is computed, however its prompt is cut, and
//! whether its beginning came from the cache: every operator's order is that of one text, and a token's draw depends on seed and position alone.

mod adapters;
mod choice;
mod constraint;
mod drafts;
mod logprobs;
mod pages;
mod request;
mod runner;
mod schedule;
mod sequence;
#[cfg(test)]
mod tests;

use std::{path::Path, sync::Arc};

use elinvar::{Error, Result};

use crate::{generation::Finish, model::Model};
use adapters::EngineAdapters;
pub use constraint::{Constraint, TokenMask};
use drafts::{Ahead, Drafter};
pub use drafts::{DraftSource, Drafts};
pub use logprobs::Logprobs;
use pages::PAGE;
pub use request::{EngineOptions, EngineStatistics, Output, Request, RequestId};
use runner::{Part, Run, Runner};
use schedule::{Schedule, Share};
use sequence::Sequence;

/// Continues many prompts at a time, a step of all of them after the other. It belongs to one thread; whoever serves others calls [`Engine::step`] there as
/// long as it is not idle, and hands out what that brings.
///
/// ```no_run
/// # use std::{path::Path, sync::Arc};
/// # use elinvar::{DType, Executor};
/// # use elinvar_llm::{Config, Engine, EngineOptions, Model, ModelFiles, Output, Request, Tokenizer, Weights};
/// # let files = ModelFiles::open("models/shakespeare")?;
/// # let model = Arc::new(Model::new(&Executor::new_auto()?, Config::read(&files)?, &Weights::open(&files)?)?);
/// # let tokenizer = Tokenizer::open(&files)?;
/// let mut engine = Engine::new(model, EngineOptions::new(512, DType::F32))?;
/// for prompt in ["ROMEO:", "JULIET:"] {
///     engine.submit(Request::new(tokenizer.encode(prompt)?, 40))?;
/// }
/// while !engine.is_idle() {
///     for output in engine.step() {
///         if let Output::Token { request, token, .. } = output {
///             println!("{request:?}: {token}");
///         }
///     }
/// }
/// # Ok::<(), elinvar::Error>(())
/// ```
pub struct Engine {
    runner: Runner,
    options: EngineOptions,
    schedule: Schedule,
    adapters: EngineAdapters,
    drafter: Option<Drafter>,
    /// The next step, if it was submitted before the tokens were known that it computes.
    coming: Option<(Vec<Share>, Run)>,
    submitted: u64,
    computed: u64,
    cached: u64,
    generated: u64,
    drafted: u64,
    accepted: u64,
    draft_failures: u64,
}

/// A token that a step drew, and its logits if the host looks at them.
struct Drawn {
    token: u32,
    logits: Option<Vec<f32>>,
}

impl Engine {
    /// An engine without requests.
    ///
    /// # Errors
    /// Options that contradict each other or the model, or out of memory.
    pub fn new(model: Arc<Model>, options: EngineOptions) -> Result<Self> {
        let (most, pages) = (model.config().max_context, options.cache_tokens / PAGE);
        if options.context == 0 || options.context > most {
            return Err(Error::invalid_argument(format!("a context of {} tokens: the model has 1 to {most}", options.context)));
        }
        if pages == 0 {
            return Err(Error::invalid_argument(format!("a cache of {} tokens: at least a page of {PAGE} expected", options.cache_tokens)));
        }
        if options.running == 0 || options.running > options.step_tokens {
            return Err(Error::invalid_argument(format!(
                "{} requests at a time, in steps of {} tokens: at least one, and as many tokens, expected",
                options.running, options.step_tokens
            )));
        }
        let options = EngineOptions { cache_tokens: pages * PAGE, ..options };
        let drafter = Drafter::new(&model, &options, pages)?;
        let (runner, adapters) = (Runner::new(model.clone(), &options, pages)?, EngineAdapters::new(model));
        let schedule = Schedule::new(pages);
        Ok(Self {
            runner,
            options,
            schedule,
            adapters,
            drafter,
            coming: None,
            submitted: 0,
            computed: 0,
            cached: 0,
            generated: 0,
            drafted: 0,
            accepted: 0,
            draft_failures: 0,
        })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        self.runner.model()
    }

    /// What it may use; the cache in whole pages.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Compiles the kernels that requests without adapters and guesses need, side by side, so that none of these waits for a compiler.
    ///
    /// # Errors
    /// A kernel does not compile, or out of memory.
    pub fn compile(&mut self) -> Result<()> {
        self.abandon();
        self.runner.compile(&self.options)
    }

    /// Loads an adapter for requests to name, a folder as PEFT and `lora train` write it: LoRA of linear layers. In strict precision a request with it has the
    /// bits of a [`Session`](crate::Session) with [`Model::with_adapter`].
    ///
    /// # Errors
    /// A name that is taken; a folder that is missing, damaged, or of another model; an adapter that rescales rows (DoRA) or replaces matrices; out of
    /// memory. Nothing has changed then.
    pub fn load_adapter(&mut self, name: &str, folder: impl AsRef<Path>) -> Result<()> {
        self.adapters.load(name, folder.as_ref(), &mut self.schedule, &mut self.runner)
    }

    /// Unloads an adapter. Requests that have it go on with it.
    ///
    /// # Errors
    /// It is not loaded; the message lists those that are.
    pub fn unload_adapter(&mut self, name: &str) -> Result<()> {
        self.adapters.unload(name, &self.schedule, &mut self.runner)
    }

    /// The names of the adapters that are loaded, sorted.
    pub fn adapters(&self) -> impl Iterator<Item = &str> {
        self.adapters.names()
    }

    /// Takes a request in, to be computed by the steps that follow.
    ///
    /// # Errors
    /// A prompt that is empty, leaves no room in the context or the cache, or has a token outside the vocabulary; settings outside their range; an adapter that is not loaded; as
    /// many requests wait as may.
    pub fn submit(&mut self, request: Request) -> Result<RequestId> {
        request.check(&self.options, self.model().config().vocab_size)?;
        let adapter = request.adapter.as_deref().map(|name| self.adapters.find(name)).transpose()?;
        let (waiting, most) = (self.schedule.waiting.len(), self.options.waiting);
        if waiting >= most {
            return Err(Error::invalid_argument(format!("{waiting} requests wait, and {most} may: ask again later")));
        }
        self.submitted += 1;
        let id = RequestId(self.submitted);
        self.schedule.waiting.push_back(Sequence::new(id, request, adapter, Ahead::new(&self.options)));
        Ok(id)
    }

    /// Ends a request; its pages are free at once, and no step brings anything of it any more. Whether there was such a request.
    pub fn cancel(&mut self, request: RequestId) -> bool {
        self.schedule.remove(request).is_some()
    }

    /// Whether there is nothing to compute.
    pub fn is_idle(&self) -> bool {
        self.schedule.running.is_empty() && self.schedule.waiting.is_empty()
    }

    /// What it has and does.
    pub fn statistics(&self) -> EngineStatistics {
        let Schedule { pool, waiting, running, preemptions, steps } = &self.schedule;
        EngineStatistics {
            pages: pool.total(),
            free_pages: pool.available(),
            cached_pages: pool.idle(),
            running: running.len(),
            waiting: waiting.len(),
            steps: *steps,
            computed_tokens: self.computed,
            cached_tokens: self.cached,
            generated_tokens: self.generated,
            drafted_tokens: self.drafted,
            accepted_tokens: self.accepted,
            draft_failures: self.draft_failures,
            preemptions: *preemptions,
        }
    }

    /// Computes a step: a token of each request that has its prompt in the cache, with guesses of more, and parts of the prompts of others. A request whose
    /// logits are no numbers fails alone.
    ///
    /// Where the device computes beside the host, the step after may be under way when this one's tokens are handed out: if all requests go on and none is to begin.
    pub fn step(&mut self) -> Vec<Output> {
        if self.coming.as_ref().is_some_and(|(shares, _)| !shares.iter().any(|share| self.is_running(share))) {
            self.abandon();
        }
        let (shares, run) = match self.coming.take() {
            Some((shares, run)) => {
                self.schedule.steps += 1;
                (shares, Ok(run))
            }
            None => {
                let shares = self.plan();
                if shares.is_empty() {
                    return Vec::new();
                }
                let run = self.begin(&shares);
                (shares, run)
            }
        };
        let mut outputs = Vec::new();
        match run.and_then(|run| self.finish(&shares, run)) {
            Ok(drawn) => self.proceed(&shares, drawn, &mut outputs),
            Err(error) => {
                self.abandon();
                let is_one = shares.iter().map(|share| 1 + share.drafts).sum::<usize>() == 1;
                let running: Vec<_> = shares.into_iter().filter(|share| self.is_running(share)).collect();
                for share in running.into_iter().map(|share| Share { drafts: 0, ..share }) {
                    // What was computed of a text is computed again to the same end.
                    let again = if is_one { Err(error.clone()) } else { self.begin(&[share]).and_then(|run| self.finish(&[share], run)) };
                    match again {
                        Ok(drawn) => self.proceed(&[share], drawn, &mut outputs),
                        Err(error) => self.fail(share, error, &mut outputs),
                    }
                }
            }
        }
        outputs
    }

    fn is_running(&self, share: &Share) -> bool {
        self.schedule.running.iter().any(|sequence| sequence.id == share.id)
    }

    /// Waits for the next step, if it was submitted, and forgets it, and what went wrong in it.
    fn abandon(&mut self) {
        if let Some((_, mut run)) = self.coming.take() {
            drop(self.runner.wait(&mut run));
        }
    }

    /// What the next step computes.
    fn plan(&mut self) -> Vec<Share> {
        self.schedule.admit(&self.options);
        if let Some(drafter) = &mut self.drafter
            && drafter.guess(&mut self.schedule, &self.options).is_err()
        {
            // Nothing depends on guesses.
            self.draft_failures += 1;
            self.schedule.running.iter_mut().for_each(|sequence| sequence.drafts.clear());
        }
        self.schedule.plan(&self.options)
    }

    /// Submits a step of these shares.
    fn begin(&mut self, shares: &[Share]) -> Result<Run> {
        let mut parts = Vec::new();
        for share in shares {
            let sequence = self.schedule.running.iter().find(|sequence| sequence.id == share.id);
            let sequence = sequence.ok_or_else(|| Error::internal("a share of no request"))?;
            let Sequence { tokens, computed, pages, adapter, drafts, .. } = sequence;
            let (settings, adapter) = (sequence.settings()?, adapter.map(|adapter| adapter.number));
            let (tokens, drafts) = (&tokens[*computed..][..share.tokens], &drafts[..share.drafts]);
            parts.push(Part { tokens, drafts, position: *computed, pages, adapter, settings });
        }
        self.runner.submit(&parts)
    }

    /// Submits the step after `run`, which is that of `shares`, if only the tokens that it computes are still unknown.
    fn follow(&mut self, shares: &[Share], run: &mut Run) -> Option<(Vec<Share>, Run)> {
        let Self { runner, schedule, options, .. } = self;
        let capacity = options.context.min(options.cache_tokens);
        let goes_on = |sequence: &Sequence| {
            let is_last = sequence.generated() + 1 >= sequence.request.max_tokens || sequence.tokens.len() + 1 >= capacity;
            sequence.remaining() == 1 && !is_last && sequence.adapter.is_none() && !sequence.request.is_looked_at()
        };
        let admits = !schedule.waiting.is_empty() && schedule.running.len() < options.running;
        let all = schedule.running.len() == shares.len() && !admits && schedule.running.iter().all(goes_on);
        if self.drafter.is_some() || !all || !shares.iter().all(|share| schedule.has_room_ahead(share.id, 2)) {
            return None;
        }
        let part = |share: &Share| {
            let sequence = schedule.running.iter().find(|sequence| sequence.id == share.id)?;
            let settings = sequence.settings().ok()?;
            Some(Part { tokens: &[0], drafts: &[], position: sequence.computed + 1, pages: &sequence.pages, adapter: None, settings })
        };
        let parts = shares.iter().map(part).collect::<Option<Vec<_>>>()?;
        // Whatever fails here fails again when the step is waited for, or the next one is submitted.
        let next = runner.follow(run, &parts).ok().flatten()?;
        Some((shares.to_vec(), next))
    }

    /// What comes after each share, where it is the end of its text: a token, and another for each guess that was right. Nothing of requests that are no more.
    fn finish(&mut self, shares: &[Share], mut run: Run) -> Result<Vec<Vec<Drawn>>> {
        self.coming = self.follow(shares, &mut run);
        let sequences: Vec<_> = shares.iter().map(|share| self.schedule.running.iter().find(|sequence| sequence.id == share.id)).collect();
        // A mask can take as long as a step does: it is found while the device computes.
        let ends = sequences.iter().zip(shares).filter_map(|(sequence, share)| sequence.filter(|sequence| share.tokens == sequence.remaining()));
        let vocabulary = self.runner.model().config().vocab_size;
        ends.filter_map(|sequence| sequence.request.constraint.as_ref()).for_each(|constraint| constraint.find(vocabulary));
        let tokens = self.runner.wait(&mut run)?;
        self.computed += shares.iter().map(|share| (share.tokens + share.drafts) as u64).sum::<u64>();
        let drawn = |(index, (sequence, tokens)): (usize, (&Option<&Sequence>, Vec<u32>))| {
            let Some(sequence) = sequence.filter(|sequence| shares[index].tokens == sequence.remaining()) else { return Ok(Vec::new()) };
            let Sequence { request, tokens: text, drafts, .. } = sequence;
            let right = drafts[..shares[index].drafts].iter().zip(&tokens).take_while(|(draft, token)| draft == token).count();
            let drawn = |(place, token): (usize, u32)| {
                let logits = request.is_looked_at().then(|| self.runner.logits(&run, index, place)).transpose()?;
                let token = match &logits {
                    Some(logits) if !request.is_drawn_on_device() => choice::token(request, logits, text, request.prompt.len())?,
                    _ => token,
                };
                Ok(Drawn { token, logits })
            };
            tokens.into_iter().take(1 + right).enumerate().map(drawn).collect()
        };
        sequences.iter().zip(tokens).enumerate().map(drawn).collect()
    }

    /// Goes on with what was drawn.
    fn proceed(&mut self, shares: &[Share], drawn: Vec<Vec<Drawn>>, outputs: &mut Vec<Output>) {
        let capacity = self.options.context.min(self.options.cache_tokens);
        let mut prompts = Vec::new();
        'shares: for (share, drawn) in shares.iter().zip(drawn) {
            let Some(sequence) = self.schedule.running.iter_mut().find(|sequence| sequence.id == share.id) else { continue };
            sequence.computed += share.tokens;
            if share.tokens > 1 {
                prompts.push((share.id, share.tokens));
            }
            if let (true, Some(drafts)) = (share.drafts > 0, &self.options.drafts) {
                let right = drawn.len().saturating_sub(1);
                sequence.ahead.learn(right, share.drafts, drafts.most);
                (self.drafted, self.accepted) = (self.drafted + share.drafts as u64, self.accepted + right as u64);
            }
            sequence.drafts.clear();
            let mut finish = None;
            for (index, Drawn { token, logits }) in drawn.into_iter().enumerate() {
                // The token before was a guess, and computed in this step.
                sequence.computed += usize::from(index > 0);
                if sequence.request.max_tokens == 0 {
                    finish = Some(Finish::MaxTokens);
                } else if sequence.request.end_tokens.contains(&token) {
                    finish = Some(Finish::EndToken);
                } else {
                    if let Some(error) = sequence.request.constraint.as_ref().and_then(|constraint| constraint.accept(token).err()) {
                        self.fail(*share, error, outputs);
                        continue 'shares;
                    }
                    let logprobs = logits.as_ref().zip(sequence.request.logprobs).map(|(logits, count)| Logprobs::of(logits, token, count));
                    let logits = logits.filter(|_| sequence.request.reports_logits);
                    outputs.push(Output::Token { request: share.id, token, cached_tokens: sequence.cached, logprobs, logits });
                    sequence.tokens.push(token);
                    self.generated += 1;
                    let is_last = sequence.generated() >= sequence.request.max_tokens;
                    finish = if is_last { Some(Finish::MaxTokens) } else { (sequence.tokens.len() >= capacity).then_some(Finish::ContextFull) };
                }
                if finish.is_some() {
                    break;
                }
            }
            sequence.followed = sequence.followed.min(sequence.computed);
            if self.options.shares_prefixes {
                sequence.publish(&mut self.schedule.pool);
            }
            if let Some(finish) = finish {
                let cached_tokens = sequence.cached;
                self.cached += cached_tokens as u64;
                outputs.push(Output::Finished { request: share.id, finish, cached_tokens });
                self.schedule.remove(share.id);
            }
        }
        if let Some(drafter) = &mut self.drafter {
            // What a draft model lacks makes its guesses worse, and nothing else.
            self.draft_failures += u64::from(drafter.follow(&mut self.schedule, &prompts).is_err());
        }
    }

    fn fail(&mut self, share: Share, error: Error, outputs: &mut Vec<Output>) {
        self.schedule.remove(share.id);
        outputs.push(Output::Failed { request: share.id, error });
    }
}
