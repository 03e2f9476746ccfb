//! Answers as OpenAI's interface has them: whole, or in parts.

use std::{
    collections::{VecDeque, hash_map::RandomState},
    hash::{BuildHasher, Hasher},
    sync::Arc,
};

use elinvar_llm::Finish;
use serde_json::{Map, Value, json};

use super::{ApiError, message::Message, respond::Response};
use crate::{
    answer::{Answers, Delta, TokenLogprob, Usage},
    models::{Served, unix_time},
    tools::Call,
};

const FINGERPRINT: &str = concat!("elinvar-", env!("CARGO_PKG_VERSION"));

/// What an answer looks like.
pub(super) enum Form {
    Chat,
    Completion {
        /// Texts that answers begin with, if the prompts are to be repeated.
        echoes: Vec<String>,
    },
    Response {
        /// What of the request is in the answer.
        repeated: Map<String, Value>,
    },
    /// Anthropic's.
    Message {
        /// The stop strings of the request.
        stop_sequences: Vec<String>,
    },
}

impl Form {
    /// What names of answers begin with.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completion { .. } => "cmpl-",
            Self::Response { .. } => "resp_",
            Self::Message { .. } => "msg_",
        }
    }

    fn object(&self, is_chunk: bool) -> &'static str {
        match (self, is_chunk) {
            (Self::Chat, false) => "chat.completion",
            (Self::Chat, true) => "chat.completion.chunk",
            (Self::Completion { .. }, _) => "text_completion",
            (Self::Response { .. }, _) => "response",
            (Self::Message { .. }, _) => "message",
        }
    }

    fn echo(&self, index: usize) -> &str {
        match self {
            Self::Chat | Self::Response { .. } | Self::Message { .. } => "",
            Self::Completion { echoes } => echoes.get(index).map_or("", String::as_str),
        }
    }

    /// What an answer of items is put together by.
    fn items(&self) -> Option<Box<dyn Items>> {
        match self {
            Self::Chat | Self::Completion { .. } => None,
            Self::Response { repeated } => Some(Box::new(Response::new(repeated.clone()))),
            Self::Message { stop_sequences } => Some(Box::new(Message::new(stop_sequences.clone()))),
        }
    }
}

/// An answer that consists of items and comes by events with names.
pub(super) trait Items: Send {
    /// The answer as far as it came.
    fn object(&self, head: &Head, answers: &Answers) -> Value;

    /// The events before the engine brings anything.
    fn begin(&mut self, head: &Head, answers: &Answers) -> Vec<Value>;

    /// Takes a part; gives its events, but for the last.
    fn push(&mut self, head: &Head, delta: Delta) -> Vec<Value>;

    /// The last events.
    fn end(&mut self, head: &Head, answers: &Answers) -> Vec<Value>;
}

/// What all parts of an answer have.
pub(super) struct Head {
    id: String,
    created: u64,
    /// The name of the model, or of its adapter.
    pub(super) model: String,
    seed: u64,
}

impl Head {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn created(&self) -> u64 {
        self.created
    }

    pub(super) fn new(prefix: &str, seed: u64) -> Self {
        Self { id: format!("{prefix}{:016x}", RandomState::new().build_hasher().finish()), created: unix_time(), model: String::new(), seed }
    }

    fn object(&self, form: &Form, is_chunk: bool, choices: Vec<Value>) -> Map<String, Value> {
        let value = json!({
            "id": self.id, "object": form.object(is_chunk), "created": self.created, "model": self.model, "system_fingerprint": FINGERPRINT, "choices": choices,
        });
        match value {
            Value::Object(map) => map,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        }
    }

    /// What the answers can be compared and made again by.
    pub(super) fn extension(&self, answers: &Answers) -> Option<Value> {
        let digests = answers.digests()?;
        let mut value = json!({"digest": digests.first(), "seed": self.seed});
        if digests.len() > 1 {
            value["digests"] = digests.into();
        }
        Some(value)
    }
}

