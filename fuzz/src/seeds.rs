//! Writes what fuzzing starts from: the example programs in both forms (`corpus/text`, `corpus/binary`) and the language's words (`words.dict`).

use std::{error::Error, fs, path::Path};

use elinvar_atlas::{Atomic, Binary, Bounds, Compare, Position, Scope, Shuffle, Ternary, Unary, encode, parse};
use elinvar_core::DType;

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

fn names<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().copied().map(name).collect()
}
