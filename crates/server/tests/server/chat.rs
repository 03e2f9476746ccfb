//! `/v1/chat/completions` as clients check it.

use serde_json::{Value, json};

use crate::client::{NAME, start};

const PATH: &str = "/v1/chat/completions";

fn request(more: &Value) -> Value {
    let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "Speak, sir."}], "max_tokens": 6, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_stream_has_the_order_that_clients_expect_and_the_text_of_the_whole_answer() {
    let server = start();
    let whole = server.answer(PATH, &request(&json!({"digest": true})));
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!(NAME)));
    let choice = &whole["choices"][0];
    assert_eq!((&choice["message"]["role"], &choice["finish_reason"], &choice["logprobs"]), (&json!("assistant"), &json!("length"), &json!(null)));
    assert_eq!(whole["usage"]["completion_tokens"], 6);
    let prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(whole["usage"]["total_tokens"], prompt + 6);
    let text = choice["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());

    let response = server.post(PATH, &request(&json!({"stream": true, "stream_options": {"include_usage": true}, "digest": true})));
    let events = response.events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (usage, chunks) = events.split_last().unwrap();
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(6)));
    for chunk in chunks {
        assert_eq!((&chunk["object"], &chunk["id"], &chunk["usage"]), (&json!("chat.completion.chunk"), &events[0]["id"], &json!(null)));
    }
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"][0]["finish_reason"], &last["choices"][0]["delta"]), (&json!("length"), &json!({})));
    assert!(others.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()));
    let streamed: String = others[1..].iter().map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(streamed, text);
    // The same bits, streamed or not.
    assert_eq!((last["elinvar"]["digest"].as_str().unwrap().len(), &last["elinvar"]["digest"]), (64, &whole["elinvar"]["digest"]));
    // Without being asked for, neither comes.
    let events = server.post(PATH, &request(&json!({"stream": true}))).events();
    assert!(events.iter().all(|chunk| chunk.get("usage").is_none() && chunk.get("elinvar").is_none()));
}

#[test]
fn seeds_choose_answers_and_each_choice_has_its_own() {
    let server = start();
    let texts = |more: Value| -> Vec<String> {
        let answer = server.answer(PATH, &request(&more));
        let choices = answer["choices"].as_array().unwrap();
        choices
            .iter()
            .enumerate()
            .map(|(index, choice)| {
                assert_eq!(choice["index"], index);
                choice["message"]["content"].as_str().unwrap().to_owned()
            })
            .collect()
    };
    let three = texts(json!({"n": 3, "seed": 7, "temperature": 1}));
    assert_eq!(three.len(), 3);
    assert!(three[0] != three[1] && three[1] != three[2]);
    // Choice 2 of seed 7 is the answer of seed 9.
    assert_eq!(texts(json!({"seed": 9, "temperature": 1})), three[2..]);
    assert_ne!(texts(json!({"temperature": 1})), texts(json!({"temperature": 1})));
    // At temperature 0 seeds mean nothing.
    assert_eq!(texts(json!({"seed": 1})), texts(json!({"seed": 2})));
    let events = server.post(PATH, &request(&json!({"n": 3, "seed": 7, "temperature": 1, "stream": true}))).events();
    let mut streamed = vec![String::new(); 3];
    for event in &events {
        let choice = &event["choices"][0];
        streamed[choice["index"].as_u64().unwrap() as usize].push_str(choice["delta"]["content"].as_str().unwrap_or_default());
    }
    assert_eq!(streamed, three);
    assert_eq!(events.iter().filter(|event| !event["choices"][0]["finish_reason"].is_null()).count(), 3);
}

#[test]
fn log_probabilities_are_those_of_the_tokens_that_are_given_out() {
    let server = start();
    let more = json!({"logprobs": true, "top_logprobs": 3});
    let whole = server.answer(PATH, &request(&more));
    let choice = &whole["choices"][0];
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 6);
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token["bytes"].as_array().unwrap()).map(|byte| byte.as_u64().unwrap() as u8).collect();
    assert_eq!(String::from_utf8(bytes).unwrap(), choice["message"]["content"].as_str().unwrap());
    for token in tokens {
        // At temperature 0 the chosen token is the most likely.
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["logprob"], &top[0]["token"]), (3, &token["logprob"], &token["token"]));
        assert!(top[0]["logprob"].as_f64().unwrap() >= top[1]["logprob"].as_f64().unwrap() && top[0]["logprob"].as_f64().unwrap() <= 0.0);
    }
    let events = server.post(PATH, &request(&json!({"logprobs": true, "top_logprobs": 3, "stream": true}))).events();
    let streamed: Vec<_> = events.iter().filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array()).flatten().cloned().collect();
    assert_eq!(&streamed, tokens);
    // A stop string in the middle cuts both.
    let text = choice["message"]["content"].as_str().unwrap();
    let stop: String = text.chars().skip(10).take(4).collect();
    let cut = server.answer(PATH, &request(&json!({"logprobs": true, "stop": stop})));
    let kept = &text[..text.find(&stop).unwrap()];
    assert_eq!((&cut["choices"][0]["message"]["content"], &cut["choices"][0]["finish_reason"]), (&json!(kept), &json!("stop")));
    let starts: usize = cut["choices"][0]["logprobs"]["content"].as_array().unwrap().iter().map(|token| token["token"].as_str().unwrap().len()).sum();
    assert!(starts >= kept.len() && starts < kept.len() + stop.len() + 8, "{starts} {kept:?}");
    let events = server.post(PATH, &request(&json!({"stream": true, "stop": [stop]}))).events();
    let streamed: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(streamed, kept);
}