fn reason(finish: Finish, has_calls: bool) -> &'static str {
    match finish {
        Finish::EndToken | Finish::StopString if has_calls => "tool_calls",
        Finish::EndToken | Finish::StopString => "stop",
        Finish::MaxTokens | Finish::ContextFull | Finish::Cancelled => "length",
    }
}

fn usage(usage: Usage) -> Value {
    let Usage { prompt_tokens, completion_tokens, cached_tokens } = usage;
    json!({
        "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    })
}

/// Log probabilities of a conversation's answer.
fn chat_logprobs(model: &Served, tokens: &[TokenLogprob]) -> Value {
    let entry = |token: u32, logprob: f32| {
        let bytes = model.tokenizer.token_bytes(token);
        json!({"id": token, "token": String::from_utf8_lossy(&bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let content = tokens.iter().map(|token| {
        let mut value = entry(token.token, token.logprobs.chosen);
        value["top_logprobs"] = token.logprobs.most_likely.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
        value
    });
    json!({"content": content.collect::<Vec<_>>(), "refusal": null})
}

/// Log probabilities of a text's continuation.
fn text_logprobs(model: &Served, tokens: &[TokenLogprob]) -> Value {
    let text = |token: u32| String::from_utf8_lossy(&model.tokenizer.token_bytes(token)).into_owned();
    let top = |token: &TokenLogprob| {
        let pairs = token.logprobs.most_likely.iter().map(|&(token, logprob)| (text(token), json!(finite(logprob))));
        Value::Object(pairs.collect())
    };
    json!({
        "tokens": tokens.iter().map(|token| text(token.token)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| finite(token.logprobs.chosen)).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": tokens.iter().map(|token| token.start).collect::<Vec<_>>(),
    })
}

/// JSON has no infinity.
fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

fn tool_call(call: &Call) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// Answers as they are put together.
pub(super) struct Whole<'a> {
    form: &'a Form,
    texts: Vec<Delta>,
}

impl<'a> Whole<'a> {
    pub(super) fn new(form: &'a Form, count: usize) -> Self {
        Self { form, texts: (0..count).map(|index| Delta { index, ..Delta::default() }).collect() }
    }

    pub(super) fn add(&mut self, delta: Delta) {
        if let Some(text) = self.texts.get_mut(delta.index) {
            text.text.push_str(&delta.text);
            text.logprobs.extend(delta.logprobs);
            text.calls.extend(delta.calls);
            (text.finish, text.stop) = (delta.finish, delta.stop);
        }
    }

    pub(super) fn finish(self, head: &Head, model: &Served, answers: &Answers, has_logprobs: bool) -> Value {
        if let Some(mut items) = self.form.items() {
            self.texts.into_iter().for_each(|delta| drop(items.push(head, delta)));
            return items.object(head, answers);
        }
        let choice = |delta: Delta| {
            let finish = delta.finish.map(|finish| reason(finish, !delta.calls.is_empty()));
            if let Form::Completion { .. } = self.form {
                return json!({
                    "index": delta.index, "text": format!("{}{}", self.form.echo(delta.index), delta.text),
                    "logprobs": has_logprobs.then(|| text_logprobs(model, &delta.logprobs)), "finish_reason": finish,
                });
            }
            let content = if delta.text.is_empty() && !delta.calls.is_empty() { Value::Null } else { delta.text.into() };
            let mut message = json!({"role": "assistant", "content": content, "refusal": null});
            if !delta.calls.is_empty() {
                message["tool_calls"] = delta.calls.iter().map(tool_call).collect();
            }
            json!({
                "index": delta.index, "message": message, "logprobs": has_logprobs.then(|| chat_logprobs(model, &delta.logprobs)),
                "finish_reason": finish,
            })
        };
        let choices = self.texts.into_iter().map(choice).collect();
        let mut object = head.object(self.form, false, choices);
        object.insert("usage".to_owned(), usage(answers.usage()));
        object.extend(head.extension(answers).map(|value| ("elinvar".to_owned(), value)));
        Value::Object(object)
    }
}

/// An answer in parts.
pub(crate) struct Chunks {
    model: Arc<Served>,
    form: Form,
    head: Head,
    includes_usage: bool,
    has_logprobs: bool,
    answers: Answers,
    /// Of a form that has them.
    items: Option<Box<dyn Items>>,
    /// Calls of tools so far, of each answer.
    calls: Vec<usize>,
    /// Parts that are due before what the engine brings next.
    ready: VecDeque<Value>,
    is_complete: bool,
}

impl Chunks {
    pub(super) fn new(model: Arc<Served>, form: Form, head: Head, includes_usage: bool, has_logprobs: bool, answers: Answers) -> Self {
        let (items, calls, ready) = (form.items(), vec![0; answers.len()], VecDeque::new());
        let mut chunks = Self { model, form, head, includes_usage, has_logprobs, answers, items, calls, ready, is_complete: false };
        chunks.begin();
        chunks
    }

    fn begin(&mut self) {
        if let Some(items) = &mut self.items {
            self.ready.extend(items.begin(&self.head, &self.answers));
        }
        for index in 0..self.answers.len() {
            let choice = match &self.form {
                Form::Chat => json!({"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}),
                Form::Completion { .. } if !self.form.echo(index).is_empty() => {
                    json!({"index": index, "text": self.form.echo(index), "logprobs": null, "finish_reason": null})
                }
                Form::Completion { .. } | Form::Response { .. } | Form::Message { .. } => continue,
            };
            self.ready.push_back(self.chunk(vec![choice]));
        }
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        let mut object = self.head.object(&self.form, true, choices);
        if self.includes_usage {
            object.insert("usage".to_owned(), Value::Null);
        }
        Value::Object(object)
    }

    /// The next part; nothing after the last.
    ///
    /// # Errors
    /// The model fails.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, ApiError> {
        while self.ready.is_empty() && !self.is_complete {
            match self.answers.next().await? {
                Some(delta) => self.queue(delta),
                None => self.is_complete = true,
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Makes parts of what the engine brought.
    fn queue(&mut self, delta: Delta) {
        self.is_complete = self.answers.is_complete();
        if let Some(items) = &mut self.items {
            self.ready.extend(items.push(&self.head, delta));
            if self.is_complete {
                self.ready.extend(items.end(&self.head, &self.answers));
            }
            return;
        }
        let is_chat = matches!(self.form, Form::Chat);
        let has_logprobs = self.has_logprobs && !delta.logprobs.is_empty();
        let choice = |content: Value, logprobs: Value, finish: Value| {
            let mut choice = json!({"index": delta.index, "logprobs": logprobs, "finish_reason": finish});
            choice[if is_chat { "delta" } else { "text" }] = content;
            choice
        };
        let nothing = || if is_chat { json!({}) } else { json!("") };
        if !delta.text.is_empty() || has_logprobs {
            let logprobs = if is_chat { chat_logprobs } else { text_logprobs };
            let logprobs = if has_logprobs { logprobs(&self.model, &delta.logprobs) } else { Value::Null };
            let content = if is_chat { json!({"content": delta.text}) } else { json!(delta.text) };
            self.ready.push_back(self.chunk(vec![choice(content, logprobs, Value::Null)]));
        }
        for call in &delta.calls {
            let mut value = tool_call(call);
            value["index"] = self.calls[delta.index].into();
            self.calls[delta.index] += 1;
            self.ready.push_back(self.chunk(vec![choice(json!({"tool_calls": [value]}), Value::Null, Value::Null)]));
        }
        let Some(finish) = delta.finish.map(|finish| reason(finish, self.calls[delta.index] > 0)) else { return };
        let mut last = self.chunk(vec![choice(nothing(), Value::Null, finish.into())]);
        if let Some(value) = self.head.extension(&self.answers).filter(|_| self.is_complete) {
            last["elinvar"] = value;
        }
        self.ready.push_back(last);
        if self.is_complete && self.includes_usage {
            let mut chunk = self.chunk(Vec::new());
            chunk["usage"] = usage(self.answers.usage());
            self.ready.push_back(chunk);
        }
    }
}
