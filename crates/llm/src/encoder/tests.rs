//! Vectors of tiny encoders against those that transformers computed: see `tests/references/encoders/make.py`.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use elinvar::Precision;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::*;
use crate::{
    gguf::tests::{parse, writer::Writer},
    model::tests::references::{self, stored},
    weights::gguf::translate_encoder_back,
};

const POOLINGS: [Pooling; 3] = [Pooling::Mean, Pooling::Cls, Pooling::Last];

/// Tokens before the words.
const SPECIAL: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
const WORDS: u32 = 25;

type Tensors = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

/// A model, the weights that follow from their names, and each text's vector in every pooling.
struct Reference {
    config: Map<String, Value>,
    tensors: Tensors,
    vectors: Vec<f32>,
}

impl Reference {
    fn read(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/references/encoders").join(name);
        let mut file: Map<String, Value> = serde_json::from_slice(&fs::read(path.with_extension("json")).unwrap()).unwrap();
        let dims: BTreeMap<String, Vec<u64>> = serde_json::from_value(file.remove("tensors").unwrap()).unwrap();
        let values = |name: &str, dims: &[u64]| references::values(&name.replace("LayerNorm", "norm"), dims, false);
        let vectors = fs::read(path.with_extension("f32")).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Self {
            config: serde_json::from_value(file.remove("config").unwrap()).unwrap(),
            tensors: dims.into_iter().map(|(name, dims)| (name.clone(), (dims.clone(), values(&name, &dims)))).collect(),
            vectors,
        }
    }

    fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "config.json", &Value::Object(self.config.clone()));
        write(&folder, "tokenizer.json", &tokenizer());
        self.save(&folder, "");
        folder
    }

    /// Stores the weights under names with this prefix.
    fn save(&self, folder: &TempDir, prefix: &str) {
        let tensors = self.tensors.iter().map(|(name, (dims, values))| (format!("{prefix}{name}"), stored(dims, values)));
        fs::write(folder.path().join("model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    }

    /// The file that llama.cpp's converter would write.
    fn gguf(&self) -> Writer {
        let sizes = [
            ("block_count", "num_hidden_layers"),
            ("context_length", "max_position_embeddings"),
            ("embedding_length", "hidden_size"),
            ("feed_forward_length", "intermediate_size"),
            ("attention.head_count", "num_attention_heads"),
        ];
        let size = |key: &str| self.config[key].as_u64().unwrap() as u32;
        let writer = Writer::new().text("general.architecture", "bert").text("tokenizer.ggml.model", "bert");
        let writer = sizes.iter().fold(writer, |writer, (theirs, ours)| writer.u32(&format!("bert.{theirs}"), size(ours)));
        let words: Vec<_> = SPECIAL.iter().map(|token| (*token).to_owned()).chain((0..WORDS).map(|n| format!("▁w{n}"))).collect();
        let kinds: Vec<_> = (0..words.len()).map(|id| if id < SPECIAL.len() { 3i32 } else { 1 }.to_le_bytes().to_vec()).collect();
        let writer = writer
            .f32("bert.attention.layer_norm_epsilon", self.config["layer_norm_eps"].as_f64().unwrap() as f32)
            .bool("bert.attention.causal", false)
            .texts("tokenizer.ggml.tokens", &words.iter().map(String::as_str).collect::<Vec<_>>())
            .array("tokenizer.ggml.token_type", 5, &kinds);
        let ids = [("unknown", 1), ("cls", 2), ("seperator", 3)];
        let writer = ids.iter().fold(writer, |writer, (name, id)| writer.u32(&format!("tokenizer.ggml.{name}_token_id"), *id));
        self.tensors.iter().fold(writer, |writer, (name, (dims, values))| writer.f32s(&translate_encoder_back(name), dims, values))
    }

    #[track_caller]
    fn check(&self, form: &str, files: &ModelFiles) {
        let (encoder, texts) = (open(1, files).unwrap(), texts());
        let width = encoder.dimensions();
        for (place, pooling) in POOLINGS.into_iter().enumerate() {
            let options = EmbeddingOptions { pooling, normalize: false, ..encoder.options().clone() };
            let found = encoder.embed(&texts, &options).unwrap();
            assert_eq!(
                (found.len(), found.tokens(), found.truncated()),
                (6, &[3, 9, 40, 9, 22, 64][..], &[false, false, false, false, false, true][..])
            );
            for text in 0..texts.len() {
                let expected = &self.vectors[(text * POOLINGS.len() + place) * width..][..width];
                let worst = found.row(text).iter().zip(expected).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
                assert!(worst <= 1e-5, "{form}, text {text}, {pooling}: {worst:e} apart");
            }
        }
    }
}

fn write(folder: &TempDir, name: &str, json: &Value) {
    let path = folder.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, json.to_string()).unwrap();
}

/// WordPiece over `w0`, `w1`, …; it cuts at 8 tokens, which is meant for training.
fn tokenizer() -> Value {
    let tokens = SPECIAL.iter().map(|token| (*token).to_owned()).chain((0..WORDS).map(|n| format!("w{n}")));
    let vocab: Map<_, _> = tokens.zip(0..).map(|(token, id)| (token, Value::from(id))).collect();
    let special = |(id, content): (usize, &&str)| json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "added_tokens": SPECIAL.iter().enumerate().map(special).collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab},
    })
}

