//! Guesses of the tokens that come next, which a step of the engine checks together: it keeps those that it would have drawn itself.

use std::{fmt, sync::Arc};

use elinvar::{Error, Result};

use super::{
    request::{EngineOptions, RequestId},
    runner::{GREEDY, Part, Runner, bucket, order},
    schedule::Schedule,
    sequence::Sequence,
};
use crate::model::Model;

/// Where guesses come from.
#[derive(Clone)]
pub enum DraftSource {
    /// The text itself: what followed when its last tokens were there before.
    Lookup,
    /// A smaller model of the same vocabulary.
    Model(Arc<Model>),
}

impl fmt::Debug for DraftSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lookup => "Lookup",
            Self::Model(_) => "Model",
        })
    }
}

/// Speculative decoding: guesses that steps check. An answer has the tokens that it has without; in strict precision its log probabilities have the bits.
#[derive(Clone, Debug)]
pub struct Drafts {
    /// Where they come from.
    pub source: DraftSource,
    /// The most guesses of a text at a time.
    pub most: usize,
}

/// How many guesses of a text are worth checking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    length: usize,
    /// Steps until the next guesses, after some that were wrong from the first.
    pause: u32,
    misses: u32,
}

impl Ahead {
    pub(super) fn new(options: &EngineOptions) -> Self {
        Self { length: options.drafts.as_ref().map_or(0, |drafts| drafts.most), pause: 0, misses: 0 }
    }

    /// For the next step.
    fn next(&mut self) -> usize {
        let is_due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        if is_due { self.length } else { 0 }
    }

    /// So many of the guesses were right.
    pub(super) fn learn(&mut self, right: usize, guesses: usize, most: usize) {
        self.misses = if right == 0 { (self.misses + 1).min(5) } else { 0 };
        self.pause = if right == 0 { 1 << self.misses } else { 0 };
        self.length = if right == guesses { (self.length * 2).min(most) } else { right + 1 };
    }
}

/// Makes guesses.
pub(super) enum Drafter {
    Lookup,
    /// With a cache whose pages are those of the model's.
    Model(Box<Runner>),
}

impl Drafter {
    /// # Errors
    /// A model that cannot guess for the other, or out of memory.
    pub(super) fn new(model: &Model, options: &EngineOptions, pages: usize) -> Result<Option<Self>> {
        let Some(Drafts { source, most }) = &options.drafts else { return Ok(None) };
        if *most == 0 || *most >= options.step_tokens {
            return Err(Error::invalid_argument(format!(
                "{most} drafts in steps of {} tokens: at least one, and fewer, expected",
                options.step_tokens
            )));
        }
        let DraftSource::Model(draft) = source else { return Ok(Some(Self::Lookup)) };
        let (own, other) = (draft.config(), model.config());
        if own.vocab_size != other.vocab_size {
            return Err(Error::invalid_argument(format!(
                "the draft model has a vocabulary of {} tokens, the model one of {}: give a draft model with the same",
                own.vocab_size, other.vocab_size
            )));
        }
        if own.max_context < options.context {
            return Err(Error::invalid_argument(format!(
                "the draft model has a context of at most {} tokens, {} are asked for: lower the context or give another draft model",
                own.max_context, options.context
            )));
        }
        Ok(Some(Self::Model(Box::new(Runner::new(draft.clone(), options, pages)?))))
    }

    /// Gives requests that have nothing but their last token to compute guesses of what follows, as many as the step, the context and free pages have room for.
    ///
    /// # Errors
    /// Those of a draft model.
    pub(super) fn guess(&mut self, schedule: &mut Schedule, options: &EngineOptions) -> Result<()> {
        let capacity = options.context.min(options.cache_tokens);
        let ready = schedule.running.iter_mut().filter(|sequence| sequence.remaining() == 1 && sequence.request.is_drawn_on_device());
        let mut wanted: Vec<(RequestId, usize)> = ready
            .map(|sequence| {
                let most = sequence.request.max_tokens.saturating_sub(sequence.generated()).min(capacity.saturating_sub(sequence.tokens.len()));
                (sequence.id, sequence.ahead.next().min(most.saturating_sub(1)))
            })
            .filter(|&(_, length)| length > 0)
            .collect();
        // Texts are filled up to the longest.
        let room = options.step_tokens.saturating_sub(schedule.running.len()) / bucket(wanted.len()).max(1);
        wanted.iter_mut().for_each(|(_, length)| *length = (*length).min((room * 2 / 3).saturating_sub(1)));
        wanted.retain(|&(id, length)| length > 0 && schedule.has_room_ahead(id, 1 + length));
        match self {
            Self::Lookup => {
                for (id, length) in wanted {
                    if let Some(sequence) = schedule.find(id) {
                        sequence.drafts = lookup(&sequence.tokens, length);
                    }
                }
                Ok(())
            }
            Self::Model(runner) => {
                let most = wanted.iter().map(|&(_, length)| length).max().unwrap_or(0);
                for turn in 0..most {
                    wanted.retain(|&(_, length)| turn < length);
                    draft(runner, schedule, &wanted, options.step_tokens / wanted.len().max(1))?;
                }
                Ok(())
            }
        }
    }

