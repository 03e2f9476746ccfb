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

use elinvar::{Error, Result};

use crate::args::{Args, Command};

/// Runs the command that was given: whether it may end with success.
pub(crate) fn run(args: &Args) -> Result<bool> {
    match &args.command {
        #[cfg(target_os = "linux")]
        Command::Check(args) => return check::run(args),
        Command::Doctor(args) => return doctor::run(args),
        Command::Launch(args) => return launch::run(args),
        Command::Bench(args) => bench::run(args).map_err(without_the_device),
        Command::Chat(args) => chat::run(args).map_err(without_the_device),
        Command::Devices(args) => devices::run(args),
        Command::Emit(args) => emit::run(args),
        Command::Generate(args) => generate::run(args).map_err(without_the_device),
        Command::Logits(args) => logits::run(args).map_err(without_the_device),
        Command::Op(args) => op::run(args).map_err(without_the_device),
        Command::Run(args) => run::run(args).map_err(without_the_device),
    }?;
    Ok(true)
}

/// How to go on where a device's compiler does not take a kernel of ours.
fn without_the_device(error: Error) -> Error {
    if !error.is_compile_failed() {
        return error;
    }
    Error::compile_failed(format!("{error}; `--device cpu` computes without this kernel, `elinvar doctor` lists all that do not compile"))
}

/// Prints a line to standard output; a closed pipe ends the program quietly.
pub(crate) fn print_line(line: impl std::fmt::Display) {
    use std::io::Write;
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_compile_for_a_device_is_computed_without_it() {
        let error = without_the_device(Error::compile_failed("softmax_f32: softmax.metal:3:1: error: no"));
        assert!(error.is_compile_failed() && error.to_string().starts_with("softmax_f32: softmax.metal:3:1: error: no; `--device cpu`"), "{error}");
        assert_eq!(without_the_device(Error::io("no disk")).to_string(), "no disk");
    }
}