/// As `texts` of `make.py`, in words.
fn texts() -> Vec<String> {
    let text = |n: &u32| (0..*n).map(|i| format!("w{}", (i * i * 7 + i * 3 + n) % WORDS)).collect::<Vec<_>>().join(" ");
    [1, 7, 38, 7, 20, 90].iter().map(text).collect()
}

fn open(threads: usize, files: &ModelFiles) -> Result<Encoder> {
    Encoder::open(&Executor::new_cpu(threads.try_into().unwrap())?.with_precision(Precision::Strict), files)
}

fn open_folder(folder: &TempDir) -> Result<Encoder> {
    open(1, &ModelFiles::open(folder.path()).unwrap())
}

#[track_caller]
fn rejected<T>(result: Result<T>, expected: &str) {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(message.contains(expected) && !message.contains('\n'), "{message}");
}

#[test]
fn vectors_are_those_of_transformers() {
    for name in ["bert", "bert-tanh", "bert-relu"] {
        let reference = Reference::read(name);
        let folder = reference.folder();
        reference.check(name, &ModelFiles::open(folder.path()).unwrap());
        // As part of a model with a head.
        let mut tensors: Tensors = reference.tensors.iter().map(|(name, tensor)| (format!("bert.{name}"), tensor.clone())).collect();
        tensors.insert("cls.bias".to_owned(), (vec![1], vec![0.0]));
        Reference { tensors, ..Reference::read(name) }.save(&folder, "");
        reference.check(&format!("{name} with a head"), &ModelFiles::open(folder.path()).unwrap());
    }
    let reference = Reference::read("bert");
    reference.check("a GGUF file", &ModelFiles::Gguf(Arc::new(parse(&reference.gguf()).unwrap())));
}

