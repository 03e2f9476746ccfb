//! `/v1/responses`, tokens and vectors.

use std::{collections::HashMap, fs, path::Path};

use elinvar::{Executor, Precision};
use elinvar_llm::{Encoder, ModelFiles};
use elinvar_server::{Embedder, ServerOptions};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

use crate::client::{serve, start, start_with_template};

const PATH: &str = "/v1/responses";

fn request(more: &Value) -> Value {
    let mut body = json!({"input": "Speak, sir.", "max_output_tokens": 6, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_response_is_items_whole_or_by_events() {
    let server = start();
    let chat = json!({"messages": [{"role": "user", "content": "Speak, sir."}], "max_tokens": 6, "temperature": 0});
    let expected = server.answer("/v1/chat/completions", &chat)["choices"][0]["message"]["content"].clone();
    let whole = server.answer(PATH, &request(&json!({})));
    assert_eq!(
        (&whole["object"], &whole["status"], &whole["incomplete_details"]["reason"]),
        (&json!("response"), &json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!((&whole["output"][0]["content"][0]["text"], &whole["output"][0]["role"]), (&expected, &json!("assistant")));
    assert_eq!((&whole["usage"]["output_tokens"], &whole["usage"]["output_tokens_details"]["reasoning_tokens"]), (&json!(6), &json!(0)));
    let items = json!([{"role": "user", "content": [{"type": "input_text", "text": "Speak, sir."}]}]);
    assert_eq!(server.answer(PATH, &request(&json!({"input": items})))["output"][0]["content"], whole["output"][0]["content"]);

    let text = server.post(PATH, &request(&json!({"stream": true}))).text;
    let events: Vec<(String, Value)> = text
        .split("\n\n")
        .filter(|event| !event.is_empty())
        .map(|event| {
            let (mut name, mut data) = (String::new(), Value::Null);
            for line in event.lines() {
                match line.split_once(": ").unwrap() {
                    ("event", value) => name = value.to_owned(),
                    ("data", value) => data = serde_json::from_str(value).unwrap(),
                    other => panic!("{other:?}"),
                }
            }
            (name, data)
        })
        .collect();
    for (index, (name, data)) in events.iter().enumerate() {
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(index)));
    }
    let mut names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    let expected_names = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ];
    assert_eq!(names, expected_names.map(|name| format!("response.{name}")));
    let streamed: String = events.iter().filter(|(name, _)| name.ends_with("text.delta")).map(|(_, data)| data["delta"].as_str().unwrap()).collect();
    assert_eq!(json!(streamed), expected);
    assert_eq!(events.last().unwrap().1["response"]["output"][0]["content"], whole["output"][0]["content"]);
}

#[test]
fn a_response_calls_tools_and_keeps_to_formats() {
    let server = start_with_template("{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}\n{% endfor %}");
    let tools = json!([{"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}]);
    let whole = server.answer(PATH, &request(&json!({"tools": tools, "tool_choice": "required", "max_output_tokens": 60})));
    let item = &whole["output"][0];
    assert_eq!(
        (&item["type"], &item["name"], &item["arguments"], &whole["status"]),
        (&json!("function_call"), &json!("now"), &json!("{}"), &json!("completed"))
    );
    let more = json!([{"role": "user", "content": "?"}, item, {"type": "function_call_output", "call_id": item["call_id"], "output": "noon"}]);
    assert_eq!(server.answer(PATH, &request(&json!({"input": more})))["object"], "response");
    let format = json!({"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["one", "two"]}}});
    let text = server.answer(PATH, &request(&json!({"text": format, "max_output_tokens": 30})))["output"][0]["content"][0]["text"].clone();
    assert!(text == "\"one\"" || text == "\"two\"", "{text}");
    for (more, param) in [
        (json!({"input": null}), "input"),
        (json!({"input": 3}), "input"),
        (json!({"input": [{"type": "image"}]}), "input[0].type"),
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema"),
        (json!({"text": {"format": {"type": "regex", "pattern": "("}}}), "text.format"),
    ] {
        let (status, found, message) = server.error(PATH, &request(&more));
        assert!(status == 400 && found == param, "{more}: {status} {found} {message}");
    }
}

#[test]
fn tokens_are_those_of_the_model() {
    let server = start();
    let text = "To be, or not to be: é🦀";
    let tokens = server.answer("/tokenize", &json!({"content": text}))["tokens"].clone();
    assert_eq!(server.answer("/detokenize", &json!({"tokens": tokens})), json!({"content": text}));
    let with = server.answer("/tokenize", &json!({"content": text, "add_special": true, "with_pieces": true}))["tokens"].clone();
    let (with, tokens) = (with.as_array().unwrap(), tokens.as_array().unwrap());
    assert_eq!((with.len(), &with[1]["id"], &with[1]["piece"]), (tokens.len() + 1, &tokens[0], &json!("To")));
    assert_eq!(server.error("/tokenize", &json!({})).1, "content");
    assert_eq!(server.error("/detokenize", &json!({"tokens": [99999]})).1, "tokens");
}

/// An encoder of one layer for the words w0 to w9.
fn encoder() -> Encoder {
    const WIDTH: usize = 4;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("encoder");
    fs::create_dir_all(&folder).unwrap();
    let tokens = ["[UNK]", "[CLS]", "[SEP]"].map(str::to_owned).into_iter().chain((0..10).map(|n| format!("w{n}")));
    let vocab: HashMap<_, _> = tokens.zip(0..).collect();
    let config = json!({"architectures": ["BertModel"], "vocab_size": vocab.len(), "hidden_size": WIDTH, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 8});
    let tokenizer = json!({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let mut tensors: Vec<(String, Vec<usize>)> = [("word", vocab.len()), ("position", 8), ("token_type", 2)]
        .map(|(name, rows)| (format!("embeddings.{name}_embeddings.weight"), vec![rows, WIDTH]))
        .to_vec();
    for name in ["embeddings.LayerNorm", "encoder.layer.0.attention.output.LayerNorm", "encoder.layer.0.output.LayerNorm"] {
        tensors.extend(["weight", "bias"].map(|part| (format!("{name}.{part}"), vec![WIDTH])));
    }
    let square = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"].map(|name| (name, [WIDTH, WIDTH]));
    for (name, dims) in square.into_iter().chain([("intermediate.dense", [8, WIDTH]), ("output.dense", [WIDTH, 8])]) {
        tensors.push((format!("encoder.layer.0.{name}.weight"), dims.to_vec()));
        tensors.push((format!("encoder.layer.0.{name}.bias"), vec![dims[0]]));
    }
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(name, dims)| (0..dims.iter().product::<usize>()).flat_map(|i| ((i * 7 + name.len() * 3) as f32).sin().to_le_bytes()).collect())
        .collect();
    let views = tensors.iter().zip(&bytes).map(|((name, dims), bytes)| (name, TensorView::new(Dtype::F32, dims.clone(), bytes).unwrap()));
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    let executor = Executor::new_cpu(1.try_into().unwrap()).unwrap().with_precision(Precision::Strict);
    Encoder::open(&executor, &ModelFiles::open(folder).unwrap()).unwrap()
}

#[test]
fn vectors_are_those_of_the_encoder() {
    const VECTORS: &str = "/v1/embeddings";
    let encoder = encoder();
    let texts = ["w3 w1", "w2", "w9 w9 w1"];
    let expected = encoder.embed(&texts, encoder.options()).unwrap();
    let server = serve(Vec::new(), vec![Embedder::new("tiny", encoder)], ServerOptions::default());
    let answer = server.answer(VECTORS, &json!({"model": "tiny", "input": texts}));
    assert_eq!(answer["usage"]["prompt_tokens"], expected.tokens().iter().sum::<usize>());
    for (index, data) in answer["data"].as_array().unwrap().iter().enumerate() {
        let vector: Vec<f32> = data["embedding"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect();
        assert_eq!((&data["index"], &vector[..]), (&json!(index), expected.row(index)));
    }
    let packed = server.answer(VECTORS, &json!({"input": "w2", "encoding_format": "base64"}))["data"][0]["embedding"].clone();
    // Four floats are sixteen bytes.
    assert_eq!(packed.as_str().unwrap().len(), 24);
    for (more, param) in [
        (json!({"input": []}), "input"),
        (json!({"input": [""]}), "input"),
        (json!({"input": [1, 2]}), "input"),
        (json!({"input": "w1", "dimensions": 2}), "dimensions"),
        (json!({"input": "w1", "encoding_format": "hex"}), "encoding_format"),
        (json!({"input": "w1", "model": "other"}), "model"),
    ] {
        assert_eq!(server.error(VECTORS, &more).1, param, "{more}");
    }
    assert_eq!(start().error(VECTORS, &json!({"input": "w1"})).0, 404);
}
