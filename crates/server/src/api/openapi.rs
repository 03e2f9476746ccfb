//! The description of the interface, for clients and for tools that test it.

use serde_json::{Map, Value, json};

use super::Endpoint;

/// The document of `/openapi.json`.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for endpoint in Endpoint::ALL {
        let (summary, request, answer) = described(endpoint);
        let mut content = json!({"application/json": {"schema": answer}});
        if matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Responses | Endpoint::Messages) {
            content["text/event-stream"] = json!({"schema": {"type": "string"}});
        }
        let operation = json!({
            "summary": summary, "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
            "responses": {"200": {"description": "The answer, or its events", "content": content}, "default": error(endpoint)},
        });
        paths.insert(endpoint.path().to_owned(), json!({"post": operation}));
    }
    let objects = object(json!({"object": {"const": "list"}, "data": {"type": "array", "items": model()}}), &["object", "data"]);
    let gets = [
        ("/", "A page to talk to a model", "text/html", json!({"type": "string"})),
        ("/health", "Whether all engines run", "application/json", object(json!({"status": {"const": "ok"}}), &["status"])),
        ("/v1/models", "The models that are served", "application/json", objects),
        ("/metrics", "Figures in the text format of Prometheus", "text/plain", json!({"type": "string"})),
        ("/slots", "The requests that are computed or wait", "application/json", json!({"type": "array", "items": {"type": "object"}})),
        ("/openapi.json", "This document", "application/json", json!({"type": "object"})),
    ];
    for (path, summary, kind, schema) in gets {
        paths.insert(path.to_owned(), json!({"get": get(summary, kind, &schema)}));
    }
    let mut one = get("A model", "application/json", &model());
    one["parameters"] = json!([{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}]);
    paths.insert("/v1/models/{name}".to_owned(), json!({"get": one}));
    json!({
        "openapi": "3.1.0", "info": {"title": "Elinvar", "version": env!("CARGO_PKG_VERSION")}, "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": object(
                    json!({"error": object(
                        json!({"message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}),
                        &["message", "type", "param", "code"],
                    )}),
                    &["error"],
                ),
                "AnthropicError": object(
                    json!({"type": {"const": "error"}, "error": object(
                        json!({"type": {"type": "string"}, "message": {"type": "string"}}), &["type", "message"],
                    )}),
                    &["type", "error"],
                ),
            },
        },
        "security": [{}, {"key": []}],
    })
}

fn error(endpoint: Endpoint) -> Value {
    let name = if matches!(endpoint, Endpoint::Messages | Endpoint::CountTokens) { "AnthropicError" } else { "Error" };
    let schema = json!({"$ref": format!("#/components/schemas/{name}")});
    json!({"description": "What is wrong, and in which field", "content": {"application/json": {"schema": schema}}})
}

