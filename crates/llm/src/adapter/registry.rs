//! Adapters of one model by name.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    path::Path,
    sync::Arc,
};

use elinvar::{Error, Result};

use super::Adapter;
use crate::model::Model;

/// A model, and its adapters by name. All share the weights, so that each takes the memory of its small matrices alone.
///
/// A session changes to another with [`Session::set_model`](crate::Session::set_model). What a session uses stays while it does, also where its adapter was
/// unloaded.
pub struct Adapters {
    base: Arc<Model>,
    loaded: BTreeMap<String, Arc<Model>>,
}

impl Adapters {
    /// Without any so far.
    pub fn new(base: Arc<Model>) -> Self {
        Self { base, loaded: BTreeMap::new() }
    }

    /// The model without one.
    pub fn base(&self) -> &Arc<Model> {
        &self.base
    }

    /// Loads a folder as PEFT and `lora train` write it.
    ///
    /// # Errors
    /// A name that is taken, those of [`Adapter::open`] and of [`Model::with_adapter`]; nothing has changed then.
    pub fn load(&mut self, name: &str, folder: impl AsRef<Path>) -> Result<Arc<Model>> {
        self.insert(name, &Adapter::open(folder)?)
    }

    /// Takes an adapter in.
    ///
    /// # Errors
    /// A name that is taken, and those of [`Model::with_adapter`]; nothing has changed then.
    pub fn insert(&mut self, name: &str, adapter: &Adapter) -> Result<Arc<Model>> {
        match self.loaded.entry(name.to_owned()) {
            Entry::Occupied(_) => Err(Error::invalid_argument(format!("there is an adapter '{name}' already: unload it, or take another name"))),
            Entry::Vacant(place) => Ok(place.insert(Arc::new(self.base.with_adapter(adapter)?)).clone()),
        }
    }

    /// The model with an adapter.
    ///
    /// # Errors
    /// It is not loaded; the message lists those that are.
    pub fn get(&self, name: &str) -> Result<&Arc<Model>> {
        self.loaded.get(name).ok_or_else(|| self.missing(name))
    }

    /// Drops an adapter.
    ///
    /// # Errors
    /// As [`Adapters::get`].
    pub fn unload(&mut self, name: &str) -> Result<()> {
        self.loaded.remove(name).map(|_| ()).ok_or_else(|| self.missing(name))
    }

    /// The names of those that are loaded, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.loaded.keys().map(String::as_str)
    }

    fn missing(&self, name: &str) -> Error {
        let names: Vec<_> = self.names().collect();
        let known = if names.is_empty() { "none is".to_owned() } else { format!("loaded are {}", names.join(", ")) };
        Error::invalid_argument(format!("the adapter '{name}' is not loaded: {known}"))
    }
}
