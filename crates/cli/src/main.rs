//! The `elinvar` command.

mod args;
mod commands;
mod drafts;
mod embedded;
mod kernel;
mod measure;
mod model;
mod output;
mod plan;
mod profile;
mod sampling;
mod served;
mod tensors;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = commands::Args::parse();
    match commands::run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            // A check that could not be made is not a check that found something.
            ExitCode::from(2)
        }
    }
}
