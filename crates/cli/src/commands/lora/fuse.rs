use std::path::PathBuf;

use clap::Args;
use elinvar::Result;
use elinvar_llm::{Adapter, Config, fuse};

use crate::{commands::quantize::progress, model::BaseArgs, output::print_line};

/// Arguments of `elinvar lora fuse`.
#[derive(Debug, Args)]
pub(crate) struct FuseArgs {
    /// Fuse the adapter in this folder
    #[arg(long, default_value = "adapters", value_name = "FOLDER")]
    adapter_path: PathBuf,
    /// Write the model to this new folder
    #[arg(long, default_value = "fused_model", value_name = "FOLDER")]
    save_path: PathBuf,
    #[command(flatten)]
    base: BaseArgs,
}

pub(crate) fn run(args: &FuseArgs) -> Result<()> {
    let files = args.base.files()?;
    let (config, adapter) = (Config::read(&files)?, Adapter::open(&args.adapter_path)?);
    let weights = args.base.weights(&files)?;
    let executor = args.base.device.executor_for(weights.bytes())?.replicated();
    let model = BaseArgs::load(&files, &executor, config, &weights)?;
    let progress = progress(weights.bytes());
    fuse(&files, &weights, &model, &adapter, &args.save_path, &mut |done, total| {
        progress.set_length(total);
        progress.set_position(done);
    })?;
    progress.finish_and_clear();
    print_line(format!("the model is in {}", args.save_path.display()));
    Ok(())
}