    /// Computes of a draft model what a step computed of prompts: of each request the last `tokens` that were computed.
    ///
    /// # Errors
    /// Those of a draft model.
    pub(super) fn follow(&mut self, schedule: &mut Schedule, prompts: &[(RequestId, usize)]) -> Result<()> {
        let Self::Model(runner) = self else { return Ok(()) };
        let mut followed = Vec::new();
        for &(id, tokens) in prompts {
            let Some(sequence) = schedule.find(id) else { continue };
            sequence.followed = sequence.computed;
            followed.push((id, sequence.computed - tokens));
        }
        let mut parts = Vec::new();
        for (id, start) in followed {
            let Some(sequence) = schedule.running.iter().find(|sequence| sequence.id == id) else { continue };
            let (tokens, pages) = (&sequence.tokens[start..sequence.computed], &sequence.pages);
            parts.push(Part { tokens, drafts: &[], position: start, pages, adapter: None, settings: GREEDY });
        }
        if parts.is_empty() { Ok(()) } else { runner.run(&parts).map(drop) }
    }
}

/// One more guess of a draft model for each of these requests, once it has computed their texts, of which it takes so many tokens at most.
fn draft(runner: &mut Runner, schedule: &mut Schedule, wanted: &[(RequestId, usize)], most: usize) -> Result<()> {
    let mut texts: Vec<(RequestId, Vec<u32>)> = Vec::new();
    for &(id, _) in wanted {
        if let Some(Sequence { tokens, drafts, followed, .. }) = schedule.find(id) {
            texts.push((id, tokens.iter().chain(&*drafts).skip(*followed).take(most.max(1)).copied().collect()));
        }
    }
    texts.sort_by_key(|(_, tokens)| order(tokens.len(), 0));
    let mut parts = Vec::new();
    for (id, tokens) in &texts {
        let Some(sequence) = schedule.running.iter().find(|sequence| sequence.id == *id) else { continue };
        let settings = sequence.request.sampling.settings()?;
        parts.push(Part { tokens, drafts: &[], position: sequence.followed, pages: &sequence.pages, adapter: None, settings });
    }
    let drawn = runner.run(&parts)?;
    for ((id, tokens), drawn) in texts.iter().zip(drawn) {
        let Some(sequence) = schedule.find(*id) else { continue };
        sequence.followed += tokens.len();
        if sequence.followed == sequence.tokens.len() + sequence.drafts.len() {
            sequence.drafts.extend(drawn);
        }
    }
    Ok(())
}

/// What followed the last tokens where they were before, the longest of four to two of them; repeated, where that is the end of the text.
fn lookup(tokens: &[u32], most: usize) -> Vec<u32> {
    let found = (2..=4).rev().filter(|&count| count < tokens.len()).find_map(|count| {
        let (before, last) = (&tokens[..tokens.len() - 1], &tokens[tokens.len() - count..]);
        before.windows(count).rposition(|window| window == last).map(|start| start + count)
    });
    found.map_or_else(Vec::new, |start| tokens[start..].iter().copied().cycle().take(most).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_before_is_found_latest_and_longest_first() {
        assert_eq!(lookup(&[1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 3), [4, 9, 2]);
        assert_eq!(lookup(&[7, 2, 3, 4, 9, 2, 3, 5, 8, 2, 3], 3), [5, 8, 2]);
        assert_eq!(lookup(&[5, 6, 5, 6], 5), [5, 6, 5, 6, 5]);
        assert_eq!((lookup(&[1, 2, 3], 4), lookup(&[1], 4), lookup(&[8, 8], 2)), (vec![], vec![], vec![]));
        assert_eq!(lookup(&[8, 8, 8], 2), [8, 8]);
    }

    #[test]
    fn guesses_that_were_wrong_are_made_less_often() {
        let mut ahead = Ahead { length: 4, pause: 0, misses: 0 };
        ahead.learn(0, 4, 8);
        assert_eq!([(); 4].map(|()| ahead.next()), [0, 0, 1, 1]);
        ahead.learn(0, 1, 8);
        assert_eq!([(); 5].map(|()| ahead.next()), [0, 0, 0, 0, 1]);
        ahead.learn(1, 1, 8);
        assert_eq!(ahead.next(), 2);
    }
}
