//! From an adapter's configuration to what it changes in a model.

use elinvar::{Error, Result};

use super::{
    config::AdapterConfig,
    targets::{Targets, is_named},
};
use crate::model::{Change, Model, Place, PlaceKind};

impl AdapterConfig {
    /// Low-rank adapters of every linear layer in the last `layers` layers of a model, but for the output projection.
    pub fn of_layers(model: &Model, layers: usize) -> Self {
        let names = kinds(&linear(model, model.config().layers)).split(", ").map(str::to_owned).collect();
        let all = model.config().layers;
        let last = (layers < all).then(|| (all - layers.min(all)..all).collect());
        Self { targets: Targets::Names(names), layers: last, ..Self::default() }
    }

    /// No low-rank adapters: every linear layer in the last `layers` layers of a model, but for the output projection, is trained and stored whole.
    pub fn whole_layers(model: &Model, layers: usize) -> Self {
        let modules_to_save = linear(model, layers).into_iter().map(|place| place.name).collect();
        Self { targets: Targets::Names(Vec::new()), modules_to_save, ..Self::default() }
    }

    /// What becomes of a model's matrices.
    ///
    /// # Errors
    /// Names that stand for nothing in the model, or for what has no low-rank form.
    pub(crate) fn changes(&self, places: &[Place]) -> Result<Vec<(Place, Change)>> {
        self.check_names(places)?;
        let mut changes = Vec::new();
        for place in places {
            if self.modules_to_save.iter().any(|name| is_named(&place.name, name)) {
                changes.push((place.clone(), Change::Replaced));
            } else if self.has_adapter(place)? {
                let what = match place.kind {
                    PlaceKind::Linear | PlaceKind::Head => None,
                    PlaceKind::Embedding => Some("embedding"),
                    PlaceKind::Norm => Some("norm"),
                };
                if let Some(what) = what {
                    let name = &place.name;
                    return Err(Error::unsupported(format!("a low-rank adapter of the {what} '{name}': store it whole with 'modules_to_save'")));
                }
                let (rank, scale) = self.scale_of(&place.name)?;
                changes.push((place.clone(), Change::LowRank { rank, scale, dora: self.use_dora }));
            }
        }
        if changes.is_empty() {
            return Err(Error::invalid_argument(format!(
                "the adapter's 'target_modules' ({}) name nothing in the model, whose linear layers are {}",
                self.targets.to_json(),
                kinds(places)
            )));
        }
        Ok(changes)
    }

    /// Whether a matrix gets a low-rank adapter.
    fn has_adapter(&self, place: &Place) -> Result<bool> {
        if let Some(exclude) = &self.exclude
            && exclude.select(place)?
        {
            return Ok(false);
        }
        let whole = |targets: &Targets| match targets {
            Targets::Names(names) => names.contains(&place.name),
            Targets::AllLinear | Targets::Matching(_) => false,
        };
        // A name in full counts whatever the layer.
        Ok(self.targets.select(place)?
            && (whole(&self.targets) || self.layers.as_ref().is_none_or(|layers| layer(&place.name).is_some_and(|l| layers.contains(&l)))))
    }

    /// Rejects a name that no matrix has.
    fn check_names(&self, places: &[Place]) -> Result<()> {
        let unknown = |names: &[String]| names.iter().find(|name| !places.iter().any(|place| is_named(&place.name, name))).cloned();
        let targets = match &self.targets {
            Targets::Names(names) => unknown(names),
            Targets::AllLinear | Targets::Matching(_) => None,
        };
        let lists = [("target_modules", targets), ("modules_to_save", unknown(&self.modules_to_save))];
        match lists.into_iter().find_map(|(key, name)| Some((key, name?))) {
            Some((key, name)) => Err(Error::invalid_argument(format!(
                "the adapter's '{key}' has '{name}', which is nothing in the model: its matrices are {}",
                kinds(places)
            ))),
            None => Ok(()),
        }
    }
}

/// The linear layers in a model's last layers.
fn linear(model: &Model, layers: usize) -> Vec<Place> {
    let first = model.config().layers.saturating_sub(layers);
    let is_last = |place: &Place| place.kind == PlaceKind::Linear && layer(&place.name).is_some_and(|layer| layer >= first);
    model.places().into_iter().filter(is_last).collect()
}

/// The layer that a module is in.
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("model.layers.")?.split('.').next()?.parse().ok()
}

/// The last part of each name, once.
fn kinds(places: &[Place]) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for kind in places.iter().filter_map(|place| place.name.rsplit('.').next()) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(", ")
}
