//! The model compiled into the program.

use elinvar::{Error, Result};
use elinvar_llm::ModelFiles;

/// A small model trained on Shakespeare: see `models/shakespeare/README.md`.
#[cfg(feature = "embedded-model")]
const FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../../../models/shakespeare/config.json")),
    ("generation_config.json", include_bytes!("../../../models/shakespeare/generation_config.json")),
    ("model.safetensors", include_bytes!("../../../models/shakespeare/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../../models/shakespeare/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../../models/shakespeare/tokenizer_config.json")),
];
#[cfg(not(feature = "embedded-model"))]
const FILES: &[(&str, &[u8])] = &[];

/// Its files.
///
/// # Errors
/// The program was built without it.
pub(crate) fn files() -> Result<ModelFiles> {
    if FILES.is_empty() {
        return Err(Error::unsupported("this build has no embedded model: name a folder with --model"));
    }
    Ok(ModelFiles::Embedded { name: "shakespeare", files: FILES })
}
