//! Speculative decoding, as the command line asks for it.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use elinvar::{Executor, Result};
use elinvar_llm::{Config, DraftSource, Drafts, EngineOptions, MemoryEstimate, ModelFiles, Weights};

use crate::model::BaseArgs;

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

impl DraftArgs {
    /// Where guesses for engines with these options come from, a model loaded if it is one.
    pub(crate) fn load(&self, executor: &Executor, options: &EngineOptions) -> Result<Option<Drafts>> {
        let source = match &self.draft_model {
            None if !self.lookup => return Ok(None),
            None => DraftSource::Lookup,
            Some(path) => {
                let files = ModelFiles::open(path)?;
                let (config, weights) = (Config::read(&files)?, Weights::open(&files)?);
                MemoryEstimate::of_engine(&config, &weights, options).check(executor.memory())?;
                DraftSource::Model(Arc::new(BaseArgs::load(&files, executor, config, &weights)?))
            }
        };
        Ok(Some(Drafts { source, most: self.drafts }))
    }
}
