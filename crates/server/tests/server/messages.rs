//! `/v1/messages`, as Anthropic's clients check it.

use serde_json::{Value, json};

use crate::client::{NAME, Response, Running, start, start_with, start_with_template};
use elinvar_server::ServerOptions;

const PATH: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
/// Turns by their roles, tools in the way of Hermes.
const TEMPLATE: &str = "{% if tools %}<tool_call>{{ tools | tojson }}\n{% endif %}\
    {% for m in messages %}{{ m.role }}: {{ m.reasoning_content | default('') }}{{ m.content }}{{ m.tool_calls | default('') }}\n{% endfor %}\
    {% if add_generation_prompt %}assistant:{% endif %}";

fn request(more: &Value) -> Value {
    let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "Speak, sir."}], "max_tokens": 6, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The events of a stream, each with its name.
fn events(response: &Response) -> Vec<Value> {
    assert_eq!((response.status, response.headers["content-type"].as_str()), (200, "text/event-stream"), "{}", response.text);
    let event = |event: &str| -> Value {
        let (name, data) = event.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let value: Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["type"], name);
        value
    };
    response.text.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':')).map(event).collect()
}

fn text(answer: &Value) -> &str {
    assert_eq!((answer["content"].as_array().unwrap().len(), &answer["content"][0]["type"]), (1, &json!("text")), "{answer}");
    answer["content"][0]["text"].as_str().unwrap()
}

/// The prompt of a conversation in OpenAI's form.
fn prompt(server: &Running, body: &Value) -> String {
    server.answer("/apply-template", body)["prompt"].as_str().unwrap().to_owned()
}

