//! Who may ask, how much, and what becomes of those who leave.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use elinvar_llm::EngineOptions;
use elinvar_server::ServerOptions;
use serde_json::{Value, json};

use crate::client::{options, read, start, start_with};

const PATH: &str = "/v1/completions";
const JSON: &str = "Content-Type: application/json\r\n";

fn long(more: &Value) -> Value {
    let mut body = json!({"prompt": "ROMEO:", "max_tokens": 500, "ignore_eos": true, "seed": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn what_needs_no_engine_is_answered() {
    let server = start();
    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    let models = server.get("/v1/models").json();
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("shakespeare")));
    assert_eq!(server.get("/v1/models/default").json(), models["data"][0]);
    assert!(server.get("/").text.contains("<!doctype html>"));
    let document = server.get("/openapi.json").json();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let path = path.replace("{name}", "shakespeare");
            let status = server.send(&method.to_uppercase(), &path, JSON, b"{}").status;
            assert!(status == 200 || method == "post" && [400, 404].contains(&status), "{method} {path}: {status}");
        }
    }
    for (method, path, status) in [("GET", "/v1/nothing", 404), ("GET", PATH, 405), ("DELETE", "/health", 405), ("GET", "/v1/models/other", 404)] {
        let response = server.send(method, path, "", b"");
        assert_eq!((response.status, response.json()["error"]["message"].is_string()), (status, true), "{method} {path}");
        // No page of another origin may read anything.
        assert!(!response.headers.contains_key("access-control-allow-origin"));
    }
}

#[test]
fn figures_and_slots_show_what_is_computed() {
    let server = start();
    server.answer(PATH, &json!({"prompt": "ROMEO:", "max_tokens": 5, "ignore_eos": true}));
    let asked = server.ask(PATH, &long(&json!({"stream": true, "n": 2})));
    server.wait_for_running(2);
    let slots = server.get("/slots").json();
    assert_eq!((slots.as_array().unwrap().len(), &slots[1]["choice"], &slots[1]["prompt_tokens"]), (2, &json!(1), &slots[0]["prompt_tokens"]));
    drop(asked);
    server.wait_until_idle();
    server.get("/nothing/of/use");
    let text = server.get("/metrics").text;
    let value = |line: &str| -> f64 {
        let found = text.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_else(|| panic!("{line} in {text}"));
        found.trim().parse().unwrap()
    };
    assert_eq!(value("elinvar_answers_total{model=\"shakespeare\"}"), 1.0);
    assert!(value("elinvar_generated_tokens_total{model=\"shakespeare\"}") >= 5.0);
    assert!(value("elinvar_first_token_seconds_count{model=\"shakespeare\"}") >= 1.0);
    assert_eq!(value("elinvar_cache_pages_free{model=\"shakespeare\"}"), value("elinvar_cache_pages{model=\"shakespeare\"}"));
    assert_eq!(value("elinvar_responses_total{path=\"/v1/completions\",status=\"200\"}"), 2.0);
    assert_eq!(value("elinvar_responses_total{path=\"\",status=\"404\"}"), 1.0);
}

#[test]
fn without_its_key_a_request_is_rejected_before_its_body_is_read() {
    let keys = vec!["first key".to_owned(), "second".to_owned()];
    let server = start_with(options(), ServerOptions { keys, ..ServerOptions::default() });
    for key in ["", "Authorization: Bearer wrong\r\n", "Authorization: second\r\n", "Authorization: Bearer second \u{e9}\r\n"] {
        // A body that never comes.
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{JSON}{key}Content-Length: 100\r\n\r\n").unwrap();
        let response = read(stream);
        assert_eq!((response.status, response.json()["error"]["code"].as_str()), (401, Some("invalid_api_key")), "{key}");
    }
    assert_eq!((server.get("/health").status, server.get("/").status, server.get("/v1/models").status), (200, 200, 401));
    let body = json!({"prompt": "a", "max_tokens": 1}).to_string();
    for key in ["first key", "second"] {
        assert_eq!(server.send("POST", PATH, &format!("{JSON}Authorization: Bearer {key}\r\n"), body.as_bytes()).status, 200);
    }
}

#[test]
fn pages_of_other_sites_cannot_ask() {
    let server = start();
    // What a form of another page can send.
    assert_eq!(server.send("POST", PATH, "Content-Type: text/plain\r\n", b"{}").status, 415);
    for (host, status) in [("evil.example", 403), ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200)] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        assert_eq!(read(stream).status, status, "{host}");
    }
}

#[test]
fn a_body_that_is_too_large_is_rejected_with_or_without_its_length() {
    let server = start_with(options(), ServerOptions { body_bytes: 1000, ..ServerOptions::default() });
    let body = json!({"prompt": "x".repeat(2000)}).to_string();
    assert_eq!(server.send("POST", PATH, JSON, body.as_bytes()).status, 413);
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(
        stream,
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n7d0\r\n{}\r\n0\r\n\r\n",
        "x".repeat(2000)
    )
    .unwrap();
    assert_eq!(read(stream).status, 413);
}

