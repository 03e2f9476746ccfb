//! What is in a GGUF file.

use std::{collections::BTreeMap, path::Path};

use elinvar::{DType, Result, format_bytes};
use elinvar_llm::{
    CacheType, Config, MemoryEstimate, ModelFiles, Session, Tokenizer, Weights,
    gguf::{Gguf, Value},
};
use serde_json::{Value as Json, json};

use crate::output::print_line;

/// Values of an array and characters of a text that are shown.
const SHOWN_VALUES: usize = 4;
const SHOWN_CHARACTERS: usize = 60;
/// Tokens of the context whose memory is estimated, at most.
const CONTEXT: usize = 4096;

pub(super) fn run(path: &Path, as_json: bool) -> Result<()> {
    let file = Gguf::open(path)?;
    let mut types = BTreeMap::<_, (usize, usize)>::new();
    for (_, tensor) in file.tensors() {
        let (count, bytes) = types.entry(tensor.kind.name).or_default();
        *count += 1;
        *bytes += tensor.bytes();
    }
    let mut unsupported: Vec<_> = file
        .tensors()
        .filter(|(_, tensor)| !tensor.kind.is_supported())
        .map(|(name, tensor)| format!("tensor '{name}': type {} is not supported", tensor.kind.name))
        .collect();
    let memory = memory(path).unwrap_or_else(|errors| {
        unsupported.extend(errors);
        None
    });
    if as_json {
        return print_json(&file, &types, memory, &unsupported);
    }
    print_line(format!("{} · GGUF {} · {} tensors", file.label(), file.version(), file.tensors().count()));
    for (key, _) in file.keys() {
        print_line(format!("{key} = {}", file.value(key)?.map(show).unwrap_or_default()));
    }
    for (name, tensor) in file.tensors() {
        print_line(format!("{name:<36} {:<8} {:<20} {:>12} bytes", tensor.kind.name, format!("{:?}", tensor.dims), tensor.bytes()));
    }
    for (name, (count, bytes)) in &types {
        print_line(format!("{name}: {count} tensors, {}", format_bytes(*bytes as u64)));
    }
    if let Some(Memory { context, estimate, caches }) = &memory {
        let [total, weights, cache] = [estimate.total(), estimate.weights, estimate.cache].map(format_bytes);
        let caches: Vec<_> = caches.iter().map(|(kind, bytes)| format!("{} as {kind}", format_bytes(*bytes))).collect();
        print_line(format!("memory for {context} tokens: {total} (weights {weights}, cache {cache}; {})", caches.join(", ")));
    }
    unsupported.iter().for_each(|reason| print_line(format!("unsupported: {reason}")));
    Ok(())
}

/// What a model needs for a context, with a cache of f32.
struct Memory {
    context: usize,
    estimate: MemoryEstimate,
    /// Bytes of the cache in other types.
    caches: Vec<(CacheType, u64)>,
}

/// The memory that the model needs, if it is supported; why not otherwise.
fn memory(path: &Path) -> Result<Option<Memory>, Vec<String>> {
    let opened = || -> Result<_> {
        let files = ModelFiles::open(path)?;
        let config = Config::read(&files)?;
        let weights = Weights::open(&files)?;
        let context = config.max_context.min(CONTEXT);
        let of = |cache: CacheType| MemoryEstimate::of(&config, &weights, context, cache, Session::GPU_CHUNK);
        let caches = [CacheType::Plain(DType::F16), CacheType::Q8_0].into_iter().filter(|cache| cache.takes(config.head_dim));
        let caches = caches.map(|cache| (cache, of(cache).cache)).collect();
        Ok((files, Memory { context, estimate: of(DType::F32.into()), caches }))
    };
    let (files, memory) = opened().map_err(|e| vec![e.to_string()])?;
    match Tokenizer::open(&files) {
        Ok(_) => Ok(Some(memory)),
        Err(error) => Err(vec![error.to_string()]),
    }
}

fn print_json(file: &Gguf, types: &BTreeMap<&str, (usize, usize)>, memory: Option<Memory>, unsupported: &[String]) -> Result<()> {
    let metadata = file.keys().map(|(key, kind)| {
        let value = file.value(key)?.map_or(Json::Null, in_json);
        Ok((key.to_owned(), json!({ "type": kind.to_string(), "value": value })))
    });
    let tensor =
        |(name, t): (&str, &elinvar_llm::gguf::TensorInfo)| json!({ "name": name, "type": t.kind.name, "shape": t.dims, "bytes": t.bytes() });
    let memory = memory.map(|Memory { context, estimate: m, caches }| {
        let caches: BTreeMap<_, _> = caches.into_iter().map(|(kind, bytes)| (kind.to_string(), bytes)).collect();
        json!({ "context": context, "weights": m.weights, "cache": m.cache,
            "activations": m.activations, "total": m.total(), "caches": caches })
    });
    print_line(json!({
        "file": file.label(),
        "version": file.version(),
        "metadata": metadata.collect::<Result<serde_json::Map<_, _>>>()?,
        "tensors": file.tensors().map(tensor).collect::<Vec<_>>(),
        "types": types.iter().map(|(name, (count, bytes))| json!({ "type": name, "tensors": count, "bytes": bytes })).collect::<Vec<_>>(),
        "memory": memory,
        "unsupported": unsupported,
    }));
    Ok(())
}

/// A value on one line; of long ones the beginning.
fn show(value: Value<'_>) -> String {
    match value {
        Value::Unsigned(n) => n.to_string(),
        Value::Signed(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Text(text) => {
            let shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
            let more = if shown.len() < text.len() { format!("… ({} bytes)", text.len()) } else { String::new() };
            format!("{shown:?}{more}")
        }
        Value::Array(array) => {
            let shown: Vec<_> = array.values().take(SHOWN_VALUES).flatten().map(show).collect();
            let more = if array.len > SHOWN_VALUES { ", …" } else { "" };
            format!("[{}{more}] ({} of type {})", shown.join(", "), array.len, array.kind)
        }
    }
}

/// All of a value; of an array, its type and length.
fn in_json(value: Value<'_>) -> Json {
    match value {
        Value::Unsigned(n) => n.into(),
        Value::Signed(n) => n.into(),
        Value::Float(x) => x.into(),
        Value::Bool(b) => b.into(),
        Value::Text(text) => text.into(),
        Value::Array(array) => json!({ "of": array.kind.to_string(), "length": array.len }),
    }
}
