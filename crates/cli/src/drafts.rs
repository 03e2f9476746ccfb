//! Speculative decoding, as the command line asks for it.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use elinvar::{Executor, Result};
use elinvar_llm::{Config, DraftSource, Drafts, EngineOptions, Model, ModelFiles, Weights};

use crate::{model::BaseArgs, plan::Footprint};

/// Guesses of the next tokens, which a step checks together.
#[derive(Debug, Args)]
pub(crate) struct DraftArgs {
    /// Guess that the last tokens are followed by what followed them before in the text, and check several guesses in a step: the tokens stay the same, in strict
    /// precision their bits too
    #[arg(long, conflicts_with = "draft_model")]
    lookup: bool,
    /// Guess with this smaller model of the same vocabulary, a GGUF file or a folder, and check several guesses in a step
    #[arg(long, value_name = "PATH")]
    draft_model: Option<PathBuf>,
    /// Guess at most this many tokens of a text at a time
    #[arg(long, default_value_t = 8, value_name = "TOKENS")]
    drafts: usize,
}

/// A draft model that is not loaded yet.
pub(crate) struct DraftModel {
    files: ModelFiles,
    config: Config,
    weights: Weights,
}

impl DraftArgs {
    /// The files of the draft model, if there is one.
    pub(crate) fn open(&self) -> Result<Option<DraftModel>> {
        let open = |path: &PathBuf| {
            let files = ModelFiles::open(path)?;
            Ok(DraftModel { config: Config::read(&files)?, weights: Weights::open(&files)?, files })
        };
        self.draft_model.as_ref().map(open).transpose()
    }

    /// Whether tokens are guessed.
    pub(crate) fn is_given(&self) -> bool {
        self.lookup || self.draft_model.is_some()
    }

    /// Where guesses come from: the draft model, or the text itself.
    pub(crate) fn drafts(&self, model: Option<&Arc<Model>>) -> Option<Drafts> {
        let source = model.map_or(DraftSource::Lookup, |model| DraftSource::Model(model.clone()));
        self.is_given().then_some(Drafts { source, most: self.drafts })
    }
}

impl DraftModel {
    /// What it takes of each rank of a group of devices, beside an engine with these options.
    pub(crate) fn footprint(&self, options: &EngineOptions, ranks: usize) -> Footprint {
        Footprint::new(&self.config, &self.weights, options, ranks)
    }

    /// Puts it on a device.
    pub(crate) fn load(self, executor: &Executor) -> Result<Arc<Model>> {
        BaseArgs::load(&self.files, executor, self.config, &self.weights).map(Arc::new)
    }
}
