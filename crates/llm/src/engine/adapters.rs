//! Adapters by name, each with a number among those that a step may have.

use std::{collections::HashSet, path::Path, sync::Arc};

use elinvar::{Error, Result};

use super::{runner::Runner, schedule::Schedule};
use crate::{
    adapter::{Adapter, Adapters},
    model::{Change, Model},
};

/// The adapter of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdapterSlot {
    pub(super) number: u32,
    /// The number of what comes before the first page of its texts: they share none with others.
    pub(super) start: u64,
}

/// An adapter that is loaded, or was and is still used by requests.
struct Loaded {
    /// Its name, until it is unloaded.
    name: Option<String>,
    model: Arc<Model>,
    start: u64,
}

/// The adapters of an engine.
pub(super) struct EngineAdapters {
    known: Adapters,
    /// By number.
    slots: Vec<Option<Loaded>>,
}

impl EngineAdapters {
    pub(super) fn new(base: Arc<Model>) -> Self {
        Self { known: Adapters::new(base), slots: Vec::new() }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.known.names()
    }

    /// Where the adapter of this name is.
    ///
    /// # Errors
    /// It is not loaded.
    pub(super) fn find(&self, name: &str) -> Result<AdapterSlot> {
        self.known.get(name)?;
        let named = |(number, slot): (usize, &Option<Loaded>)| {
            let slot = slot.as_ref().filter(|slot| slot.name.as_deref() == Some(name))?;
            Some(AdapterSlot { number: number as u32, start: slot.start })
        };
        self.slots.iter().enumerate().find_map(named).ok_or_else(|| Error::internal(format!("the adapter '{name}' has no number")))
    }

    /// Loads a folder.
    ///
    /// # Errors
    /// As [`Adapters::load`]; an adapter that is not made of low-rank matrices alone; out of memory. Nothing has changed then.
    pub(super) fn load(&mut self, name: &str, folder: &Path, schedule: &mut Schedule, runner: &mut Runner) -> Result<()> {
        let adapter = Adapter::open(folder)?;
        let changes = adapter.config().changes(&self.known.base().places())?;
        let is_plain = |change: &Change| matches!(change, Change::LowRank { dora: false, .. });
        if let Some((place, _)) = changes.iter().find(|(_, change)| !is_plain(change)) {
            return Err(Error::unsupported(format!(
                "the adapter '{name}' replaces or rescales '{}', which rows of one step have in common: fuse it into a model of its own (elinvar lora fuse)",
                place.name
            )));
        }
        let model = self.known.insert(name, &adapter)?;
        let loaded = Loaded { name: Some(name.to_owned()), model, start: schedule.pool.start() };
        self.free(schedule);
        let number = match self.slots.iter().position(Option::is_none) {
            Some(number) => number,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[number] = Some(loaded);
        if let Err(error) = self.restack(runner) {
            self.known.unload(name)?;
            self.slots[number] = None;
            return Err(error);
        }
        Ok(())
    }

    /// Forgets a name. Requests that have the adapter keep it.
    ///
    /// # Errors
    /// It is not loaded, or out of memory.
    pub(super) fn unload(&mut self, name: &str, schedule: &Schedule, runner: &mut Runner) -> Result<()> {
        self.known.unload(name)?;
        self.slots.iter_mut().flatten().filter(|slot| slot.name.as_deref() == Some(name)).for_each(|slot| slot.name = None);
        self.free(schedule);
        self.restack(runner)
    }

    /// Drops what has no name and no requests.
    fn free(&mut self, schedule: &Schedule) {
        let used: HashSet<u32> = schedule.sequences().filter_map(|sequence| sequence.adapter).map(|adapter| adapter.number).collect();
        for (number, slot) in (0..).zip(&mut self.slots) {
            slot.take_if(|slot| slot.name.is_none() && !used.contains(&number));
        }
        while self.slots.last().is_some_and(Option::is_none) {
            self.slots.pop();
        }
    }

    fn restack(&self, runner: &mut Runner) -> Result<()> {
        runner.set_adapters(&self.slots.iter().map(|slot| slot.as_ref().map(|slot| slot.model.clone())).collect::<Vec<_>>())
    }
}