#[test]
fn a_text_has_the_bits_alone_that_it_has_packed_with_others() {
    let folder = Reference::read("bert").folder();
    let files = ModelFiles::open(folder.path()).unwrap();
    for pooling in POOLINGS {
        let of = |threads: usize, texts: &[String]| {
            let encoder = open(threads, &files).unwrap();
            let vectors = encoder.embed(texts, &EmbeddingOptions { pooling, normalize: true, ..encoder.options().clone() }).unwrap();
            vectors.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        // More tokens than one batch takes.
        let texts: Vec<_> = texts().into_iter().cycle().take(60).collect();
        let alone: Vec<_> = texts[..6].iter().map(|text| of(1, std::slice::from_ref(text))).collect();
        let expected: Vec<_> = alone.iter().flatten().copied().cycle().take(60 * alone[0].len()).collect();
        for threads in [1, 3] {
            assert!(of(threads, &texts) == expected, "{pooling} on {threads} threads");
        }
    }
}

#[test]
fn vectors_of_length_one_point_where_the_others_do() {
    let folder = Reference::read("bert").folder();
    let encoder = open_folder(&folder).unwrap();
    let of = |normalize: bool| encoder.embed(&texts(), &EmbeddingOptions { normalize, ..encoder.options().clone() }).unwrap();
    let (plain, unit) = (of(false), of(true));
    for text in 0..6 {
        let length = plain.row(text).iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        assert!(plain.row(text).iter().zip(unit.row(text)).all(|(x, y)| (f64::from(*x) / length - f64::from(*y)).abs() < 1e-6), "text {text}");
    }
}

#[test]
fn the_files_of_sentence_transformers_are_heeded() {
    let folder = Reference::read("bert-tanh").folder();
    let options = || open_folder(&folder).map(|encoder| encoder.options().clone());
    assert_eq!(options().unwrap(), EmbeddingOptions { pooling: Pooling::Mean, normalize: false, max_tokens: 64, prefix: String::new() });
    let modules = |kinds: &[(&str, &str)]| {
        let modules: Vec<_> = kinds
            .iter()
            .map(|(path, kind)| json!({"idx": 0, "name": "0", "path": path, "type": format!("sentence_transformers.models.{kind}")}))
            .collect();
        write(&folder, "modules.json", &Value::from(modules));
    };
    let pooling = |json: Value| write(&folder, "1_Pooling/config.json", &json);
    modules(&[("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]);
    rejected(options(), "1_Pooling/config.json is missing");
    pooling(json!({"word_embedding_dimension": 36, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}));
    write(&folder, "sentence_bert_config.json", &json!({"max_seq_length": 16}));
    write(&folder, "config_sentence_transformers.json", &json!({"prompts": {"query": "w1 w2 "}, "default_prompt_name": "query"}));
    assert_eq!(options().unwrap(), EmbeddingOptions { pooling: Pooling::Cls, normalize: true, max_tokens: 16, prefix: "w1 w2 ".to_owned() });
    let encoder = open_folder(&folder).unwrap();
    let vectors = encoder.embed(&texts(), encoder.options()).unwrap();
    assert_eq!((vectors.tokens(), vectors.truncated()), (&[5, 11, 16, 11, 16, 16][..], &[false, false, true, false, true, true][..]));
    let spelt_out = EmbeddingOptions { prefix: String::new(), ..encoder.options().clone() };
    assert_eq!(encoder.embed(&[format!("w1 w2 {}", texts()[0])], &spelt_out).unwrap().row(0), vectors.row(0));
    pooling(json!({"pooling_mode": "lasttoken"}));
    assert_eq!(options().unwrap().pooling, Pooling::Last);
    pooling(json!({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}));
    rejected(options(), "pooling 'pooling_mode_max_tokens and pooling_mode_mean_tokens' is not supported");
    pooling(json!({"pooling_mode_mean_tokens": true, "include_prompt": false}));
    rejected(options(), "pooling without the prompt's tokens is not supported");
    modules(&[("", "Transformer"), ("../secret", "Pooling")]);
    rejected(options(), "'../secret' is no plain folder name");
    modules(&[("2_Dense", "Dense")]);
    rejected(options(), "step 'sentence_transformers.models.Dense' is not supported");
}

#[test]
fn what_is_no_encoder_or_contradicts_itself_is_rejected() {
    let reference = Reference::read("bert-tanh");
    let folder = reference.folder();
    let with = |key: &str, value: Value| {
        let mut config = reference.config.clone();
        config.insert(key.to_owned(), value);
        write(&folder, "config.json", &Value::Object(config));
        open_folder(&folder)
    };
    rejected(with("architectures", json!(["LlamaForCausalLM"])), "architecture 'LlamaForCausalLM' is no encoder that is supported: BertModel");
    rejected(with("hidden_act", json!("silu")), "activation 'silu' is not supported");
    rejected(with("position_embedding_type", json!("relative_key")), "'position_embedding_type' is 'relative_key'");
    rejected(with("is_decoder", json!(true)), "'is_decoder' is set");
    rejected(with("num_attention_heads", json!(5)), "a width of 36 cannot be shared by 5 heads evenly");
    rejected(with("num_hidden_layers", json!(2)), "tensor 'encoder.layer.1.attention.self.query.weight' is missing");
    rejected(with("vocab_size", json!(30)), "'embeddings.word_embeddings.weight' has shape [29, 36]");
    let encoder = with("hidden_act", json!("gelu_new")).unwrap();
    let embed = |text: &str, max_tokens: usize| encoder.embed(&["w1", text], &EmbeddingOptions { max_tokens, ..encoder.options().clone() });
    for empty in ["", " \n"] {
        rejected(embed(empty, 64), "text 1: the text is empty");
    }
    rejected(embed("w1", 2), "a limit of 2 tokens: the model takes 3 to 64");
    rejected(embed("w1", 65), "a limit of 65 tokens: the model takes 3 to 64");
    assert!(encoder.embed::<&str>(&[], encoder.options()).unwrap().is_empty());
    let gguf = |writer: Writer| open(1, &ModelFiles::Gguf(Arc::new(parse(&writer).unwrap())));
    rejected(gguf(Reference::read("bert").gguf().u32("bert.expert_count", 2)), "key 'bert.expert_count' is not known");
    rejected(gguf(Reference::read("bert").gguf().u32("bert.pooling_type", 4)), "key 'bert.pooling_type' is 4");
    rejected(gguf(crate::gguf::tests::tiny("llama")), "architecture 'llama' is no encoder");
    reference.save(&folder, "bert.bert.");
    rejected(open_folder(&folder), "tensor 'bert.embeddings.word_embeddings.weight' is missing");
    let generates = crate::Config::read(&ModelFiles::open(folder.path()).unwrap());
    rejected(generates, "'BertModel' is an encoder, which generates no text: `elinvar embed`");
}

#[test]
fn an_embedding_that_is_ended_early_says_so() {
    let folder = Reference::read("bert-relu").folder();
    let encoder = open_folder(&folder).unwrap();
    let texts: Vec<_> = texts().into_iter().cycle().take(60).collect();
    let mut seen = Vec::new();
    let (vectors, flow) = encoder
        .embed_with(&texts, encoder.options(), &mut |done| {
            seen.push(done);
            ControlFlow::Break(())
        })
        .unwrap();
    assert!(flow.is_break() && seen.len() == 1 && seen[0] < 60, "{seen:?}");
    // The longest come first.
    let (longest, shortest) = (vectors.row(5), vectors.row(0));
    assert!(longest.iter().any(|&x| x != 0.0) && shortest.iter().all(|&x| x == 0.0));
}

#[test]
fn a_file_of_numpy_has_its_header_and_the_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let vectors = Embeddings { values: vec![1.0, -2.5, 0.0, 4.0], width: 2, tokens: vec![3, 3], truncated: vec![false; 2] };
    vectors.write_npy(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (header, values) = bytes.split_at(128);
    assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
    let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    assert_eq!(std::str::from_utf8(&header[10..]).unwrap().trim_end_matches(' '), format!("{expected:117}\n"));
    assert_eq!(values, [1f32, -2.5, 0.0, 4.0].map(f32::to_le_bytes).concat());
}
