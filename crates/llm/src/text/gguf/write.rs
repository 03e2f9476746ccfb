//! The metadata of a GGUF file from `tokenizer.json`.

use std::{collections::HashMap, sync::Arc};

use elinvar::{Error, ErrorKind, HostMemory, Result};
use serde::Deserialize;
use serde_json::Value as Json;

use super::pre;
use crate::{
    Config, ModelFiles, Tokenizer,
    gguf::{Gguf, Kind, Value, Writer},
};

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Json,
    #[serde(default)]
    merges: Vec<Merge>,
    unk_token: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair([String; 2]),
}

/// Texts on which the written tokenizer must agree with the one that was read.
const PROBES: [&str; 5] = [
    "Hello, world! I'm here; it's 12345 or 3.14. We'LL see\n\n  two  spaces,\ttabs\r\n   and   the end  ",
    "naïve Ünïcödé ß İ ﬁ 你好，世界 こんにちは привет العربية हिन्दी 🙂👍🏽 e\u{301}",
    "fn main() { let x = [0; 16]; println!(\"{x:?}\"); } // <tag a=\"b\"/> https://example.org/?q=1&r=2#frag $100 50% a_b-c~`^|\\",
    " a",
    "a",
];

/// Adds the keys of the tokenizer of `files`, of as many tokens as `config` has.
///
/// # Errors
/// No `tokenizer.json`, or one that these keys cannot express: what they describe is tried on texts.
pub(crate) fn write(files: &ModelFiles, config: &Config, writer: &mut Writer) -> Result<()> {
    const FILE: &str = "tokenizer.json";
    let label = files.label(FILE);
    let tokenizer = Tokenizer::open(files)?;
    let raw: Raw = files.read_json(FILE)?.ok_or_else(|| Error::io(format!("{label} is missing")))?;
    let reject = |message: String| Error::unsupported(format!("{label}: {message}, which GGUF files cannot express"));
    if raw.model.kind.as_deref().is_some_and(|kind| kind != "BPE") {
        return Err(reject(format!("the model is {}", raw.model.kind.unwrap_or_default())));
    }
    let pieces = if raw.model.byte_fallback {
        None
    } else {
        let patterns = patterns(&raw.pre_tokenizer).filter(|_| raw.normalizer.is_null());
        let name = patterns.and_then(|patterns| pre::find_patterns(&patterns, raw.model.ignore_merges));
        Some(name.ok_or_else(|| reject("texts are cut in a way that has no name here".to_owned()))?)
    };
    // The prefix of SentencePiece is described in several ways: the tokens show whether there is one.
    let mut difference = None;
    for prefix in if pieces.is_some() { &[false][..] } else { &[true, false] } {
        let mut candidate = Writer::new();
        describe(&raw, &tokenizer, config, pieces, *prefix, &mut candidate).map_err(|e| e.context(&label))?;
        let memory = HostMemory::new(Arc::new(candidate.header()));
        let read = Tokenizer::open(&ModelFiles::Gguf(Arc::new(Gguf::parse(&label, memory)?)))?;
        let differs = |text: &&&str| !matches!((tokenizer.encode(text), read.encode(text)), (Ok(a), Ok(b)) if a == b);
        match PROBES.iter().find(differs) {
            None => return describe(&raw, &tokenizer, config, pieces, *prefix, writer),
            Some(text) => difference = Some(*text),
        }
    }
    Err(reject(format!("'{}' would have other tokens", difference.unwrap_or_default().escape_debug())))
}

/// How a byte-level tokenizer cuts texts.
fn patterns(step: &Json) -> Option<Vec<String>> {
    let flag = |name: &str| step[name].as_bool();
    match step["type"].as_str()? {
        "Sequence" => step["pretokenizers"].as_array()?.iter().map(patterns).collect::<Option<Vec<_>>>().map(|all| all.concat()),
        "Split" if step["behavior"] == "Isolated" && flag("invert") != Some(true) => {
            step["pattern"]["Regex"].as_str().map(|pattern| vec![pattern.to_owned()])
        }
        "Digits" if flag("individual_digits") == Some(true) => Some(vec![r"\p{N}".to_owned()]),
        "ByteLevel" if flag("add_prefix_space") != Some(true) => {
            Some(if flag("use_regex") == Some(false) { Vec::new() } else { vec![pre::DEFAULT.to_owned()] })
        }
        _ => None,
    }
}

const NORMAL: i64 = 1;
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;
const BYTE: i64 = 6;

