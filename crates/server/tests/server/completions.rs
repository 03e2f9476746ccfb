//! `/v1/completions`.

use serde_json::{Value, json};

use crate::client::start;

const PATH: &str = "/v1/completions";

fn request(more: &Value) -> Value {
    let mut body = json!({"prompt": "ROMEO:", "max_tokens": 10, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn texts_tokens_and_arrays_of_either_are_continued() {
    let server = start();
    let texts = |more: Value| -> Vec<String> {
        let answer = server.answer(PATH, &request(&more));
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
    };
    let romeo = texts(json!({}));
    let juliet = texts(json!({"prompt": "JULIET:"}));
    assert!(romeo != juliet && !romeo[0].is_empty());
    assert_eq!(texts(json!({"prompt": ["ROMEO:", "JULIET:"], "n": 2})), [&romeo[..], &romeo, &juliet, &juliet].concat());
    assert_eq!(texts(json!({"echo": true})), [format!("ROMEO:{}", romeo[0])]);
    // OpenAI's default.
    let answer = server.answer(PATH, &json!({"prompt": "ROMEO:", "temperature": 0}));
    assert_eq!((&answer["object"], &answer["usage"]["completion_tokens"]), (&json!("text_completion"), &json!(16)));
    let events = server.post(PATH, &request(&json!({"stream": true, "prompt": ["ROMEO:", "JULIET:"], "echo": true}))).events();
    let mut streamed = vec![String::new(); 2];
    for event in &events {
        let choice = &event["choices"][0];
        streamed[choice["index"].as_u64().unwrap() as usize].push_str(choice["text"].as_str().unwrap());
    }
    assert_eq!(streamed, [format!("ROMEO:{}", romeo[0]), format!("JULIET:{}", juliet[0])]);
}

#[test]
fn log_probabilities_have_the_form_of_old() {
    let server = start();
    let answer = server.answer(PATH, &request(&json!({"logprobs": 2})));
    let (text, logprobs) = (answer["choices"][0]["text"].as_str().unwrap(), &answer["choices"][0]["logprobs"]);
    let tokens: Vec<_> = logprobs["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
    assert_eq!((tokens.concat(), tokens.len()), (text.to_owned(), 10));
    let mut offset = 0;
    for (index, token) in tokens.iter().enumerate() {
        assert_eq!(logprobs["text_offset"][index], offset);
        assert_eq!(logprobs["top_logprobs"][index][token], logprobs["token_logprobs"][index]);
        offset += token.len();
    }
}

#[test]
fn what_is_wrong_is_an_error_of_its_field() {
    let server = start();
    for (more, param, message) in [
        (json!({"prompt": null}), "prompt", "prompt: missing, and required"),
        (json!({"prompt": 3}), "prompt", "prompt: a string, an array of strings"),
        (json!({"prompt": []}), "prompt", "expected"),
        (json!({"prompt": ["a", 3]}), "prompt[1]", "expected"),
        (json!({"prompt": [1, 99999]}), "prompt", "token ids below 2048 expected"),
        (json!({"prompt": vec!["a"; 200]}), "prompt", "at most 128 answers"),
        (json!({"prompt": ["a", "b"], "n": 100}), "prompt", "at most 128 answers"),
        (json!({"suffix": "x"}), "suffix", "not supported"),
        (json!({"best_of": 2}), "best_of", "not supported"),
        (json!({"logprobs": 21}), "logprobs", "an integer from 0 to 20 expected"),
        (json!({"logprobs": 1, "echo": true}), "echo", "not supported together"),
    ] {
        let found = server.error(PATH, &request(&more));
        assert!(found.0 == 400 && found.1 == param && found.2.contains(message), "{more}: {found:?}");
    }
}

#[test]
fn a_request_from_a_file_has_the_answer_of_one_from_a_socket() {
    let server = start();
    let body = request(&json!({"digest": true}));
    let reply = elinvar_server::run_blocking(&server.models, PATH, body.to_string().as_bytes()).unwrap();
    let expected = server.answer(PATH, &body);
    assert_eq!((reply.status, &reply.body["choices"], &reply.body["elinvar"]["digest"]), (200, &expected["choices"], &expected["elinvar"]["digest"]));
    let of = |path: &str, body: &str| elinvar_server::run_blocking(&server.models, path, body.as_bytes()).unwrap();
    assert_eq!(of(PATH, r#"{"prompt": "a", "stream": true}"#).body["error"]["param"], "stream");
    assert_eq!((of("/v1/nothing", "{}").status, of(PATH, "{").status), (404, 400));
}
