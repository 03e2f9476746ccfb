//! What a model's folder has beside its weights.

use std::{borrow::Cow, fs, path::Path};

use elinvar::{DType, Error, ErrorKind, Result};
use serde_json::{Map, Value as Json, json};

use super::checkpoint::{config_json, dtype_name};
use crate::{Config, ModelFiles, Tokenizer};

const CONFIG: &str = "config.json";

/// What else may be there.
const OTHERS: &[&str] =
    &["generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"];

/// Files by name.
pub(crate) struct Texts(Vec<(&'static str, Cow<'static, [u8]>)>);

impl Texts {
    /// Those of a folder, with this `config.json`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of_folder(files: &ModelFiles, config: Vec<u8>) -> Result<Self> {
        let mut texts = vec![(CONFIG, Cow::Owned(config))];
        for name in OTHERS {
            texts.extend(files.read(name)?.map(|bytes| (*name, bytes)));
        }
        Ok(Self(texts))
    }

    /// Those of a model whose matrices become `dtype`, or, if that is `None`, integers in groups that `quantization` describes.
    ///
    /// # Errors
    /// A model or a tokenizer that these files cannot express; the system's.
    pub(super) fn of(files: &ModelFiles, dtype: DType, quantization: Option<&Json>) -> Result<Self> {
        let mut config = match files {
            ModelFiles::Gguf(file) => config_json(&Config::read(files)?, dtype).map_err(|e| e.context(file.label()))?,
            ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => {
                files.read_json::<Map<String, Json>>(CONFIG)?.ok_or_else(|| Error::io(format!("{} is missing", files.label(CONFIG))))?
            }
        };
        // The second is what other programs look for.
        for key in ["quantization", "quantization_config"] {
            match quantization {
                Some(quantization) => drop(config.insert(key.to_owned(), quantization.clone())),
                None => drop(config.remove(key)),
            }
        }
        for key in ["torch_dtype", "dtype"].into_iter().filter(|_| quantization.is_none()) {
            if let Some(named) = config.get_mut(key) {
                *named = dtype_name(dtype).into();
            }
        }
        let config = format!("{:#}\n", Json::Object(config)).into_bytes();
        match files {
            ModelFiles::Folder(_) | ModelFiles::Embedded { .. } => Self::of_folder(files, config),
            ModelFiles::Gguf(_) => {
                let tokenizer = Tokenizer::open(files)?;
                let described = format!("{:#}\n", tokenizer_config(&tokenizer)?);
                let texts =
                    [(CONFIG, config), ("tokenizer.json", tokenizer.to_json()?.into_bytes()), ("tokenizer_config.json", described.into_bytes())];
                Ok(Self(texts.map(|(name, text)| (name, Cow::Owned(text))).into()))
            }
        }
    }

    /// Writes them into `folder`, which messages call `path`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, folder: &Path, path: &Path) -> Result<()> {
        self.0.iter().try_for_each(|(name, text)| {
            let failed = |e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.join(name).display()), e);
            fs::write(folder.join(name), text).map_err(failed)
        })
    }
}

fn tokenizer_config(tokenizer: &Tokenizer) -> Result<Json> {
    let bos = tokenizer.bos().and_then(|bos| tokenizer.id(bos));
    Ok(json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokenizer.bos(),
        "eos_token": tokenizer.eos(),
        "add_bos_token": bos.is_some() && tokenizer.encode("")?.first() == bos.as_ref(),
        "add_eos_token": tokenizer.adds_eos(),
        "chat_template": tokenizer.chat_template(),
        "clean_up_tokenization_spaces": false,
    }))
}