fn describe(raw: &Raw, tokenizer: &Tokenizer, config: &Config, pieces: Option<&str>, prefix: bool, writer: &mut Writer) -> Result<()> {
    let vocab: HashMap<String, u32> =
        HashMap::deserialize(&raw.model.vocab).map_err(|e| Error::with_source(ErrorKind::InvalidData, "the vocabulary", e))?;
    let count = config.vocab_size;
    let mut tokens: Vec<(String, i64)> = (0..count).map(|id| (format!("[PAD{id}]"), UNUSED)).collect();
    let mut put = |id: u32, text: &str, kind: i64| {
        let place = tokens.get_mut(id as usize);
        let place = place.ok_or_else(|| Error::invalid_data(format!("token {id} is outside the model's vocabulary of {count}")))?;
        *place = (text.to_owned(), kind);
        Ok(())
    };
    for (text, &id) in &vocab {
        let byte = pieces.is_none() && text.len() == 6 && text.starts_with("<0x") && text.ends_with('>');
        let unknown = raw.model.unk_token.as_ref() == Some(text);
        put(
            id,
            text,
            if unknown {
                UNKNOWN
            } else if byte {
                BYTE
            } else {
                NORMAL
            },
        )?;
    }
    for added in &raw.added_tokens {
        let unknown = raw.model.unk_token.as_ref() == Some(&added.content);
        put(
            added.id,
            &added.content,
            if unknown {
                UNKNOWN
            } else if added.special {
                CONTROL
            } else {
                USER_DEFINED
            },
        )?;
    }
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    writer.set(&key("model"), Kind::Text, Value::Text(if pieces.is_some() { "gpt2" } else { "llama" }))?;
    writer.set(&key("pre"), Kind::Text, Value::Text(pieces.unwrap_or("default")))?;
    writer.set_array(&key("tokens"), Kind::Text, tokens.iter().map(|(text, _)| Value::Text(text)))?;
    writer.set_array(&key("token_type"), Kind::I32, tokens.iter().map(|(_, kind)| Value::Signed(*kind)))?;
    let merges: Vec<String> = raw.model.merges.iter().map(Merge::joined).collect();
    if pieces.is_some() {
        writer.set_array(&key("merges"), Kind::Text, merges.iter().map(|merge| Value::Text(merge)))?;
    } else {
        // What is joined earlier has the higher score.
        let mut scores = vec![-(merges.len() as f64) - 1.0; count];
        for (rank, merge) in merges.iter().enumerate().rev() {
            let id = vocab.get(&merge.replace(' ', "")).copied().and_then(|id| scores.get_mut(id as usize));
            *id.ok_or_else(|| Error::invalid_data(format!("the merge '{merge}' makes no token")))? = -(rank as f64);
        }
        writer.set_array(&key("scores"), Kind::F32, scores.into_iter().map(Value::Float))?;
        writer.set(&key("add_space_prefix"), Kind::Bool, Value::Bool(prefix))?;
    }
    let ids = tokenizer.encode("a")?;
    let bos = config.bos.or_else(|| tokenizer.id(tokenizer.bos()?));
    let eos = tokenizer.eos().and_then(|text| tokenizer.id(text)).or(config.eos.first().copied());
    for (name, id, adds) in [("bos", bos, ids.first().copied()), ("eos", eos, ids.last().copied())] {
        if let Some(id) = id {
            writer.set(&key(&format!("{name}_token_id")), Kind::U32, Value::Unsigned(id.into()))?;
            writer.set(&key(&format!("add_{name}_token")), Kind::Bool, Value::Bool(ids.len() > 1 && adds == Some(id)))?;
        }
    }
    if let Some(id) = config.eos.iter().find(|&&id| Some(id) != eos) {
        writer.set(&key("eot_token_id"), Kind::U32, Value::Unsigned((*id).into()))?;
    }
    if let Some(id) = raw.model.unk_token.as_deref().and_then(|text| tokenizer.id(text)) {
        writer.set(&key("unknown_token_id"), Kind::U32, Value::Unsigned(id.into()))?;
    }
    if let Some(template) = tokenizer.chat_template() {
        writer.set("tokenizer.chat_template", Kind::Text, Value::Text(template))?;
    }
    Ok(())
}

impl Merge {
    fn joined(&self) -> String {
        match self {
            Merge::Text(text) => text.clone(),
            Merge::Pair([left, right]) => format!("{left} {right}"),
        }
    }
}
