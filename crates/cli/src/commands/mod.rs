//! One file for each command, with its arguments.

mod batch;
mod bench;
mod chat;
#[cfg(target_os = "linux")]
mod check;
mod convert;
mod devices;
mod doctor;
mod embed;
mod emit;
mod generate;
mod inspect;
mod launch;
mod logits;
mod lora;
mod op;
mod perplexity;
mod quantize;
mod run;
mod serve;

use clap::{Parser, Subcommand};
use elinvar::{Error, Result};

/// Transformer kernels and language models with the same bits on every device.
#[derive(Debug, Parser)]
#[command(name = "elinvar", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Continue a text
    Generate(generate::GenerateArgs),
    /// Chat with a model that has a chat template
    Chat(chat::ChatArgs),
    /// Run a Metal kernel on the simulator and report its faults
    #[cfg(target_os = "linux")]
    Check(Box<check::CheckArgs>),
    /// Convert a model: a folder to a GGUF file, or a GGUF file to a folder
    Convert(convert::ConvertArgs),
    /// Answer the requests of a file, as OpenAI's batches have them; run again, it goes on where it ended
    Batch(Box<batch::BatchArgs>),
    /// Benchmark operators, decoding and training
    Bench(bench::BenchArgs),
    /// Report what this machine has, compile every kernel for each device and run it: one page for a report
    Doctor(doctor::DoctorArgs),
    /// Compute embeddings of texts with an encoder: MiniLM, E5, BGE
    Embed(embed::EmbedArgs),
    /// Write an Atlas program in another form: Metal, CUDA, its text or its binary
    Emit(emit::EmitArgs),
    /// Run an Atlas program on a device
    Run(Box<run::RunArgs>),
    /// List the devices of this build and their properties
    Devices(devices::DevicesArgs),
    /// Show what is in a GGUF file or a Metal library: metadata and tensors, or functions and their arguments
    Inspect(inspect::InspectArgs),
    /// Run a Metal kernel on a device
    Launch(Box<launch::LaunchArgs>),
    /// Write the logits of the given tokens to a file
    Logits(logits::LogitsArgs),
    /// Train LoRA adapters, test them, and fuse them into a model's weights
    Lora(lora::LoraArgs),
    /// Measure how well a model predicts a text
    Perplexity(perplexity::PerplexityArgs),
    /// Quantise a model's weights into a GGUF file
    Quantize(quantize::QuantizeArgs),
    /// Serve models over HTTP, with the interface of OpenAI's
    Serve(Box<serve::ServeArgs>),
    /// Run one operator on tensors from a file, or list the operators
    Op(op::OpArgs),
}

impl Args {
    /// Whether several processes run the command together, where there are some; the others run in one.
    pub(crate) fn spans_processes(&self) -> bool {
        match &self.command {
            Command::Batch(_)
            | Command::Chat(_)
            | Command::Embed(_)
            | Command::Generate(_)
            | Command::Logits(_)
            | Command::Perplexity(_)
            | Command::Serve(_) => true,
            Command::Lora(args) => args.spans_processes(),
            Command::Bench(args) => args.spans_processes(),
            #[cfg(target_os = "linux")]
            Command::Check(_) => false,
            Command::Convert(_)
            | Command::Devices(_)
            | Command::Doctor(_)
            | Command::Emit(_)
            | Command::Inspect(_)
            | Command::Launch(_)
            | Command::Op(_)
            | Command::Quantize(_)
            | Command::Run(_) => false,
        }
    }
}

/// Runs the command that was given: whether it may end with success.
pub(crate) fn run(args: &Args) -> Result<bool> {
    match &args.command {
        #[cfg(target_os = "linux")]
        Command::Check(args) => return check::run(args),
        Command::Batch(args) => return batch::run(args).map_err(without_the_device),
        Command::Doctor(args) => return doctor::run(args),
        Command::Launch(args) => return launch::run(args),
        Command::Bench(args) => bench::run(args).map_err(without_the_device),
        Command::Chat(args) => chat::run(args).map_err(without_the_device),
        Command::Convert(args) => convert::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Embed(args) => embed::run(args).map_err(without_the_device),
        Command::Emit(args) => emit::run(args),
        Command::Generate(args) => generate::run(args).map_err(without_the_device),
        Command::Inspect(args) => inspect::run(args),
        Command::Logits(args) => logits::run(args).map_err(without_the_device),
        Command::Lora(args) => lora::run(args).map_err(without_the_device),
        Command::Op(args) => op::run(args).map_err(without_the_device),
        Command::Perplexity(args) => perplexity::run(args).map_err(without_the_device),
        Command::Quantize(args) => quantize::run(args),
        Command::Run(args) => run::run(args).map_err(without_the_device),
        Command::Serve(args) => serve::run(args).map_err(without_the_device),
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
