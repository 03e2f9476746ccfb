//! Grammars and tools: what an answer is limited to, and what is read out of it.

use serde_json::{Value, json};

use crate::client::{Running, start, start_with_template};

const PATH: &str = "/v1/chat/completions";

fn request(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Speak."}], "max_tokens": 80, "temperature": 1, "seed": 5});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap()
}

/// A schema whose values are short.
fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
        "properties": {
            "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
        },
    })
}

fn check(value: &Value) {
    assert!(value["name"].as_str().unwrap().chars().count() <= 8, "{value}");
    assert!((0..100).contains(&value["age"].as_i64().unwrap()), "{value}");
    let tags = value["tags"].as_array().unwrap();
    assert!((1..=2).contains(&tags.len()) && tags.iter().all(|tag| tag == "a" || tag == "b"), "{value}");
    assert_eq!(value.as_object().unwrap().len(), 3);
}

#[test]
fn an_answer_is_what_its_grammar_allows() {
    let server = start();
    let format = json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema(), "strict": true}});
    let answer = server.answer(PATH, &request(&json!({"response_format": format, "n": 8})));
    for choice in answer["choices"].as_array().unwrap() {
        assert_eq!(choice["finish_reason"], "stop");
        check(&serde_json::from_str(choice["message"]["content"].as_str().unwrap()).unwrap());
    }
    let of = |format: Value| server.answer(PATH, &request(&json!({"response_format": format, "digest": true})));
    let date = of(json!({"type": "regex", "pattern": "[0-9]{4}-[01][0-9]"}));
    assert!(text(&date).len() == 7 && text(&date).as_bytes()[4] == b'-', "{date}");
    let choice = of(json!({"type": "lark", "grammar": "start: \"yes\" | \"no\""}));
    assert!(["yes", "no"].contains(&text(&choice)), "{choice}");
    // A sentence may take more tokens than there are; an object is one as far as it goes.
    let object = of(json!({"type": "json_object"}));
    assert!(text(&object).starts_with('{'), "{object}");
    // Others have a schema beside json_object, which limits as much.
    let object = of(json!({"type": "json_object", "schema": {"const": "42"}}));
    assert_eq!(text(&object), "\"42\"");
    // The same beside others.
    let asked: Vec<_> =
        (0..4).map(|i| server.ask(PATH, &request(&json!({"seed": i, "response_format": {"type": "regex", "pattern": "[a-z]{5}"}})))).collect();
    assert_eq!(text(&date), text(&of(json!({"type": "regex", "pattern": "[0-9]{4}-[01][0-9]"}))));
    for stream in asked {
        let answer = crate::client::read(stream).json();
        assert!(text(&answer).len() == 5 && text(&answer).bytes().all(|byte| byte.is_ascii_lowercase()), "{answer}");
    }
    server.wait_until_idle();
}

#[test]
fn a_grammar_that_is_wrong_is_never_passed_over() {
    let server = start();
    for (format, param) in [
        (json!({"type": "json_schema"}), "response_format.schema"),
        (json!({"type": "json_schema", "json_schema": {"name": "x"}}), "response_format.json_schema.schema"),
        (json!({"type": "json_schema", "json_schema": {"schema": 3}}), "response_format.json_schema.schema"),
        (json!({"type": "json_schema", "json_schema": {"schema": {"type": "wrong"}}}), "response_format"),
        (json!({"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/none"}}}), "response_format"),
        (json!({"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": "("}}}), "response_format"),
        (json!({"type": "json_object", "schema": 123}), "response_format.schema"),
        (json!({"type": "json_object", "schema": {"type": "hiccup"}}), "response_format"),
        (json!({"type": "regex"}), "response_format.pattern"),
        (json!({"type": "regex", "pattern": "(("}), "response_format"),
        (json!({"type": "lark", "grammar": "begin: \"a\""}), "response_format"),
        (json!({"type": "yaml"}), "response_format.type"),
        (json!("json"), "response_format"),
    ] {
        let (status, found, message) = server.error(PATH, &request(&json!({"response_format": format})));
        assert!(status == 400 && found == param && !message.contains('\n'), "{format}: {status} {found} {message}");
    }
    for name in ["grammar", "guided_json", "structured_outputs"] {
        let (status, param, _) = server.error(PATH, &request(&json!({name: "x"})));
        assert_eq!((status, param.as_str()), (400, name));
    }
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"], "additionalProperties": false});
    json!([
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": parameters}},
        {"type": "function", "function": {"name": "now"}},
    ])
}

const TEMPLATES: [&str; 3] = [
    "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}",
    "{% if tools %}[TOOL_CALLS]{{ tools | tojson }}{% endif %}",
    "{% if tools %}ipython {{ tools | tojson }}{% endif %}",
];

fn with_template(template: &str) -> Running {
    start_with_template(&format!(
        "{template}{{% for m in messages %}}{{{{ m.role }}}}: {{{{ m.content }}}}{{{{ m.tool_calls | default('') }}}}\n{{% endfor %}}"
    ))
}

#[test]
fn a_tool_that_must_be_called_is() {
    for template in TEMPLATES {
        let server = with_template(template);
        for (choice, name) in [(json!("required"), None), (json!({"type": "function", "function": {"name": "add"}}), Some("add"))] {
            let more = json!({"tools": tools(), "tool_choice": choice, "max_tokens": 60});
            let answer = server.answer(PATH, &request(&more));
            let (message, finish) = (&answer["choices"][0]["message"], &answer["choices"][0]["finish_reason"]);
            assert_eq!((&message["content"], finish), (&json!(null), &json!("tool_calls")), "{template} {answer}");
            let call = &message["tool_calls"][0];
            assert!(name.is_none_or(|name| call["function"]["name"] == name) && call["id"].as_str().unwrap().len() == 9, "{answer}");
            let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(call["function"]["name"] == "now" || (0..100).contains(&arguments["a"].as_i64().unwrap()), "{answer}");

            let mut more = more;
            more["stream"] = true.into();
            let events = server.post(PATH, &request(&more)).events();
            let calls: Vec<_> = events.iter().filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
            assert_eq!((calls.len(), &calls[0]["index"], &calls[0]["function"]), (1, &json!(0), &call["function"]));
            assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
        }
        // The conversation goes on with the call and what came of it.
        let history = json!([
            {"role": "user", "content": "Add."},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "content": "2"},
        ]);
        assert!(
            server.answer(PATH, &request(&json!({"messages": history, "tools": tools(), "max_tokens": 4})))["choices"][0]["message"]["content"]
                .is_string()
        );
    }
}

#[test]
fn tools_that_cannot_be_called_are_an_error() {
    let server = with_template(TEMPLATES[0]);
    for (more, param) in [
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
        (json!({"tools": [{"type": "function", "function": {"name": "x", "parameters": []}}]}), "tools[0].function.parameters"),
        (json!({"tools": tools(), "tool_choice": "always"}), "tool_choice"),
        (json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "sub"}}}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": "{"}}]}]}),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ] {
        let (status, found, message) = server.error(PATH, &request(&more));
        assert!(status == 400 && found == param, "{more}: {status} {found} {message}");
    }
    let (status, param, _) = start().error(PATH, &request(&json!({"tools": tools()})));
    assert_eq!((status, param.as_str()), (400, "tools"));
    assert_eq!(server.post(PATH, &request(&json!({"tools": tools(), "tool_choice": "none", "max_tokens": 3}))).status, 200);
}