#[test]
fn penalties_biases_and_filters_change_the_answer() {
    let server = start();
    let text = |more: Value| server.answer(PATH, &request(&more))["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    let plain = text(json!({}));
    let tokens = server.answer(PATH, &request(&json!({"logprobs": true})));
    let first = tokens["choices"][0]["logprobs"]["content"][0]["id"].as_u64().unwrap();
    assert_ne!(text(json!({"logit_bias": {first.to_string(): -100}})), plain);
    let long = |penalty: f32| {
        let body = json!({"prompt": "ROMEO:", "max_tokens": 60, "temperature": 0, "frequency_penalty": penalty, "presence_penalty": penalty});
        server.answer("/v1/completions", &body)["choices"][0]["text"].clone()
    };
    assert_ne!(long(2.0), long(0.0));
    for greedy in [json!({"temperature": 1, "top_k": 1}), json!({"temperature": 1, "top_p": 0}), json!({"temperature": 2, "min_p": 1})] {
        assert_eq!(text(greedy), plain);
    }
}

#[test]
fn a_prompt_that_was_seen_is_cached_and_gives_the_same_bits() {
    let server = start();
    let long: String = (0..60).map(|i| format!("word{i} ")).collect();
    let body = json!({"messages": [{"role": "system", "content": long}, {"role": "user", "content": [{"type": "text", "text": "Go on."}]}],
        "max_tokens": 6, "temperature": 1, "seed": 3, "digest": true});
    let (first, second) = (server.answer(PATH, &body), server.answer(PATH, &body));
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!((cached(&first), cached(&second)), (0, (prompt - 1) / 32 * 32));
    assert!(cached(&second) > 0);
    assert_eq!((&first["choices"], &first["elinvar"]), (&second["choices"], &second["elinvar"]));
}

#[test]
fn what_is_wrong_is_an_error_of_its_field_and_the_next_request_is_answered() {
    let server = start();
    let long = "word ".repeat(600);
    for (more, status, param, message) in [
        (json!({"model": "gpt-4"}), 404, "model", "there is no model 'gpt-4': those that continue texts are shakespeare"),
        (json!({"messages": "hi"}), 400, "messages", "messages is \"hi\": an array of messages expected"),
        (json!({"messages": []}), 400, "messages", "messages: empty, and at least one is required"),
        (json!({"messages": [{"role": "king", "content": ""}]}), 400, "messages[0].role", "messages[0].role: system,"),
        (json!({"messages": [{"role": "user"}]}), 400, "messages[0].content", "messages[0].content: missing"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), 400, "messages[0].content[0].type", "only \"text\""),
        (json!({"messages": [{"role": "user", "content": long}]}), 400, "messages", "the prompt has"),
        (json!({"temperature": -1}), 400, "temperature", "temperature is -1: a number from 0 to 2 expected"),
        (json!({"temperature": "hot"}), 400, "temperature", "temperature is \"hot\""),
        (json!({"max_tokens": -5}), 400, "max_tokens", "max_tokens is -5: an integer from 0 expected"),
        (json!({"n": 0}), 400, "n", "n is 0: an integer from 1 to 128 expected"),
        (json!({"top_logprobs": 2}), 400, "top_logprobs", "needs logprobs"),
        (json!({"logprobs": true, "top_logprobs": 99}), 400, "top_logprobs", "an integer from 0 to 20 expected"),
        (json!({"stop": [""]}), 400, "stop", "stop: a string that is not empty"),
        (json!({"logit_bias": {"9999": 1}}), 400, "logit_bias.9999", "a token id below 2048 expected"),
        (json!({"logit_bias": {"1": 1e9}}), 400, "logit_bias.1", "a number from -100 to 100 expected"),
        (json!({"seed": 1.5}), 400, "seed", "an integer of 64 bits expected"),
        (json!({"stream": "yes"}), 400, "stream", "stream is \"yes\": true or false expected"),
        (json!({"functions": []}), 400, "functions", "use tools"),
    ] {
        let found = server.error(PATH, &request(&more));
        assert!(found.0 == status && found.1 == param && found.2.contains(message), "{more}: {found:?}");
    }
    // As many tokens as the context has room for.
    let huge = server.answer(PATH, &request(&json!({"max_tokens": u64::MAX, "ignore_eos": true, "stop": null, "unknown": 1})));
    assert!(huge["choices"][0]["finish_reason"] == "length" || huge["choices"][0]["finish_reason"] == "stop");
    for body in [&b"{"[..], b"[]", b"", b"\xff", &[b'['; 100_000]] {
        let response = server.send("POST", PATH, "Content-Type: application/json\r\n", body);
        assert_eq!((response.status, response.json()["error"]["type"].as_str()), (400, Some("invalid_request_error")));
    }
    server.wait_until_idle();
}
