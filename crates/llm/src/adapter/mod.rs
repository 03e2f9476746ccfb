//! Adapters: LoRA and DoRA in PEFT's files, `adapter_config.json` and `adapter_model.safetensors`.

mod config;
mod file;
mod fuse;
mod plan;
mod registry;
mod targets;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use elinvar::{Error, ErrorKind, Result};

pub use config::AdapterConfig;
pub(crate) use file::{Arrays, read_arrays, write_arrays};
pub use fuse::fuse;
pub use registry::Adapters;
pub use targets::{Pattern, Targets};

use crate::{model::Model, whole::write_file};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";
/// What PEFT puts before the names of a model's modules.
const PREFIX: &str = "base_model.model.";

/// What training adds to a model: small matrices beside its own, or replacements for some of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    pub(crate) config: AdapterConfig,
    /// By the names of the model's checkpoint.
    pub(crate) tensors: Arrays,
}

impl Adapter {
    /// Reads the folder that PEFT, or [`Adapter::save`], wrote.
    ///
    /// # Errors
    /// A file that is missing or damaged, or a key of the configuration that is not understood and has an effect.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(|e| {
            Error::with_source(ErrorKind::Io, format!("cannot read {}: an adapter is a folder with {CONFIG} and {TENSORS}", path.display()), e)
        })?;
        let config = AdapterConfig::parse(&text).map_err(|e| e.context(path.display()))?;
        let path = folder.join(TENSORS);
        let (arrays, _) = read_arrays(&path)?;
        let name = |name: String| match name.strip_prefix(PREFIX) {
            // Modules that are stored whole have another name in older files.
            Some(name) => Ok(name.replace(".modules_to_save", "").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")),
            None => Err(Error::invalid_data(format!("{}: tensor '{name}' is none of an adapter: names begin with '{PREFIX}'", path.display()))),
        };
        let tensors = arrays.into_iter().map(|(key, array)| Ok((name(key)?, array))).collect::<Result<_>>()?;
        Ok(Self { config, tensors })
    }

    /// Writes the files, each whole or not at all, into a folder, which is made if it is not there.
    ///
    /// # Errors
    /// The system's: a full disk, no permission.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let failed = |path: &Path, e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e);
        fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        let path = folder.join(CONFIG);
        write_file(&path, |out| out.write_all(self.config.to_json().as_bytes()).map_err(|e| failed(&path, e)))?;
        let named = self.tensors.iter().map(|(name, array)| (format!("{PREFIX}{name}"), array.clone())).collect();
        write_arrays(&folder.join(TENSORS), &named, &BTreeMap::from([("format".to_owned(), "pt".to_owned())]))
    }

    /// What it changes, and how.
    pub fn config(&self) -> &AdapterConfig {
        &self.config
    }
}

impl Model {
    /// The model with an adapter: a model of its own that shares the weights. To change adapters make another of the model without one.
    ///
    /// # Errors
    /// An adapter for another model: names, ranks or extents that do not fit; or out of memory.
    pub fn with_adapter(&self, adapter: &Adapter) -> Result<Self> {
        let changes = adapter.config.changes(&self.places())?;
        let mut used = BTreeSet::new();
        let model = self.changed(&changes, &mut |name, dims| {
            let missing = || Error::invalid_data(format!("the adapter has no tensor '{name}', which its configuration and the model ask for"));
            let (found, values) = adapter.tensors.get(name).ok_or_else(missing)?;
            if found != dims {
                let expected = format!("its configuration and the model ask for {dims:?}: it belongs to another model or rank");
                return Err(Error::invalid_data(format!("the adapter's tensor '{name}' has shape {found:?}, {expected}")));
            }
            used.insert(name.to_owned());
            self.executor().tensor(dims, values)
        })?;
        match adapter.tensors.keys().find(|name| !used.contains(*name)) {
            Some(name) => Err(Error::invalid_data(format!("the adapter's tensor '{name}' has no place in its configuration and the model"))),
            None => Ok(model),
        }
    }
}