fn get(summary: &str, kind: &str, schema: &Value) -> Value {
    json!({"summary": summary, "responses": {"200": {"description": summary, "content": {kind: {"schema": schema}}}, "default": error(Endpoint::Tokenize)}})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn model() -> Value {
    object(
        json!({"id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": {"type": "string"}}),
        &["id", "object"],
    )
}

/// What an endpoint is for, what it takes and what it gives.
fn described(endpoint: Endpoint) -> (&'static str, Value, Value) {
    let text = || json!({"type": "string"});
    let count = || json!({"type": ["integer", "null"], "minimum": 0});
    let strings = json!({"oneOf": [text(), {"type": "array", "items": text()}]});
    let choices = |kind: &str, choice: Value| {
        object(
            json!({
                "id": text(), "object": {"const": kind}, "created": {"type": "integer"}, "model": text(), "system_fingerprint": text(),
                "choices": {"type": "array", "items": choice}, "usage": {"type": "object"}, "elinvar": {"type": "object"},
            }),
            &["id", "object", "created", "model", "choices", "usage"],
        )
    };
    match endpoint {
        Endpoint::ChatCompletions => {
            let mut properties = sampling();
            properties.extend(conversation());
            properties.extend([
                ("max_tokens".to_owned(), count()),
                ("max_completion_tokens".to_owned(), count()),
                ("logprobs".to_owned(), json!({"type": ["boolean", "null"]})),
                ("top_logprobs".to_owned(), json!({"type": ["integer", "null"], "minimum": 0, "maximum": 20})),
            ]);
            let choice = object(
                json!({"index": {"type": "integer"}, "message": {"type": "object"}, "finish_reason": {"enum": ["stop", "length", "tool_calls"]}}),
                &["index", "message", "finish_reason"],
            );
            ("The next turn of a conversation", object(properties.into(), &["messages"]), choices("chat.completion", choice))
        }
        Endpoint::Completions => {
            let ids = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
            let prompt = json!({"oneOf": [text(), {"type": "array", "items": text()}, ids, {"type": "array", "items": ids}]});
            let mut properties = sampling();
            properties.extend([
                ("prompt".to_owned(), prompt),
                ("max_tokens".to_owned(), count()),
                ("logprobs".to_owned(), json!({"type": ["integer", "null"], "minimum": 0, "maximum": 20})),
                ("echo".to_owned(), json!({"type": ["boolean", "null"]})),
            ]);
            let choice = object(
                json!({"index": {"type": "integer"}, "text": text(), "finish_reason": {"enum": ["stop", "length"]}}),
                &["index", "text", "finish_reason"],
            );
            ("The continuation of a text", object(properties.into(), &["prompt"]), choices("text_completion", choice))
        }
        Endpoint::Responses => {
            let mut properties = sampling();
            properties.extend([
                ("input".to_owned(), json!({"oneOf": [text(), {"type": "array", "items": {"type": "object"}}]})),
                ("instructions".to_owned(), json!({"type": ["string", "null"]})),
                ("max_output_tokens".to_owned(), count()),
                ("text".to_owned(), json!({"type": ["object", "null"]})),
                ("tools".to_owned(), json!({"type": ["array", "null"], "items": {"type": "object"}})),
            ]);
            let answer = object(
                json!({"id": text(), "object": {"const": "response"}, "status": {"enum": ["completed", "incomplete"]}, "output": {"type": "array"}}),
                &["id", "object", "status", "output", "usage"],
            );
            ("The next turn of a conversation, as items", object(properties.into(), &["input"]), answer)
        }
        Endpoint::Messages | Endpoint::CountTokens => {
            let content = json!({"oneOf": [text(), {"type": "array", "items": {"type": "object"}}]});
            let message = object(json!({"role": {"enum": ["user", "assistant", "system"]}, "content": content}), &["role", "content"]);
            let mut properties = Map::from_iter([
                ("model".to_owned(), json!({"type": ["string", "null"]})),
                ("messages".to_owned(), json!({"type": "array", "minItems": 1, "items": message})),
                ("system".to_owned(), json!({"oneOf": [text(), {"type": "array", "items": {"type": "object"}}, {"type": "null"}]})),
                ("tools".to_owned(), json!({"type": ["array", "null"], "items": {"type": "object"}})),
                ("tool_choice".to_owned(), json!({"type": ["object", "null"]})),
            ]);
            if endpoint == Endpoint::CountTokens {
                let answer = object(json!({"input_tokens": {"type": "integer"}}), &["input_tokens"]);
                return ("The tokens of a conversation, as Anthropic counts them", object(properties.into(), &["messages"]), answer);
            }
            properties.extend(sampling());
            properties.insert("max_tokens".to_owned(), json!({"type": "integer", "minimum": 0}));
            properties.insert("stop_sequences".to_owned(), json!({"type": ["array", "null"], "items": {"type": "string", "minLength": 1}}));
            let reasons = json!({"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]});
            let answer = object(
                json!({
                    "id": text(), "type": {"const": "message"}, "role": {"const": "assistant"}, "model": text(), "content": {"type": "array"},
                    "stop_reason": reasons, "stop_sequence": {"type": ["string", "null"]}, "usage": {"type": "object"},
                }),
                &["id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"],
            );
            ("The next turn of a conversation, as Anthropic has it", object(properties.into(), &["messages", "max_tokens"]), answer)
        }
        Endpoint::Embeddings => {
            let properties = json!({"model": text(), "input": strings, "encoding_format": {"enum": ["float", "base64"]}, "dimensions": count()});
            let answer =
                object(json!({"object": {"const": "list"}, "data": {"type": "array"}, "usage": {"type": "object"}}), &["object", "data", "usage"]);
            ("Vectors of texts", object(properties, &["input"]), answer)
        }
        Endpoint::Tokenize => {
            let properties = json!({"model": text(), "content": text(), "add_special": {"type": "boolean"}, "with_pieces": {"type": "boolean"}});
            ("The tokens of a text", object(properties, &["content"]), object(json!({"tokens": {"type": "array"}}), &["tokens"]))
        }
        Endpoint::Detokenize => {
            let properties = json!({"model": text(), "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}});
            ("The text of tokens", object(properties, &["tokens"]), object(json!({"content": text()}), &["content"]))
        }
        Endpoint::ApplyTemplate => {
            let mut properties = conversation();
            properties.insert("model".to_owned(), json!({"type": ["string", "null"]}));
            (
                "The text of a conversation that the model is given",
                object(properties.into(), &["messages"]),
                object(json!({"prompt": text()}), &["prompt"]),
            )
        }
    }
}

/// What requests for the next turn and for its prompt have in common.
fn conversation() -> Map<String, Value> {
    let message = object(
        json!({"role": {"enum": ["system", "developer", "user", "assistant", "tool"]}, "content": {"type": ["string", "array", "null"]}}),
        &["role"],
    );
    let flag = || json!({"type": ["boolean", "null"]});
    Map::from_iter([
        ("messages".to_owned(), json!({"type": "array", "minItems": 1, "items": message})),
        ("tools".to_owned(), json!({"type": ["array", "null"], "items": {"type": "object"}})),
        ("tool_choice".to_owned(), json!({"type": ["string", "object", "null"]})),
        ("add_generation_prompt".to_owned(), flag()),
        ("continue_final_message".to_owned(), flag()),
        ("chat_template_kwargs".to_owned(), json!({"type": ["object", "null"]})),
    ])
}

/// What requests for texts have in common.
fn sampling() -> Map<String, Value> {
    let number = |least: f64, most: f64| json!({"type": ["number", "null"], "minimum": least, "maximum": most});
    let flag = || json!({"type": ["boolean", "null"]});
    let fields = [
        ("model", json!({"type": ["string", "null"]})),
        ("stream", flag()),
        ("stream_options", json!({"type": ["object", "null"], "properties": {"include_usage": flag()}})),
        ("seed", json!({"type": ["integer", "null"]})),
        ("n", json!({"type": ["integer", "null"], "minimum": 1, "maximum": super::settings::MAX_CHOICES})),
        (
            "stop",
            json!({"type": ["string", "array", "null"], "items": {"type": "string", "minLength": 1}, "minLength": 1, "maxItems": super::settings::MAX_STOPS}),
        ),
        ("temperature", number(0.0, 2.0)),
        ("top_k", json!({"type": ["integer", "null"], "minimum": -1})),
        ("top_p", number(0.0, 1.0)),
        ("min_p", number(0.0, 1.0)),
        ("repetition_penalty", number(0.01, 100.0)),
        ("presence_penalty", number(-2.0, 2.0)),
        ("frequency_penalty", number(-2.0, 2.0)),
        ("logit_bias", json!({"type": ["object", "null"], "additionalProperties": number(-100.0, 100.0)})),
        ("response_format", json!({"type": ["object", "null"]})),
        ("ignore_eos", flag()),
        ("digest", flag()),
    ];
    fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}
