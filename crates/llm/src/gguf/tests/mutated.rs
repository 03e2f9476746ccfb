//! Files of every type, mutated at random: whatever is made of them is an error or has a use. `ELINVAR_MUTATIONS` names the number of files;
//! `fuzz/fuzz_targets/gguf.rs` does the same, guided by coverage.

use std::sync::Arc;

use elinvar::{
    HostMemory,
    kernels::{conformance, quantized::Format},
};
use elinvar_core::SplitMix64;

use super::{tiny, writer::Writer};
use crate::{Config, GgufOutput, Importance, ModelFiles, Tokenizer, Weights, gguf::Gguf};

/// Makes everything of a file that can be made of one.
fn use_file(bytes: Vec<u8>) -> elinvar::Result<()> {
    let file = Arc::new(Gguf::parse("m.gguf", HostMemory::new(Arc::new(bytes)))?);
    for (_, info) in file.tensors() {
        let bytes = file.data(info)?.bytes().len();
        assert_eq!(bytes, info.dims.iter().product::<usize>() / info.kind.weights * info.kind.bytes);
    }
    for (key, _) in file.keys() {
        file.value(key)?;
    }
    let files = ModelFiles::Gguf(file.clone());
    let config = Config::read(&files);
    let tokenizer = Tokenizer::open(&files);
    let planned = GgufOutput::plan(&files, "q4_k_m".parse()?, Importance::none());
    let weights = config.and_then(|_| Weights::open(&files));
    if let Ok(weights) = &weights {
        for name in weights.names() {
            let (dims, _) = weights.info(name).unwrap_or_default();
            let _ = weights.get(name, &dims);
        }
    }
    if let Ok(tokenizer) = &tokenizer
        && let Ok(ids) = tokenizer.encode("ab b\u{e9} <s>")
    {
        let _ = tokenizer.decode(&ids);
    }
    weights.and(tokenizer).and(planned).map(|_| ())
}

/// Files with tensors of every format, every tokenizer, and keys of every type.
fn seeds() -> Vec<Vec<u8>> {
    let merged = ["a", "b", "Ġ", "ab", "Ġa", "<s>"];
    let bpe = |writer: Writer| {
        let writer = writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "llama-bpe").texts("tokenizer.ggml.tokens", &merged);
        writer.texts("tokenizer.ggml.merges", &["a b", "Ġ a"]).u32("tokenizer.ggml.bos_token_id", 5).text("tokenizer.chat_template", "{{ a }}")
    };
    let spm = |writer: Writer| {
        let scores: Vec<_> = (0..6).map(|i| (-(i as f32)).to_le_bytes().to_vec()).collect();
        let kinds: Vec<_> = [2i32, 3, 1, 1, 1, 4].iter().map(|kind| kind.to_le_bytes().to_vec()).collect();
        let writer = writer.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", &["<unk>", "<s>", "▁", "a", "▁a", "é"]);
        writer.array("tokenizer.ggml.scores", 6, &scores).array("tokenizer.ggml.token_type", 5, &kinds).bool("tokenizer.ggml.add_space_prefix", true)
    };
    let of_format = |format: Format, number: u32| {
        let weights = format.weights() as u64;
        tiny("llama").tensor("blk.0.attn_q.weight", number, &[16, weights], &vec![0x35; 16 * format.bytes()])
    };
    let numbers = [2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 39];
    let mut seeds: Vec<_> = Format::ALL.iter().zip(numbers).map(|(format, number)| bpe(of_format(*format, number)).bytes()).collect();
    for (kind, bytes) in [(0, 4), (1, 2), (24, 1), (25, 2), (26, 4), (27, 8), (28, 8), (30, 2)] {
        seeds.push(spm(tiny("qwen3").tensor("token_embd.weight", kind, &[6, 8], &vec![0x11; 48 * bytes])).bytes());
    }
    let words = tiny("qwen3").text("tokenizer.ggml.model", "bert").texts("tokenizer.ggml.tokens", &["[UNK]", "[CLS]", "[SEP]", "▁ab", "b", "▁é"]);
    let ids = [("unknown", 0), ("cls", 1), ("seperator", 2)];
    seeds.push(ids.iter().fold(words, |words, (name, id)| words.u32(&format!("tokenizer.ggml.{name}_token_id"), *id)).bytes());
    seeds.push(super::everything().bytes());
    seeds.push(spm(tiny("qwen2").f32s("rope_freqs.weight", &[2], &[1.0, 8.0])).bytes());
    seeds
}

/// One to four changes: a byte, a word that is large or small, a piece cut out, doubled, or taken from another file.
fn mutate(file: &mut Vec<u8>, other: &[u8], random: &mut impl FnMut(usize) -> usize) {
    const WORDS: [u64; 8] = [0, 1, 0xff, 0x7fff_ffff, 0x8000_0000, u32::MAX as u64, 1 << 62, u64::MAX];
    for _ in 0..=random(4) {
        let at = random(file.len().max(1)).min(file.len());
        let end = (at + 1 + random(24)).min(file.len());
        match random(6) {
            0 => file[at..end].iter_mut().take(1).for_each(|byte| *byte = random(256) as u8),
            1 => file[at..end].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random(8)),
            2 => {
                let word = WORDS[random(8)].to_le_bytes();
                file[at..].iter_mut().zip(&word[..[4, 8][random(2)]]).for_each(|(byte, new)| *byte = *new);
            }
            3 => drop(file.drain(at..end)),
            4 => drop(file.splice(at..at, file[at..end].to_vec())),
            _ => {
                let from = random(other.len());
                let piece = other[from..(from + 1 + random(64)).min(other.len())].to_vec();
                file[at..].iter_mut().zip(piece).for_each(|(byte, new)| *byte = new);
            }
        }
    }
}

#[test]
fn mutated_files_are_used_or_rejected() {
    let named = std::env::var("ELINVAR_MUTATIONS").ok().and_then(|n| n.parse().ok());
    let executions: u64 = named.unwrap_or(if conformance::runs_all() { 3_000 } else { 750 });
    if named.is_none() && executions < 3_000 {
        conformance::skipped("2250 of 3000 mutated files");
    }
    let seeds = seeds();
    let mut good = seeds.iter().filter(|seed| use_file((*seed).clone()).is_ok()).count();
    assert!(good > 0, "no seed is a whole model");
    let mut draws = 0;
    let mut random = |below: usize| {
        draws += 1;
        (SplitMix64::nth(11, draws) >> 11) as usize % below
    };
    for _ in 0..executions {
        let mut file = seeds[random(seeds.len())].clone();
        mutate(&mut file, &seeds[random(seeds.len())], &mut random);
        match use_file(file) {
            Ok(()) => good += 1,
            Err(error) => assert!(error.to_string().lines().count() == 1, "{error}"),
        }
    }
    // A mutation need not do harm.
    assert!(good as u64 > executions / 1000, "{good} of {executions}");
}
