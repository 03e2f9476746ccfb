use std::time::{Duration, UNIX_EPOCH};

use super::*;

fn conversation() -> Vec<Message> {
    vec![Message::new("system", "Be brief."), Message::new("user", "  Hi there "), Message::new("assistant", "Hello."), Message::new("user", "Why?")]
}

fn options() -> ChatOptions {
    ChatOptions { now: UNIX_EPOCH + Duration::from_secs(1_709_251_199), ..ChatOptions::default() }
}

fn render(source: &str, messages: &[Message]) -> Result<String> {
    ChatTemplate::new(source, Some("<s>"), Some("</s>"))?.render(messages, &options())
}

fn expression(source: &str) -> String {
    render(&format!("{{{{ {source} }}}}"), &[]).unwrap()
}

/// In the manner of Llama 3: headers, the date, trimmed contents, whitespace control.
const HEADERS: &str = r#"{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "unknown" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|head|>system<|end|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\n" }}
{%- endif %}
{{- "Today: " + date_string + "\n" + system_message + "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|end|>\n\n' + message['content'] | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|end|>\n\n' }}
{%- endif %}
"#;

#[test]
fn a_template_in_the_manner_of_llama_3() {
    let expected = "<s><|head|>system<|end|>\n\nToday: 29 Feb 2024\nBe brief.<|eot|><|head|>user<|end|>\n\nHi there<|eot|>\
        <|head|>assistant<|end|>\n\nHello.<|eot|><|head|>user<|end|>\n\nWhy?<|eot|><|head|>assistant<|end|>\n\n";
    assert_eq!(render(HEADERS, &conversation()).unwrap(), expected);
}

/// In the manner of Mistral: strict alternation, the system's words before the last question.
const BRACKETS: &str = r#"{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("roles must alternate user/assistant/...") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- endif %}
{%- endfor %}
"#;

#[test]
fn a_template_in_the_manner_of_mistral() {
    assert_eq!(render(BRACKETS, &conversation()).unwrap(), "<s>[INST]   Hi there [/INST] Hello.</s>[INST] Be brief.\n\nWhy?[/INST]");
    let error = render(BRACKETS, &[Message::new("assistant", "x")]).unwrap_err().to_string();
    assert!(error.contains("roles must alternate user/assistant/...") && !error.contains('\n'), "{error}");
}

/// In the manner of Qwen 3: string methods, slices from the end, a loop over the reversed list, a switch.
const MARKUP: &str = r#"{%- if messages[0].role == 'system' %}
    {{- '<|start|>system\n' + messages[0].content + '<|end|>\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and message.content is string and not message.content.startswith('<tool>') %}
        {%- set ns.last = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|start|>' + message.role + '\n' + message.content + '<|end|>\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- generation %}
        {{- '<|start|>assistant\n' + content.strip() + '<|end|>\n' }}
        {%- endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"#;

#[test]
fn a_template_in_the_manner_of_qwen_3() {
    let mut messages = conversation();
    messages[2].content = "<think>\nA greeting.\n</think>\n\nHello.\n".to_owned();
    let template = ChatTemplate::new(MARKUP, None, None).unwrap();
    let body = "<|start|>system\nBe brief.<|end|>\n<|start|>user\n  Hi there <|end|>\n<|start|>assistant\nHello.<|end|>\n\
        <|start|>user\nWhy?<|end|>\n";
    assert_eq!(template.render(&messages, &options()).unwrap(), format!("{body}<|start|>assistant\n"));
    let still = ChatOptions { variables: vec![("enable_thinking".into(), "false".into())], ..options() };
    assert_eq!(template.render(&messages, &still).unwrap(), format!("{body}<|start|>assistant\n<think>\n\n</think>\n\n"));
    let closed = ChatOptions { add_generation_prompt: false, ..options() };
    assert_eq!(template.render(&messages, &closed).unwrap(), body);
}

#[test]
fn block_lines_leave_no_trace() {
    let source = "{% for m in messages %}\n    {% if loop.first %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\nend\n";
    assert_eq!(render(source, &conversation()).unwrap(), "Be brief.\nend");
}

#[test]
fn json_and_constants_are_written_as_in_python() {
    assert_eq!(expression(r#"{"b": [1, 2.0, none, true], "a": {"x": "é\"<\n"}}|tojson"#), r#"{"b": [1, 2.0, null, true], "a": {"x": "é\"<\n"}}"#);
    assert_eq!(expression(r#"{"b": [1], "c": []}|tojson(indent=2)"#), "{\n  \"b\": [\n    1\n  ],\n  \"c\": []\n}");
    assert_eq!((expression("true"), expression("none")), ("True".to_owned(), "None".to_owned()));
}

#[test]
fn hostile_templates_are_stopped() {
    let cases = [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "fuel"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}", "16 MiB"),
        ("{{ 'x' * 90000000 }}", "16 MiB"),
        ("{% include 'other' %}", "other"),
        ("{{ messages.nothing.at.all }}", "undefined"),
        ("{{ messages.frobnicate() }}", "frobnicate"),
    ];
    for (source, expected) in cases {
        let error = render(source, &[]).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{source}: {error}");
    }
    for source in ["{% if %}", "{{", "{% frobnicate %}", &"{% if true %}".repeat(500)] {
        let error = ChatTemplate::new(source, None, None).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("chat template: ") && !error.contains('\n'), "{error}");
    }
}
