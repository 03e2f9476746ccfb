//! Requests of OpenAI's interface, and their answers.

mod chat;
mod completions;
mod embeddings;
mod error;
mod fields;
mod form;
mod format;
mod message;
mod messages;
mod openapi;
mod respond;
mod responses;
mod settings;
mod tokens;
mod tools;

use std::sync::Arc;

use serde_json::{Value, json};

pub use error::ApiError;
use fields::Fields;
pub(crate) use form::Chunks;
use form::{Form, Head, Whole};
pub(crate) use openapi::document;

use crate::{
    answer::{Answers, Work},
    models::{Models, Served},
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The next turn of a conversation.
    ChatCompletions,
    /// The continuation of a text.
    Completions,
    /// The next turn of a conversation, in OpenAI's newer form.
    Responses,
    /// The next turn of a conversation, as Anthropic has it.
    Messages,
    /// The tokens of a conversation, as Anthropic counts them.
    CountTokens,
    /// Vectors of texts.
    Embeddings,
    /// Tokens of a text.
    Tokenize,
    /// The text of tokens.
    Detokenize,
    /// The text of a conversation.
    ApplyTemplate,
}

impl Endpoint {
    pub(crate) const ALL: [Self; 9] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
        Self::Embeddings,
        Self::Tokenize,
        Self::Detokenize,
        Self::ApplyTemplate,
    ];

    /// Where it is found.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
            Self::Embeddings => "/v1/embeddings",
            Self::Tokenize => "/tokenize",
            Self::Detokenize => "/detokenize",
            Self::ApplyTemplate => "/apply-template",
        }
    }

    /// The body of an error as this one's clients expect it.
    pub(crate) fn error(self, error: &ApiError) -> Value {
        match self {
            Self::Messages | Self::CountTokens => error.anthropic(),
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Embeddings
            | Self::Tokenize
            | Self::Detokenize
            | Self::ApplyTemplate => error.body(),
        }
    }

    /// The last part of a stream in which something failed.
    pub(crate) fn stream_error(self, error: &ApiError) -> Value {
        if self == Self::Responses {
            return json!({"type": "error", "code": error.code, "message": error.message, "param": error.param});
        }
        self.error(error)
    }

    /// Whether the parts of a stream are events with names, without a mark of the end.
    pub(crate) fn has_events(self) -> bool {
        matches!(self, Self::Responses | Self::Messages)
    }

    /// The one at `path`.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|endpoint| endpoint.path() == path)
    }
}

/// A request that has been read, ready to be computed.
pub struct Job(Kind);

enum Kind {
    Text(Box<TextJob>),
    /// An answer that took no engine.
    Done(Value),
}

/// A request for texts.
struct TextJob {
    model: Arc<Served>,
    work: Work,
    form: Form,
    head: Head,
    /// `None` for a whole answer; whether the usage comes in the end.
    stream: Option<bool>,
}

impl Job {
    /// Reads a request's body and makes tokens of its prompts, which takes a moment for long ones. Vectors of texts are computed here.
    ///
    /// # Errors
    /// A body that is no JSON, an unknown model, or a field that is wrong; the error names it.
    pub fn read(models: &Models, endpoint: Endpoint, body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body).map_err(|e| ApiError::invalid(None, format!("the body is no JSON: {e}")))?;
        let fields = Fields::body(&value)?;
        let text = |read: fn(&Fields<'_>, Arc<Served>) -> Result<TextJob, ApiError>| {
            let (model, adapter) = models.find(fields.string("model")?)?;
            let mut job = read(&fields, model.clone())?;
            job.head.model = adapter.clone().unwrap_or_else(|| model.name().to_owned());
            job.work.requests.iter_mut().for_each(|request| request.adapter = adapter.clone());
            Ok(Self(Kind::Text(Box::new(job))))
        };
        match endpoint {
            Endpoint::ChatCompletions => text(chat::read),
            Endpoint::Completions => text(completions::read),
            Endpoint::Responses => text(responses::read),
            Endpoint::Messages => text(messages::read),
            Endpoint::CountTokens => messages::count(&fields, models).map(|answer| Self(Kind::Done(answer))),
            Endpoint::Embeddings => embeddings::answer(&fields, models).map(|answer| Self(Kind::Done(answer))),
            Endpoint::Tokenize => tokens::tokenize(&fields, models).map(|answer| Self(Kind::Done(answer))),
            Endpoint::Detokenize => tokens::detokenize(&fields, models).map(|answer| Self(Kind::Done(answer))),
            Endpoint::ApplyTemplate => chat::template(&fields, models).map(|answer| Self(Kind::Done(answer))),
        }
    }

    /// Whether the answer is to come in parts.
    pub fn is_stream(&self) -> bool {
        match &self.0 {
            Kind::Text(job) => job.stream.is_some(),
            Kind::Done(_) => false,
        }
    }

    /// Computes the whole answer. Dropping the future cancels the request.
    ///
    /// # Errors
    /// The queue is full, or the model fails.
    pub async fn answer(self) -> Result<Value, ApiError> {
        let TextJob { model, work, form, head, .. } = match self.0 {
            Kind::Text(job) => *job,
            Kind::Done(answer) => return Ok(answer),
        };
        let has_logprobs = work.has_logprobs();
        let mut answers = Answers::start(model.clone(), work).await?;
        let mut whole = Whole::new(&form, answers.len());
        while let Some(delta) = answers.next().await? {
            whole.add(delta);
        }
        Ok(whole.finish(&head, &model, &answers, has_logprobs))
    }

    /// The answer in parts. Dropping them cancels the request.
    ///
    /// # Errors
    /// The queue is full.
    pub(crate) async fn stream(self) -> Result<Chunks, ApiError> {
        let TextJob { model, work, form, head, stream } = match self.0 {
            Kind::Text(job) => *job,
            Kind::Done(_) => return Err(ApiError::field("stream", "stream: not possible here")),
        };
        let has_logprobs = work.has_logprobs();
        let answers = Answers::start(model.clone(), work).await?;
        Ok(Chunks::new(model, form, head, stream.unwrap_or(false), has_logprobs, answers))
    }
}

/// What a request is answered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// An answer, or an object `error`.
    pub body: Value,
}

/// Computes a request that came by `POST` to `path`, without a stream.
pub async fn run(models: &Models, path: &str, body: &[u8]) -> Reply {
    let endpoint = Endpoint::from_path(path);
    let answer = async {
        let endpoint = endpoint.ok_or_else(|| ApiError::not_found(path))?;
        let job = Job::read(models, endpoint, body)?;
        if job.is_stream() {
            return Err(ApiError::field("stream", "stream: not possible here"));
        }
        job.answer().await
    };
    match answer.await {
        Ok(body) => Reply { status: 200, body },
        Err(error) => Reply { status: error.status(), body: endpoint.map_or_else(|| error.body(), |endpoint| endpoint.error(&error)) },
    }
}

/// The same for callers without a runtime; blocks its thread.
///
/// # Errors
/// No runtime can be made.
pub fn run_blocking(models: &Models, path: &str, body: &[u8]) -> elinvar::Result<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|e| elinvar::Error::io(format!("cannot start a runtime: {e}")))?;
    Ok(runtime.block_on(run(models, path, body)))
}

/// Rejects a prompt that leaves no room.
fn check_length(param: &str, tokens: &[u32], model: &Served) -> Result<(), ApiError> {
    if tokens.len() < model.context() { Ok(()) } else { Err(ApiError::context_length(param, tokens.len(), model.context())) }
}
