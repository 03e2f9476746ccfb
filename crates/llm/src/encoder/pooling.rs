//! How a text's vector is made of its tokens': sentence-transformers' files, or the key of a GGUF file.

use std::{collections::BTreeMap, fmt, str::FromStr};

use elinvar::{Error, Result, Tensor};
use serde::Deserialize;

use super::{EmbeddingOptions, packed::Run};
use crate::files::ModelFiles;

/// What a text's vector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean of its tokens' vectors.
    Mean,
    /// The vector of its first token, `[CLS]`.
    Cls,
    /// The vector of its last token.
    Last,
}

impl Pooling {
    const ALL: [(Self, &'static str); 3] = [(Self::Mean, "mean"), (Self::Cls, "cls"), (Self::Last, "last")];

    /// The vectors `[texts, hidden]` of a run's texts.
    pub(super) fn pool(self, x: &Tensor, run: &Run) -> Result<Tensor> {
        let hidden = x.shape()[1];
        let tokens = run.rows_of(x)?.reshape(&[run.texts, run.length, hidden])?;
        let token = |at: usize| tokens.slice(1, at, 1, 1)?.reshape(&[run.texts, hidden]);
        match self {
            Self::Mean => tokens.mean(&[1], false),
            Self::Cls => token(0),
            Self::Last => token(run.length - 1),
        }
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(pooling, _)| pooling == self).map_or("", |(_, name)| name))
    }
}

impl FromStr for Pooling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text).map(|(pooling, _)| *pooling);
        found.ok_or_else(|| Error::invalid_argument(format!("pooling '{}' is not supported: mean, cls and last are", text.escape_debug())))
    }
}

const MODULES: &str = "modules.json";
const LIMITS: &str = "sentence_bert_config.json";
const PROMPTS: &str = "config_sentence_transformers.json";

/// A step of sentence-transformers.
#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

/// `1_Pooling/config.json`: which kinds of pooling are switched on, or, in new files, one by its name.
#[derive(Deserialize)]
struct Switches {
    pooling_mode: Option<String>,
    include_prompt: Option<bool>,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

#[derive(Default, Deserialize)]
struct Limits {
    max_seq_length: Option<usize>,
}

#[derive(Default, Deserialize)]
struct Prompts {
    #[serde(default)]
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
}

/// What the files of a model ask for, which takes `max_positions` tokens at most.
///
/// # Errors
/// Damaged files, or steps that are not supported.
pub(super) fn options(files: &ModelFiles, max_positions: usize) -> Result<EmbeddingOptions> {
    if let ModelFiles::Gguf(file) = files {
        const KEY: &str = "bert.pooling_type";
        let pooling = match file.unsigned(KEY)? {
            None | Some(0 | 1) => Pooling::Mean,
            Some(2) => Pooling::Cls,
            Some(3) => Pooling::Last,
            Some(other) => {
                return Err(Error::unsupported(format!("{}: key '{KEY}' is {other}: 1 (mean), 2 (cls) and 3 (last) are supported", file.label())));
            }
        };
        return Ok(EmbeddingOptions { pooling, normalize: true, max_tokens: max_positions, prefix: String::new() });
    }
    let limits: Limits = files.read_json(LIMITS)?.unwrap_or_default();
    let prompts: Prompts = files.read_json(PROMPTS)?.unwrap_or_default();
    let prefix = match prompts.default_prompt_name {
        None => String::new(),
        Some(name) => prompts.prompts.get(&name).cloned().ok_or_else(|| {
            Error::invalid_data(format!("{}: the default prompt '{}' is none of the prompts", files.label(PROMPTS), name.escape_debug()))
        })?,
    };
    let mut options = EmbeddingOptions {
        pooling: Pooling::Mean,
        normalize: false,
        max_tokens: limits.max_seq_length.unwrap_or(max_positions).min(max_positions),
        prefix,
    };
    for Module { path, kind } in files.read_json::<Vec<Module>>(MODULES)?.unwrap_or_default() {
        match kind.rsplit('.').next() {
            Some("Transformer") => {}
            Some("Pooling") => options.pooling = pooling(files, &path)?,
            Some("Normalize") => options.normalize = true,
            Some(_) | None => {
                let message =
                    format!("{}: step '{}' is not supported: Transformer, Pooling and Normalize are", files.label(MODULES), kind.escape_debug());
                return Err(Error::unsupported(message));
            }
        }
    }
    Ok(options)
}

fn pooling(files: &ModelFiles, path: &str) -> Result<Pooling> {
    let plain = !path.is_empty() && !path.starts_with('.') && !path.contains(['/', '\\', ':', '\0']);
    if !plain {
        return Err(Error::invalid_data(format!("{}: '{}' is no plain folder name: rejected", files.label(MODULES), path.escape_debug())));
    }
    let name = format!("{path}/config.json");
    let label = files.label(&name);
    let switches: Switches = files.read_json(&name)?.ok_or_else(|| Error::io(format!("{label} is missing, which {MODULES} names")))?;
    if switches.include_prompt == Some(false) {
        return Err(Error::unsupported(format!("{label}: pooling without the prompt's tokens is not supported")));
    }
    let is_on = |(name, value): (&String, &serde_json::Value)| name.starts_with("pooling_mode_") && value.as_bool() == Some(true);
    let on: Vec<&str> = switches.others.iter().filter(|(name, value)| is_on((name, value))).map(|(name, _)| name.as_str()).collect();
    let modes = switches.pooling_mode.as_deref().map_or(on, |mode| vec![mode]);
    match modes[..] {
        ["mean" | "pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["cls" | "pooling_mode_cls_token"] => Ok(Pooling::Cls),
        ["lasttoken" | "pooling_mode_lasttoken"] => Ok(Pooling::Last),
        _ => Err(Error::unsupported(format!("{label}: pooling '{}' is not supported: one of mean, cls and lasttoken is", modes.join(" and ")))),
    }
}
