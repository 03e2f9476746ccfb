//! One file for each command.

pub(crate) mod bench;
pub(crate) mod chat;
#[cfg(target_os = "linux")]
pub(crate) mod check;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod emit;
pub(crate) mod generate;
pub(crate) mod launch;
pub(crate) mod logits;
pub(crate) mod op;
pub(crate) mod run;

use elinvar::Result;

use crate::args::{Args, Command};

/// Runs the command that was given: whether it may end with success.
pub(crate) fn run(args: &Args) -> Result<bool> {
    match &args.command {
        #[cfg(target_os = "linux")]
        Command::Check(args) => return check::run(args),
        Command::Doctor(args) => return doctor::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Emit(args) => emit::run(args),
        Command::Generate(args) => generate::run(args),
        Command::Launch(args) => launch::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Op(args) => op::run(args),
        Command::Run(args) => run::run(args),
    }?;
    Ok(true)
}

/// Prints a line to standard output; a closed pipe ends the program quietly.
pub(crate) fn print_line(line: impl std::fmt::Display) {
    use std::io::Write;
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}
