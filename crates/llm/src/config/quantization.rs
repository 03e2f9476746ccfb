//! How MLX has quantised the matrices of a folder: `quantization` in `config.json`.

use std::collections::BTreeMap;

use elinvar::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::files::ModelFiles;

/// Neighbours in a row that share a scale and an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many.
    pub(crate) size: usize,
    /// Bits of each.
    pub(crate) bits: usize,
}

impl Groups {
    /// How many may be together.
    pub const SIZES: &[usize] = &[32, 64, 128];
    /// How many bits they may have.
    pub const BITS: &[usize] = &[2, 3, 4, 5, 6, 8];

    /// Groups of `size` with `bits` each.
    ///
    /// # Errors
    /// A size that is not in [`Groups::SIZES`], or bits that are not in [`Groups::BITS`].
    pub fn new(size: usize, bits: usize) -> Result<Self> {
        for (what, found, possible) in [("size of groups", size, Self::SIZES), ("number of bits", bits, Self::BITS)] {
            if !possible.contains(&found) {
                return Err(Error::invalid_argument(format!("the {what} is {found}: it must be one of {possible:?}")));
            }
        }
        Ok(Self { size, bits })
    }
}

/// The groups of all matrices, unless those of one are others.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct Quantization {
    all: Groups,
    others: BTreeMap<String, Groups>,
}

impl Quantization {
    /// Of a folder's `config.json`, if it has it.
    ///
    /// # Errors
    /// It is damaged, or asks for what is not supported.
    pub(crate) fn read(files: &ModelFiles) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct File {
            quantization: Option<Quantization>,
        }
        Ok(files.read_json::<File>(super::FILE)?.and_then(|file| file.quantization))
    }

    /// The groups of a layer's weight, if that is quantised at all.
    pub(crate) fn of(&self, layer: &str) -> Groups {
        self.others.get(layer).copied().unwrap_or(self.all)
    }
}

impl TryFrom<Map<String, Value>> for Quantization {
    type Error = String;

    fn try_from(keys: Map<String, Value>) -> Result<Self, String> {
        let mut others = BTreeMap::new();
        for (key, value) in &keys {
            match (key.as_str(), value) {
                // Whether there are scales says which layers are quantised.
                ("group_size" | "bits" | "mode", _) | (_, Value::Bool(_)) => {}
                (layer, Value::Object(own)) => drop(others.insert(layer.to_owned(), groups(own)?)),
                (key, _) => return Err(format!("'quantization' has a key '{}' that may change the result: it is not supported", key.escape_debug())),
            }
        }
        Ok(Self { all: groups(&keys)?, others })
    }
}

fn groups(keys: &Map<String, Value>) -> Result<Groups, String> {
    match keys.get("mode").map(|mode| mode.as_str().unwrap_or_default()) {
        None | Some("affine") => {}
        Some(mode) => return Err(format!("quantisation in mode '{}' is not supported: affine is", mode.escape_debug())),
    }
    let number = |key: &str, possible: &[usize], default: usize| match keys.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(found) => {
            let number = found.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| possible.contains(n));
            number.ok_or_else(|| format!("'{key}' of 'quantization' is {found}: it must be one of {possible:?}"))
        }
    };
    // The defaults are MLX's own.
    Ok(Groups { size: number("group_size", Groups::SIZES, 64)?, bits: number("bits", Groups::BITS, 4)? })
}
