//! Tokenizes the cases that llama.cpp ships beside its vocabularies, and prints how many have its tokens:
//! `cargo run --example vocabularies -- llama.cpp/models`. Each `NAME.gguf` has texts in `NAME.gguf.inp`, and a line of ids for each in `NAME.gguf.out`.

use std::{error::Error, fs, path::Path};

use elinvar_llm::{ModelFiles, Tokenizer};

/// What stands between texts.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("give the folder of the vocabularies")?;
    let mut paths = fs::read_dir(folder)?.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    paths.sort();
    for path in paths {
        let result = check(&path).unwrap_or_else(|error| error.to_string());
        println!("{:<32} {result}", path.file_stem().unwrap_or_default().display());
    }
    Ok(())
}

fn check(path: &Path) -> Result<String, Box<dyn Error>> {
    let tokenizer = Tokenizer::open(&ModelFiles::open(path)?)?;
    let beside = |extension: &str| fs::read_to_string(format!("{}.{extension}", path.display()));
    let (Ok(texts), Ok(ids)) = (beside("inp"), beside("out")) else { return Ok("no cases".to_owned()) };
    let texts: Vec<_> = texts.split_terminator(SEPARATOR).collect();
    let expected = ids.lines().map(|line| line.split_whitespace().map(str::parse).collect()).collect::<Result<Vec<Vec<u32>>, _>>()?;
    if texts.len() != expected.len() {
        return Err(format!("{} texts, {} lines of tokens", texts.len(), expected.len()).into());
    }
    let mut passed = 0;
    for (text, expected) in texts.iter().zip(&expected) {
        passed += usize::from(tokenizer.encode_rendered(text)? == *expected);
    }
    Ok(format!("{passed} of {} cases", texts.len()))
}
