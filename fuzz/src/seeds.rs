//! Writes what fuzzing starts from: the example programs in both forms (`corpus/text`, `corpus/binary`) and the language's words (`words.dict`), model files
//! (`corpus/gguf`), a Metal library (`corpus/metallib`).

use std::{error::Error, fs, path::Path};

use elinvar::kernels::quantized::Format;
use elinvar_llm::gguf::{Kind, TensorType, Value, Writer};

use elinvar_atlas::{Atomic, Binary, Bounds, Compare, Position, Scope, Shuffle, Ternary, Unary, encode, parse};
use elinvar_core::DType;

#[path = "../../crates/metallib/tests/library/container.rs"]
mod container;

/// Words that are in no list of operations.
const WORDS: &[&str] = &[
    "atlas 1",
    "program",
    "bounds",
    "block",
    "buffer",
    "scalar",
    "shared",
    "function",
    "kernel",
    "read",
    "write",
    "update",
    "end",
    "return",
    "if",
    "else",
    "loop",
    "while",
    "break",
    "continue",
    "exit",
    "barrier",
    "fence",
    "store",
    "load",
    "move",
    "convert",
    "select",
    "call",
    "atomic_cas",
    "->",
    "true",
    "inf",
    "nan",
    "0x",
    "\\x0a",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (texts, binaries) = (root.join("corpus/text"), root.join("corpus/binary"));
    fs::create_dir_all(&texts)?;
    fs::create_dir_all(&binaries)?;
    for entry in fs::read_dir(root.join("../examples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "atlas") {
            let (text, name) = (fs::read_to_string(&path)?, path.file_stem().unwrap_or_default());
            let bytes = encode(&parse(&text)?);
            fs::write(texts.join(name), text)?;
            // Without header and checksum, which the targets put around their input.
            fs::write(binaries.join(name), &bytes[8..bytes.len() - 8])?;
        }
    }
    gguf(&root.join("corpus/gguf"))?;
    let bitcode = include_bytes!("../../crates/metallib/tests/library/scale.bc");
    let library = container::library(&[container::Compiled { name: "scale", bitcode, constants: &[("doubled", 53, 3)] }]);
    fs::create_dir_all(root.join("corpus/metallib"))?;
    fs::write(root.join("corpus/metallib/scale"), library)?;
    let lists = [
        names(Unary::ALL, |op| op.name()),
        names(Binary::ALL, |op| op.name()),
        names(Ternary::ALL, |op| op.name()),
        names(Compare::ALL, |op| op.name()),
        names(Position::ALL, |op| op.name()),
        names(Scope::ALL, |op| op.name()),
        names(Shuffle::ALL, |op| op.name()),
        names(Atomic::ALL, |op| op.name()),
        names(Bounds::ALL, |op| op.name()),
        names(DType::PROGRAMS, |dtype| dtype.name()),
    ];
    let words = lists.concat().into_iter().chain(WORDS.iter().copied()).map(|word| format!("\"{word}\"\n"));
    fs::write(root.join("words.dict"), words.collect::<String>())?;
    Ok(())
}

/// A model file with a tensor of each type, a third of them with SentencePiece's tokens, byte-level ones and WordPiece's each.
fn gguf(folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let mut types = DType::FLOATS.iter().map(|dtype| TensorType::of_dtype(*dtype)).collect::<Result<Vec<_>, _>>()?;
    types.extend(Format::ALL.iter().filter_map(|format| TensorType::of_format(*format).ok()));
    for (number, kind) in types.into_iter().enumerate() {
        let mut writer = Writer::new();
        let unsigned = [
            ("llama.context_length", 64),
            ("llama.embedding_length", 8),
            ("llama.block_count", 1),
            ("llama.feed_forward_length", 32),
            ("llama.attention.head_count", 4),
            ("tokenizer.ggml.bos_token_id", 1),
        ];
        writer.set("general.architecture", Kind::Text, Value::Text("llama"))?;
        unsigned.iter().try_for_each(|(key, value)| writer.set(key, Kind::U32, Value::Unsigned(*value)))?;
        writer.set("llama.attention.layer_norm_rms_epsilon", Kind::F32, Value::Float(1e-5))?;
        let texts = |texts: &[&'static str]| texts.iter().copied().map(Value::Text).collect::<Vec<_>>();
        if number % 3 == 0 {
            writer.set("tokenizer.ggml.model", Kind::Text, Value::Text("llama"))?;
            writer.set_array("tokenizer.ggml.tokens", Kind::Text, texts(&["<unk>", "<s>", "▁", "a", "▁a", "é"]))?;
            writer.set_array("tokenizer.ggml.scores", Kind::F32, (0..6).map(|i| Value::Float(-f64::from(i))))?;
            writer.set_array("tokenizer.ggml.token_type", Kind::I32, [2, 3, 1, 1, 1, 4].map(Value::Signed))?;
        } else if number % 3 == 1 {
            writer.set("tokenizer.ggml.model", Kind::Text, Value::Text("bert"))?;
            writer.set_array("tokenizer.ggml.tokens", Kind::Text, texts(&["[UNK]", "[CLS]", "[SEP]", "▁ab", "b", "▁é"]))?;
            for (id, name) in ["unknown", "cls", "seperator"].into_iter().enumerate() {
                writer.set(&format!("tokenizer.ggml.{name}_token_id"), Kind::U32, Value::Unsigned(id as u64))?;
            }
        } else {
            writer.set("tokenizer.ggml.model", Kind::Text, Value::Text("gpt2"))?;
            writer.set("tokenizer.ggml.pre", Kind::Text, Value::Text("llama-bpe"))?;
            writer.set_array("tokenizer.ggml.tokens", Kind::Text, texts(&["a", "<s>", "b", "Ġ", "ab", "Ġa"]))?;
            writer.set_array("tokenizer.ggml.merges", Kind::Text, texts(&["a b", "Ġ a"]))?;
        }
        writer.tensor("blk.0.attn_q.weight", kind, &[2, kind.weights])?;
        writer.write(&folder.join(kind.name), |_, put| put(&vec![0x35; 2 * kind.bytes]))?;
    }
    Ok(())
}

fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().copied().map(name).collect()
}
