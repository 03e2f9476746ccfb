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
mod world;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = commands::Args::parse();
    let entered = if args.spans_processes() { world::enter() } else { Ok(()) };
    let done = entered.and_then(|()| commands::run(&args));
    world::leave(done.as_ref().err());
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // A check that could not be made is not a check that found something.
        Err(_) => ExitCode::from(2),
    }
}
