//! What benchmarks of rows take.

use clap::Args;

use crate::{args::ComputeArgs, profile::ProfileArgs};

/// How long, on what, and how it is shown.
#[derive(Debug, Args)]
pub(super) struct RowArgs {
    /// Spend this many seconds on each row
    #[arg(long, default_value_t = 0.5)]
    pub(super) seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) profile: ProfileArgs,
    #[command(flatten)]
    pub(super) device: ComputeArgs,
}
