//! Answers of `/v1/responses`: items, and the events by which they come.

use elinvar_llm::Finish;
use serde_json::{Map, Value, json};

use super::form::{Head, Items};
use crate::{
    answer::{Answers, Delta, Usage},
    tools::Call,
};

/// An answer as far as it came.
pub(super) struct Response {
    /// What of the request is repeated.
    repeated: Map<String, Value>,
    /// Items that are complete.
    output: Vec<Value>,
    /// The text of the message that is not, if there is one.
    open: Option<String>,
    finish: Option<Finish>,
    sequence: u64,
}

impl Response {
    pub(super) fn new(repeated: Map<String, Value>) -> Self {
        Self { repeated, output: Vec::new(), open: None, finish: None, sequence: 0 }
    }

    fn event(&mut self, kind: &str, fields: Value) -> Value {
        let mut event = json!({"type": kind, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        event
    }

    fn item_id(&self, kind: &str, head: &Head) -> String {
        format!("{kind}{}_{}", head.id().trim_start_matches("resp"), self.output.len())
    }

    /// Completes the message.
    fn close(&mut self, head: &Head, events: &mut Vec<Value>) {
        let (at, id) = (self.output.len(), self.item_id("msg", head));
        let Some(text) = self.open.take() else { return };
        let fields = json!({"item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": []});
        events.push(self.event("response.output_text.done", fields));
        let part = part(&text);
        events.push(self.event("response.content_part.done", json!({"item_id": id, "output_index": at, "content_index": 0, "part": part})));
        let item = message(&id, "completed", &[part]);
        events.push(self.event("response.output_item.done", json!({"output_index": at, "item": item})));
        self.output.push(item);
    }

    fn call(&mut self, head: &Head, call: &Call, events: &mut Vec<Value>) {
        let (at, id) = (self.output.len(), self.item_id("fc", head));
        let item = |status: &str, arguments: &str| json!({"type": "function_call", "id": id, "call_id": call.id, "name": call.name, "arguments": arguments, "status": status});
        events.push(self.event("response.output_item.added", json!({"output_index": at, "item": item("in_progress", "")})));
        for (kind, name) in [("delta", "delta"), ("done", "arguments")] {
            let fields = json!({"item_id": id, "output_index": at, "name": call.name, name: call.arguments});
            events.push(self.event(&format!("response.function_call_arguments.{kind}"), fields));
        }
        let whole = item("completed", &call.arguments);
        events.push(self.event("response.output_item.done", json!({"output_index": at, "item": whole})));
        self.output.push(whole);
    }
}

impl Items for Response {
    fn object(&self, head: &Head, answers: &Answers) -> Value {
        let (status, details) = match self.finish {
            None => ("in_progress", Value::Null),
            Some(Finish::EndToken | Finish::StopString) => ("completed", Value::Null),
            Some(Finish::MaxTokens | Finish::ContextFull | Finish::Cancelled) => ("incomplete", json!({"reason": "max_output_tokens"})),
        };
        let mut object = json!({
            "id": head.id(), "object": "response", "created_at": head.created(), "status": status, "error": null, "incomplete_details": details,
            "model": head.model, "output": self.output, "usage": self.finish.map(|_| usage(answers.usage())),
        });
        if let Value::Object(object) = &mut object {
            object.extend(self.repeated.clone());
            object.extend(self.finish.and_then(|_| head.extension(answers)).map(|value| ("elinvar".to_owned(), value)));
        }
        object
    }

    fn begin(&mut self, head: &Head, answers: &Answers) -> Vec<Value> {
        let object = self.object(head, answers);
        ["response.created", "response.in_progress"].map(|kind| self.event(kind, json!({"response": object}))).to_vec()
    }

    fn push(&mut self, head: &Head, delta: Delta) -> Vec<Value> {
        let mut events = Vec::new();
        let (at, id) = (self.output.len(), self.item_id("msg", head));
        if !delta.text.is_empty() {
            if self.open.is_none() {
                self.open = Some(String::new());
                let item = message(&id, "in_progress", &[]);
                events.push(self.event("response.output_item.added", json!({"output_index": at, "item": item})));
                let part = json!({"item_id": id, "output_index": at, "content_index": 0, "part": part("")});
                events.push(self.event("response.content_part.added", part));
            }
            let fields = json!({"item_id": id, "output_index": at, "content_index": 0, "delta": delta.text, "logprobs": []});
            events.push(self.event("response.output_text.delta", fields));
            self.open.iter_mut().for_each(|text| text.push_str(&delta.text));
        }
        self.finish = delta.finish;
        if !delta.calls.is_empty() || delta.finish.is_some() {
            self.close(head, &mut events);
        }
        for call in delta.calls {
            self.call(head, &call, &mut events);
        }
        events
    }

    fn end(&mut self, head: &Head, answers: &Answers) -> Vec<Value> {
        let object = self.object(head, answers);
        let kind = format!("response.{}", object["status"].as_str().unwrap_or("completed"));
        vec![self.event(&kind, json!({"response": object}))]
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn message(id: &str, status: &str, content: &[Value]) -> Value {
    json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
}

fn usage(usage: Usage) -> Value {
    let Usage { prompt_tokens, completion_tokens, cached_tokens } = usage;
    json!({
        "input_tokens": prompt_tokens, "input_tokens_details": {"cached_tokens": cached_tokens}, "output_tokens": completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt_tokens + completion_tokens,
    })
}
