//! Answers of `/v1/messages`: blocks of content, and the events by which they come.

use elinvar_llm::Finish;
use serde_json::{Value, json};

use super::form::{Head, Items};
use crate::{
    answer::{Answers, Delta, Usage},
    tools::Call,
};

/// An answer as far as it came.
pub(super) struct Message {
    /// The stop strings of the request, which are not those of the model.
    stop_sequences: Vec<String>,
    /// Blocks that are complete.
    content: Vec<Value>,
    /// The text of the block that is not, if there is one.
    open: Option<String>,
    finish: Option<Finish>,
    stop: Option<String>,
    has_calls: bool,
}

impl Message {
    pub(super) fn new(stop_sequences: Vec<String>) -> Self {
        Self { stop_sequences, content: Vec::new(), open: None, finish: None, stop: None, has_calls: false }
    }

    /// Why the answer ended, and by which of the request's stop strings.
    fn stop(&self) -> Value {
        let stop = self.stop.as_ref().filter(|stop| self.stop_sequences.contains(stop));
        let reason = self.finish.map(|finish| match finish {
            Finish::EndToken | Finish::StopString if self.has_calls => "tool_use",
            Finish::StopString if stop.is_some() => "stop_sequence",
            Finish::EndToken | Finish::StopString => "end_turn",
            Finish::MaxTokens | Finish::ContextFull | Finish::Cancelled => "max_tokens",
        });
        json!({"stop_reason": reason, "stop_sequence": stop.filter(|_| reason == Some("stop_sequence"))})
    }

    fn start_block(&self, block: &Value) -> Value {
        json!({"type": "content_block_start", "index": self.content.len(), "content_block": block})
    }

    fn block_delta(&self, delta: &Value) -> Value {
        json!({"type": "content_block_delta", "index": self.content.len(), "delta": delta})
    }

    /// Completes a block.
    fn stop_block(&mut self, block: Value) -> Value {
        let event = json!({"type": "content_block_stop", "index": self.content.len()});
        self.content.push(block);
        event
    }

    fn call(&mut self, call: &Call, events: &mut Vec<Value>) {
        let block = |input: Value| json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input});
        // What a grammar does not limit may be no JSON: then it is given as it is.
        let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| call.arguments.clone().into());
        events.push(self.start_block(&block(json!({}))));
        events.push(self.block_delta(&json!({"type": "input_json_delta", "partial_json": call.arguments})));
        events.push(self.stop_block(block(input)));
        self.has_calls = true;
    }
}

impl Items for Message {
    fn object(&self, head: &Head, answers: &Answers) -> Value {
        let mut object = json!({
            "id": head.id(), "type": "message", "role": "assistant", "model": head.model, "content": self.content, "usage": usage(answers.usage()),
        });
        if let (Value::Object(object), Value::Object(stop)) = (&mut object, self.stop()) {
            object.extend(stop);
            object.extend(self.finish.and_then(|_| head.extension(answers)).map(|value| ("elinvar".to_owned(), value)));
        }
        object
    }

    fn begin(&mut self, head: &Head, answers: &Answers) -> Vec<Value> {
        vec![json!({"type": "message_start", "message": self.object(head, answers)})]
    }

    fn push(&mut self, _: &Head, delta: Delta) -> Vec<Value> {
        let mut events = Vec::new();
        if !delta.text.is_empty() {
            if self.open.is_none() {
                events.push(self.start_block(&text("")));
            }
            events.push(self.block_delta(&json!({"type": "text_delta", "text": delta.text})));
            self.open.get_or_insert_default().push_str(&delta.text);
        }
        (self.finish, self.stop) = (delta.finish, delta.stop);
        let is_last = self.finish.is_some();
        if (is_last || !delta.calls.is_empty())
            && let Some(whole) = self.open.take()
        {
            events.push(self.stop_block(text(&whole)));
        }
        for call in delta.calls {
            self.call(&call, &mut events);
        }
        events
    }

    fn end(&mut self, head: &Head, answers: &Answers) -> Vec<Value> {
        let mut last = json!({"type": "message_delta", "delta": self.stop(), "usage": usage(answers.usage())});
        if let Some(value) = head.extension(answers) {
            last["elinvar"] = value;
        }
        vec![last, json!({"type": "message_stop"})]
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// As Anthropic counts: tokens from the cache are none of the input's.
fn usage(usage: Usage) -> Value {
    let Usage { prompt_tokens, completion_tokens, cached_tokens } = usage;
    json!({
        "input_tokens": prompt_tokens.saturating_sub(cached_tokens), "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached_tokens,
        "output_tokens": completion_tokens,
    })
}
