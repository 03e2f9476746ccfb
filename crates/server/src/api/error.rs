//! Errors as OpenAI's interface has them.

use elinvar::{Error, ErrorKind};
use serde_json::{Value, json};

/// What a request is answered with that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    /// A request that is wrong in a field, or as a whole.
    pub(crate) fn invalid(param: Option<&str>, message: impl Into<String>) -> Self {
        Self { status: 400, kind: "invalid_request_error", message: message.into(), param: param.map(str::to_owned), code: None }
    }

    /// A field that is wrong.
    pub(crate) fn field(param: &str, message: impl Into<String>) -> Self {
        Self::invalid(Some(param), message)
    }

    /// The same error, of a field if it is one of the request.
    pub(crate) fn of_field(self, param: &str) -> Self {
        if self.status == 400 && self.param.is_none() {
            Self { param: Some(param.to_owned()), message: format!("{param}: {}", self.message), ..self }
        } else {
            self
        }
    }

    pub(crate) fn context_length(param: &str, tokens: usize, context: usize) -> Self {
        let message = format!("the prompt has {tokens} tokens, and the context {context}: shorten it, or serve the model with a larger --context");
        Self { code: Some("context_length_exceeded"), ..Self::field(param, message) }
    }

    pub(crate) fn model_not_found(message: String) -> Self {
        Self { status: 404, code: Some("model_not_found"), ..Self::field("model", message) }
    }

    pub(crate) fn timeout() -> Self {
        Self::with_status(504, "timeout_error", "the answer did not end in time: ask for fewer tokens, or serve with a larger --timeout")
    }

    pub(crate) fn not_found(path: &str) -> Self {
        Self::with_status(404, "not_found_error", format!("there is nothing at {}", path.escape_debug()))
    }

    pub(crate) fn with_status(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None }
    }

    /// The status of HTTP.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The body as Anthropic has it.
    pub(crate) fn anthropic(&self) -> Value {
        let kind = match self.status {
            401 | 403 | 404 | 429 => self.kind,
            408 | 504 => "timeout_error",
            413 => "request_too_large",
            503 => "overloaded_error",
            400..500 => "invalid_request_error",
            _ => "api_error",
        };
        let kind = if self.code == Some("model_not_found") { "not_found_error" } else { kind };
        json!({"type": "error", "error": {"type": kind, "message": self.message}})
    }

    /// The body: an object `error`.
    pub fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::Unsupported => Self::invalid(None, error.to_string()),
            ErrorKind::OutOfMemory => Self::with_status(503, "unavailable_error", error.to_string()),
            // Kinds are marked as not exhaustive.
            _ => Self::with_status(500, "server_error", error.to_string()),
        }
    }
}
