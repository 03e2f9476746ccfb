//! Which adapter `elinvar lora train` trains.

use std::path::PathBuf;

use elinvar::{Error, Result};
use elinvar_llm::{Adapter, AdapterConfig, Model, Targets};

use super::options::{Kind, TrainArgs};

/// Rank of low-rank matrices unless it is given.
const RANK: usize = 8;

impl TrainArgs {
    /// The adapter to begin with, if one is given.
    pub(super) fn initial(&self) -> Result<Option<Adapter>> {
        let open = |path: &PathBuf| Adapter::open(if path.is_file() { path.with_file_name("") } else { path.clone() });
        self.resume_adapter_file.as_ref().map(open).transpose()
    }

    /// The configuration of what is trained: that of the adapter to begin with, if there is one.
    ///
    /// # Errors
    /// An option that would have no effect.
    pub(super) fn adapter(&self, model: &Model, initial: Option<&Adapter>) -> Result<AdapterConfig> {
        match initial {
            Some(adapter) => self.again(adapter.config()),
            None if self.fine_tune_type == Kind::Full => self.whole(model),
            None => Ok(self.low_rank(model)),
        }
    }

    /// An adapter goes on as it is: what is given must be what it has.
    fn again(&self, config: &AdapterConfig) -> Result<AdapterConfig> {
        let divisor = if config.use_rslora { (config.rank as f64).sqrt() } else { config.rank as f64 };
        let scale = config.alpha / divisor;
        let is_near = |given: f64, has: f64| (given - has).abs() <= 1e-6 * has.abs();
        let targets = (!self.target_modules.is_empty()).then(|| Targets::Names(self.target_modules.clone()));
        let differing = [
            self.rank.filter(|rank| *rank != config.rank).map(|rank| format!("--rank {rank}: the adapter has {}", config.rank)),
            self.alpha.filter(|alpha| !is_near(*alpha, config.alpha)).map(|alpha| format!("--alpha {alpha}: the adapter has {}", config.alpha)),
            self.scale.filter(|given| !is_near(*given, scale)).map(|given| format!("--scale {given}: the adapter has {scale}")),
            (self.rslora && !config.use_rslora).then(|| "--rslora: the adapter has none".to_owned()),
            targets.filter(|targets| *targets != config.targets).map(|_| "--target-modules: the adapter has others".to_owned()),
            (self.fine_tune_type == Kind::Dora && !config.use_dora).then(|| "--fine-tune-type dora: the adapter is none".to_owned()),
            (self.fine_tune_type == Kind::Full).then(|| "--fine-tune-type full: an adapter is given".to_owned()),
        ];
        match differing.into_iter().flatten().next() {
            Some(what) => {
                Err(Error::invalid_argument(format!("{what}, and --resume-adapter-file keeps it: leave the option out, or begin a new adapter")))
            }
            None => Ok(AdapterConfig { dropout: self.lora_dropout.unwrap_or(config.dropout), ..config.clone() }),
        }
    }

    /// The layers whose own matrices, or adapters, are trained.
    fn layers(&self, model: &Model) -> usize {
        let all = model.config().layers;
        usize::try_from(self.num_layers).map_or(all, |layers| layers.min(all))
    }

    fn base_model(&self) -> Option<String> {
        self.base.model.as_ref().map(|path| path.display().to_string())
    }

    fn whole(&self, model: &Model) -> Result<AdapterConfig> {
        let without_effect = [
            self.rank.map(|_| "--rank"),
            self.alpha.map(|_| "--alpha"),
            self.scale.map(|_| "--scale"),
            self.rslora.then_some("--rslora"),
            (!self.target_modules.is_empty()).then_some("--target-modules"),
        ];
        if let Some(option) = without_effect.into_iter().flatten().next() {
            return Err(Error::invalid_argument(format!("{option} is of low-rank matrices: with --fine-tune-type full it would have no effect")));
        }
        let dropout = self.lora_dropout.unwrap_or(0.0);
        Ok(AdapterConfig { base_model: self.base_model(), dropout, ..AdapterConfig::whole_layers(model, self.layers(model)) })
    }

    fn low_rank(&self, model: &Model) -> AdapterConfig {
        let (config, rank) = (AdapterConfig::of_layers(model, self.layers(model)), self.rank.unwrap_or(RANK));
        let divisor = if self.rslora { (rank as f64).sqrt() } else { rank as f64 };
        AdapterConfig {
            rank,
            alpha: self.alpha.unwrap_or_else(|| self.scale.map_or(2.0 * rank as f64, |scale| scale * divisor)),
            use_rslora: self.rslora,
            use_dora: self.fine_tune_type == Kind::Dora,
            dropout: self.lora_dropout.unwrap_or(0.0),
            targets: if self.target_modules.is_empty() { config.targets } else { Targets::Names(self.target_modules.clone()) },
            base_model: self.base_model(),
            ..config
        }
    }
}