#[test]
fn a_message_is_the_answer_of_a_chat_and_its_stream_has_the_same_text() {
    let server = start();
    let whole = server.answer(PATH, &request(&json!({"system": "A king.", "digest": true})));
    let messages = json!([{"role": "system", "content": "A king."}, {"role": "user", "content": "Speak, sir."}]);
    let chat = json!({"messages": messages, "max_tokens": 6, "temperature": 0, "digest": true});
    let chat = server.answer("/v1/chat/completions", &chat);
    assert_eq!((&chat["choices"][0]["message"]["content"], &chat["elinvar"]["digest"]), (&json!(text(&whole)), &whole["elinvar"]["digest"]));
    assert_eq!((&whole["type"], &whole["role"], &whole["model"]), (&json!("message"), &json!("assistant"), &json!(NAME)));
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!("max_tokens"), &json!(null)));
    let counted = server.answer(COUNT, &json!({"system": [{"type": "text", "text": "A king."}], "messages": request(&json!({}))["messages"]}));
    assert_eq!(counted, json!({"input_tokens": chat["usage"]["prompt_tokens"]}));
    assert_eq!((&whole["usage"]["input_tokens"], &whole["usage"]["output_tokens"]), (&counted["input_tokens"], &json!(6)));

    let events = events(&server.post(PATH, &request(&json!({"system": "A king.", "stream": true}))));
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["message_start", "content_block_start"]);
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!((&events[0]["message"]["content"], &events[0]["message"]["stop_reason"]), (&json!([]), &json!(null)));
    let streamed: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(streamed, text(&whole));
    let last = &events[events.len() - 2];
    assert_eq!((&last["delta"]["stop_reason"], &last["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(6)));
}

#[test]
fn a_stop_sequence_is_named_and_the_end_of_a_turn_is_not() {
    let server = start();
    let long = server.answer(PATH, &request(&json!({"max_tokens": 20})));
    let stop: String = text(&long).chars().skip(4).take(3).collect();
    let cut = server.answer(PATH, &request(&json!({"max_tokens": 20, "stop_sequences": ["\u{1}", stop]})));
    assert_eq!((&cut["stop_reason"], &cut["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    assert_eq!(text(&cut), &text(&long)[..text(&long).find(&stop).unwrap()]);
    // A turn of this model ends with a blank line, which is not for the client to see.
    let ended = server.answer(PATH, &request(&json!({"max_tokens": 300, "temperature": 1, "seed": 3})));
    assert_eq!((&ended["stop_reason"], &ended["stop_sequence"]), (&json!("end_turn"), &json!(null)), "{ended}");
}

#[test]
fn tools_are_called_and_what_came_of_them_is_read() {
    let server = start_with_template(TEMPLATE);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": false});
    let tools = json!([{"name": "add", "description": "Adds.", "input_schema": schema}]);
    for choice in [json!({"type": "any"}), json!({"type": "tool", "name": "add"})] {
        let more = json!({"tools": tools, "tool_choice": choice, "max_tokens": 60, "temperature": 1, "seed": 5});
        let answer = server.answer(PATH, &request(&more));
        let call = &answer["content"][0];
        assert_eq!((&answer["stop_reason"], &call["type"], &call["name"]), (&json!("tool_use"), &json!("tool_use"), &json!("add")), "{answer}");
        assert!((0..100).contains(&call["input"]["a"].as_i64().unwrap()), "{answer}");
        let mut more = more;
        more["stream"] = true.into();
        let events = events(&server.post(PATH, &request(&more)));
        let start = events.iter().find(|event| event["type"] == "content_block_start").unwrap();
        assert_eq!((&start["content_block"]["name"], &start["content_block"]["input"], &start["index"]), (&json!("add"), &json!({}), &json!(0)));
        let json: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), call["input"]);
        assert_eq!(events[events.len() - 2]["delta"]["stop_reason"], "tool_use");
    }
    // Blocks become the turns that templates know.
    let history = json!([
        {"role": "user", "content": [{"type": "text", "text": "Add "}, {"type": "text", "text": "1."}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "tool_use", "id": "abcdefghi", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "abcdefghi", "content": [{"type": "text", "text": "2"}]}, {"type": "text", "text": "Good."}]},
    ]);
    let call = json!({"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}});
    let openai = json!([
        {"role": "user", "content": "Add 1."},
        {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "2"},
        {"role": "user", "content": "Good."},
    ]);
    let text = prompt(&server, &json!({"messages": openai}));
    assert!(text.contains("assistant: Hm.") && text.contains("tool: 2\nuser: Good.\nassistant:"), "{text}");
    let tokens = server.answer("/tokenize", &json!({"content": text}))["tokens"].as_array().unwrap().len();
    assert_eq!(server.answer(COUNT, &json!({"messages": history})), json!({"input_tokens": tokens}));
}

#[test]
fn an_answer_goes_on_with_the_beginning_that_is_given() {
    let server = start_with_template(TEMPLATE);
    let messages = json!([{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I am the assistant "}]);
    let body = json!({"messages": messages, "continue_final_message": true});
    assert_eq!(prompt(&server, &body), "user: Who?\nassistant: I am the assistant");
    assert_eq!(prompt(&server, &json!({"messages": messages})), "user: Who?\nassistant: I am the assistant \nassistant:");
    assert_eq!(prompt(&server, &json!({"messages": messages, "add_generation_prompt": false})), "user: Who?\nassistant: I am the assistant \n");
    let continued = json!({"prompt": "user: Who?\nassistant: I am the assistant", "max_tokens": 6, "temperature": 0});
    let continued = server.answer("/v1/completions", &continued)["choices"][0]["text"].clone();
    assert_eq!(text(&server.answer(PATH, &request(&json!({"messages": messages})))), continued);
    for (more, param) in [
        (json!({"continue_final_message": true, "add_generation_prompt": true, "messages": messages}), "continue_final_message"),
        (json!({"continue_final_message": true}), "messages"),
    ] {
        let (status, found, _) = server.error("/v1/chat/completions", &request(&more));
        assert_eq!((status, found.as_str()), (400, param));
    }
}

#[test]
fn errors_have_the_shape_that_these_clients_expect() {
    let server = start();
    for (more, status, kind, message) in [
        (json!({"model": "other"}), 404, "not_found_error", "there is no model 'other'"),
        (json!({"max_tokens": null}), 400, "invalid_request_error", "max_tokens: missing, and required"),
        (json!({"messages": []}), 400, "invalid_request_error", "messages: empty"),
        (json!({"messages": [{"role": "tool", "content": "x"}]}), 400, "invalid_request_error", "messages[0].role: user,"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}), 400, "invalid_request_error", "messages[0].content[0].type: not"),
        (json!({"messages": [{"role": "user", "content": "word ".repeat(600)}]}), 400, "invalid_request_error", "the prompt has"),
        (json!({"system": 1}), 400, "invalid_request_error", "system is 1: a string or an array"),
        (json!({"stop_sequences": [""]}), 400, "invalid_request_error", "stop_sequences: a string"),
        (json!({"tools": [{"type": "web_search_20250305", "name": "x"}]}), 400, "invalid_request_error", "tools[0].type: only"),
        (json!({"tool_choice": {"type": "any"}}), 400, "invalid_request_error", "tool_choice: there are no tools"),
        (json!({"output_config": {"format": {"type": "json_schema"}}}), 400, "invalid_request_error", "output_config.format.schema: missing"),
    ] {
        let response = server.post(PATH, &request(&more));
        let body = response.json();
        assert_eq!((response.status, &body["type"], body["error"]["type"].as_str()), (status, &json!("error"), Some(kind)), "{more} {body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(message), "{more} {body}");
    }
    let format = json!({"type": "json_schema", "schema": {"type": "string", "enum": ["yes", "no"]}});
    let answer = server.answer(PATH, &request(&json!({"output_config": {"format": format}})));
    assert!(["\"yes\"", "\"no\""].contains(&text(&answer)), "{answer}");

    let server = start_with(crate::client::options(), ServerOptions { keys: vec!["secret".to_owned()], ..ServerOptions::default() });
    let body = request(&json!({})).to_string();
    let send = |header: &str| server.send("POST", PATH, &format!("Content-Type: application/json\r\n{header}"), body.as_bytes());
    let rejected = send("x-api-key: other\r\n");
    assert_eq!((rejected.status, &rejected.json()["error"]["type"]), (401, &json!("authentication_error")));
    assert_eq!(send("x-api-key: secret\r\n").status, 200);
}
