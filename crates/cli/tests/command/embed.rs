//! `elinvar embed` on an encoder of one layer.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

const WIDTH: usize = 4;

fn elinvar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elinvar")).arg("embed").args(arguments).args(["--device", "cpu", "--precision", "strict"]).output().unwrap()
}

fn rejection(arguments: &[&str]) -> String {
    let output = elinvar(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty() && text.trim_end().lines().count() == 1, "{arguments:?}: {text}");
    text
}

/// A model of the words w0 to w9 that takes 8 tokens.
pub(crate) fn model(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let tokens = ["[UNK]", "[CLS]", "[SEP]"].map(str::to_owned).into_iter().chain((0..10).map(|n| format!("w{n}")));
    let vocab: HashMap<_, _> = tokens.zip(0..).collect();
    let config = json!({
        "architectures": ["BertModel"], "vocab_size": vocab.len(), "hidden_size": WIDTH, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 8,
    });
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab},
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let vectors = ["embeddings.LayerNorm", "encoder.layer.0.attention.output.LayerNorm", "encoder.layer.0.output.LayerNorm"];
    let layers = [
        ("attention.self.query", [WIDTH, WIDTH]),
        ("attention.self.key", [WIDTH, WIDTH]),
        ("attention.self.value", [WIDTH, WIDTH]),
        ("attention.output.dense", [WIDTH, WIDTH]),
        ("intermediate.dense", [8, WIDTH]),
        ("output.dense", [WIDTH, 8]),
    ];
    let tables = [("word", vocab.len()), ("position", 8), ("token_type", 2)];
    let tables = tables.map(|(name, rows)| (format!("embeddings.{name}_embeddings.weight"), vec![rows, WIDTH]));
    let norms = vectors.iter().flat_map(|name| ["weight", "bias"].map(|part| (format!("{name}.{part}"), vec![WIDTH])));
    let linears = layers.iter().flat_map(|(name, dims)| {
        [(format!("encoder.layer.0.{name}.weight"), dims.to_vec()), (format!("encoder.layer.0.{name}.bias"), vec![dims[0]])]
    });
    let tensors = tables.into_iter().chain(norms).chain(linears).map(|(name, dims)| {
        let waves = (0..dims.iter().product::<usize>()).flat_map(|i| ((i * 7 + name.len() * 3) as f32).sin().to_le_bytes()).collect::<Vec<_>>();
        (name, dims, waves)
    });
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, dims, bytes)| (name, TensorView::new(Dtype::F32, dims.clone(), bytes).unwrap()));
    fs::write(folder.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    folder
}

#[test]
fn vectors_are_lines_of_json_or_a_file_of_numpy() {
    let folder = model("embed");
    let (path, input, output) = (folder.to_str().unwrap(), folder.join("texts"), folder.join("x.npy"));
    let long = "w1 w2 w3 w4 w5 w6 w7 w8 w9";
    let shown = elinvar(&["--model", path, "w3 w1", long]);
    let lines: Vec<Value> = String::from_utf8(shown.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let facts: Vec<_> = lines.iter().map(|line| (&line["index"], &line["tokens"], &line["truncated"])).collect();
    assert_eq!(facts, [(&json!(0), &json!(4), &json!(false)), (&json!(1), &json!(8), &json!(true))]);
    let summary = String::from_utf8(shown.stderr).unwrap();
    assert!(summary.starts_with("2 texts · 12 tokens at ") && summary.contains("4 dimensions, pooling mean · 1 cut to 8 tokens"), "{summary}");
    fs::write(&input, format!("w3 w1\n{long}\n")).unwrap();
    let written = elinvar(&["--model", path, "--input", input.to_str().unwrap(), "--output", output.to_str().unwrap(), "--quiet"]);
    assert!(written.status.success() && written.stdout.is_empty() && written.stderr.is_empty());
    let file = fs::read(output).unwrap();
    let stored: Vec<_> = file[file.len() - 4 * 2 * WIDTH..].as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let printed: Vec<_> = lines.iter().flat_map(|line| line["embedding"].as_array().unwrap()).map(|x| x.as_f64().unwrap() as f32).collect();
    assert_eq!(stored, printed);
}

#[test]
fn what_cannot_be_embedded_is_one_line() {
    let folder = model("embed-rejected");
    let path = folder.to_str().unwrap();
    assert!(rejection(&["--model", path, "w1", ""]).contains("text 1: the text is empty"));
    assert!(rejection(&["--model", path, "w1", "--output", "x.txt"]).contains("--output x.txt: give a name that ends in .npy"));
    let llama = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shakespeare");
    assert!(rejection(&["--model", llama, "w1"]).contains("architecture 'LlamaForCausalLM' is no encoder that is supported"));
}