#[test]
fn a_full_queue_says_so_and_takes_all_choices_or_none() {
    let engine = EngineOptions { running: 1, waiting: 2, ..options() };
    let server = start_with(engine, ServerOptions::default());
    let streams: Vec<_> = (0..3)
        .map(|_| {
            let stream = server.ask(PATH, &long(&json!({"stream": true})));
            server.wait_for_running(1);
            stream
        })
        .collect();
    let start = Instant::now();
    while server.models.served()[0].statistics().waiting < 2 {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    let (status, _, message) = server.error(PATH, &long(&json!({})));
    assert_eq!((status, message.as_str()), (429, "the queue is full: ask again later"));
    drop(streams);
    server.wait_until_idle();
    assert_eq!(server.error(PATH, &long(&json!({"n": 3}))).0, 429);
    assert_eq!(server.models.served()[0].statistics().waiting, 0);
}

#[test]
fn who_vanishes_is_cancelled_in_every_phase() {
    let server = start_with(EngineOptions { running: 2, step_tokens: 16, ..options() }, ServerOptions::default());
    let prompt = "to be or not to be ".repeat(40);
    for stream in [false, true] {
        // In the queue, in the prompt, and in the answer.
        for wait in [0, 3, 40] {
            let asked: Vec<_> = (0..4).map(|i| server.ask(PATH, &long(&json!({"prompt": format!("{i}{prompt}"), "stream": stream})))).collect();
            server.wait_for_running(1);
            std::thread::sleep(Duration::from_millis(wait));
            drop(asked);
            server.wait_until_idle();
        }
        let generated = server.models.served()[0].statistics().generated_tokens;
        assert!(generated < 4 * 3 * 400, "{generated}");
    }
}

#[test]
fn slow_readers_and_half_open_sockets_leave_others_alone() {
    let server = start();
    // Heads and bodies that do not end, and an answer that nobody reads.
    let mut half = TcpStream::connect(server.address).unwrap();
    half.write_all(b"POST /v1/completions HT").unwrap();
    let mut body = TcpStream::connect(server.address).unwrap();
    write!(body, "POST {PATH} HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 100\r\n\r\n{{").unwrap();
    let unread = server.ask(PATH, &long(&json!({"stream": true, "n": 4, "logprobs": 20, "max_tokens": 150})));
    let answer = server.answer(PATH, &json!({"prompt": "ROMEO:", "max_tokens": 5}));
    assert_eq!(answer["usage"]["completion_tokens"], 5);
    server.wait_until_idle();
    // It is still there for who comes late.
    let events = read(unread).events();
    assert_eq!(events.iter().filter(|event| !event["choices"][0]["finish_reason"].is_null()).count(), 4);
}

#[test]
fn a_request_that_takes_too_long_ends_with_an_error() {
    let server = start_with(options(), ServerOptions { request_time: Duration::from_millis(30), ..ServerOptions::default() });
    assert_eq!(server.error(PATH, &long(&json!({}))).0, 504);
    let response = server.post(PATH, &long(&json!({"stream": true})));
    let last = response.text.trim_end().rsplit("\n\n").next().unwrap();
    assert!(response.status == 504 || last.contains("timeout_error"), "{last}");
    server.wait_until_idle();
}

#[test]
fn a_server_that_stops_lets_answers_finish_and_then_cancels() {
    let body = json!({"prompt": "ROMEO:", "max_tokens": 60, "ignore_eos": true, "stream": true});
    let mut server = start();
    let finished = server.ask(PATH, &body);
    server.wait_for_running(1);
    server.stop();
    assert_eq!(read(finished).events().iter().filter(|event| event["choices"][0]["finish_reason"] == "length").count(), 1);
    assert!(TcpStream::connect(server.address).is_err());

    let mut server = start_with(options(), ServerOptions { grace: Duration::from_millis(1), ..ServerOptions::default() });
    let mut cut = server.ask(PATH, &long(&json!({"stream": true})));
    server.wait_for_running(1);
    server.stop();
    let mut text = String::new();
    // A connection that is cut may be reset.
    let _ = cut.read_to_string(&mut text);
    assert!(!text.contains("[DONE]"));
    server.wait_until_idle();
}

/// Asks all at once, a thousand if `tools/test --all` asks; each must have the bits that it has alone.
#[test]
fn many_requests_at_once_hold_nothing_of_each_other() {
    let count = if std::env::var_os("ELINVAR_TESTS").is_some_and(|tests| tests == "all") { 1000 } else { 48 };
    let server = start_with(EngineOptions { running: 64, ..options() }, ServerOptions::default());
    let body =
        |i: usize| json!({"prompt": format!("marker{i}: marker{i}"), "max_tokens": 6, "temperature": (i % 2) as f32, "seed": i, "digest": true});
    let asked: Vec<_> = (0..count).map(|i| server.ask(PATH, &body(i))).collect();
    let found: Vec<_> = asked.into_iter().map(|stream| read(stream).json()).collect();
    for (i, found) in found.iter().enumerate() {
        // One after the other, some of them.
        if i % (count / 16) == 0 {
            let alone = server.answer(PATH, &body(i));
            assert_eq!((&found["choices"], &found["elinvar"]), (&alone["choices"], &alone["elinvar"]), "{i}");
        }
        let text = found["choices"][0]["text"].as_str().unwrap();
        for digits in text.split("marker").skip(1) {
            let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
            assert!(number.is_empty() || i.to_string().starts_with(&number), "{i}: {text}");
        }
    }
    server.wait_until_idle();
}
