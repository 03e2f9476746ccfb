//! GGUF files: the input is a file, of which everything is made that can be made of one.
#![no_main]

use std::sync::{Arc, Once};

use elinvar_core::HostMemory;
use elinvar_llm::{Config, GgufOutput, Importance, ModelFiles, Tokenizer, Weights, gguf::Gguf};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // The tokenizer's library panics on what contradicts itself, and is guarded; panics of ours still end the run.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    let Ok(file) = Gguf::parse("input", HostMemory::new(Arc::new(data.to_vec()))) else { return };
    for (_, info) in file.tensors() {
        file.data(info).expect("what is listed is in the file");
    }
    for (key, _) in file.keys() {
        file.value(key).expect("what is listed is valid");
    }
    let files = ModelFiles::Gguf(Arc::new(file));
    if Config::read(&files).is_ok() {
        let _ = Weights::open(&files);
    }
    if let Ok(tokenizer) = Tokenizer::open(&files)
        && let Ok(ids) = tokenizer.encode("ab b\u{e9} <s>")
    {
        let _ = tokenizer.decode(&ids);
    }
    if let Ok(target) = "q4_k_m".parse() {
        let _ = GgufOutput::plan(&files, target, Importance::none());
    }
});
