//! What requests for texts have in common.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use elinvar_llm::{Constraint, Request, Sampling};
use serde_json::Value;

use super::{ApiError, fields::Fields};
use crate::{answer::Work, grammar::Grammar, models::Served, tools::Dialect};

/// The most choices of one prompt, and the most requests for the engine in one of a client.
pub(super) const MAX_CHOICES: usize = 128;
pub(super) const MAX_STOPS: usize = 16;

/// How texts are to be continued.
pub(super) struct Settings {
    pub(super) choices: usize,
    pub(super) stop: Vec<String>,
    /// `None` without a stream; whether the usage comes in the end.
    pub(super) stream: Option<bool>,
    pub(super) digest: bool,
    pub(super) seed: u64,
    grammar: Option<(&'static str, Grammar)>,
    /// With everything but the prompt.
    request: Request,
}

impl Settings {
    /// `max_tokens` has the names of the limit, and its default.
    pub(super) fn read(fields: &Fields<'_>, model: &Served, names: &[&str], default: usize) -> Result<Self, ApiError> {
        let stream = if fields.boolean("stream")?.unwrap_or(false) {
            let options = fields.nested("stream_options")?;
            Some(options.map_or(Ok(None), |options| options.boolean("include_usage"))?.unwrap_or(false))
        } else {
            None
        };
        let seed = match fields.get("seed") {
            None => random(),
            Some(value) => value
                .as_u64()
                .or_else(|| value.as_i64().map(i64::cast_unsigned))
                .ok_or_else(|| fields.reject("seed", "an integer of 64 bits expected"))?,
        };
        let base = Sampling::recommended(&model.recommended, seed);
        let top_k = fields.integer("top_k", -1..=i64::from(u32::MAX))?.map(|count| usize::try_from(count).unwrap_or(0));
        let sampling = Sampling {
            temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(base.temperature),
            top_k: top_k.unwrap_or(base.top_k),
            top_p: fields.number("top_p", 0.0..=1.0)?.unwrap_or(base.top_p),
            min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(base.min_p),
            repetition_penalty: fields.number("repetition_penalty", 0.01..=100.0)?.unwrap_or(base.repetition_penalty),
            seed,
        };
        let mut max_tokens = default;
        for name in names {
            max_tokens = fields.count(name)?.unwrap_or(max_tokens);
        }
        let digest = fields.boolean("digest")?.unwrap_or(false);
        let ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(false);
        let request = Request {
            end_tokens: if ignore_eos { Vec::new() } else { model.end_tokens.clone() },
            sampling,
            presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
            frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0),
            bias: bias(fields, model.vocabulary)?,
            reports_logits: digest,
            ..Request::new(Vec::new(), max_tokens)
        };
        let grammar = super::format::read(fields)?.map(|grammar| (super::format::NAME, grammar));
        let choices = fields.integer("n", 1..=MAX_CHOICES as i64)?.map_or(1, |n| n as usize);
        Ok(Self { choices, stop: stops(fields, "stop")?, stream, digest, seed, grammar, request })
    }

    /// Reports log probabilities.
    pub(super) fn set_logprobs(&mut self, count: Option<usize>) {
        self.request.logprobs = count;
    }

    /// Limits answers to a grammar that `param` has.
    pub(super) fn set_grammar(&mut self, param: &'static str, grammar: Grammar) {
        self.grammar = Some((param, grammar));
    }

    /// What the engine is asked: of each prompt as many answers as there are choices, whose seeds are that of the request, and so much more.
    pub(super) fn work(self, model: &Served, prompts: &[Vec<u32>], tools: Option<(Dialect, Vec<String>)>) -> Result<Work, ApiError> {
        let Self { choices, stop, digest, seed, grammar, request, .. } = self;
        let mut requests = Vec::new();
        for prompt in prompts {
            for index in 0..choices {
                let constraint = grammar.as_ref().map(|(param, grammar)| {
                    let mask = model.grammars.mask(grammar, &model.tokenizer, model.vocabulary, &request.end_tokens);
                    mask.map(Constraint::new).map_err(|error| ApiError::from(error).of_field(param))
                });
                let mut request = Request { prompt: prompt.clone(), constraint: constraint.transpose()?, ..request.clone() };
                request.max_tokens = request.max_tokens.min(model.context().saturating_sub(prompt.len()));
                request.sampling.seed = seed.wrapping_add(index as u64);
                requests.push(request);
            }
        }
        Ok(Work { requests, grammar: grammar.map(|(_, grammar)| grammar), per_prompt: choices, stop, digest, tools })
    }
}

/// A seed for a request without one.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The stop strings that `name` has.
pub(super) fn stops(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, ApiError> {
    const EXPECTED: &str = "a string that is not empty, or an array of at most 16, expected";
    let texts = match fields.get(name) {
        None => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => {
            let texts: Option<Vec<_>> = texts.iter().map(|text| text.as_str().map(str::to_owned)).collect();
            texts.ok_or_else(|| fields.reject(name, EXPECTED))?
        }
        Some(_) => return Err(fields.reject(name, EXPECTED)),
    };
    if texts.len() > MAX_STOPS || texts.iter().any(String::is_empty) { Err(fields.reject(name, EXPECTED)) } else { Ok(texts) }
}

fn bias(fields: &Fields<'_>, vocabulary: usize) -> Result<Vec<(u32, f32)>, ApiError> {
    const NAME: &str = "logit_bias";
    let Some(value) = fields.get(NAME) else { return Ok(Vec::new()) };
    let Value::Object(map) = value else { return Err(fields.reject(NAME, "an object from token ids to numbers from -100 to 100 expected")) };
    let read = |(token, bias): (&String, &Value)| {
        let path = fields.path(&format!("{NAME}.{token}"));
        let token = token.parse().ok().filter(|&token: &u32| (token as usize) < vocabulary);
        let token = token.ok_or_else(|| ApiError::field(&path, format!("{path}: a token id below {vocabulary} expected")))?;
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        Ok((token, bias.ok_or_else(|| ApiError::field(&path, format!("{path}: a number from -100 to 100 expected")))? as f32))
    };
    map.iter().map(read).collect()
}
