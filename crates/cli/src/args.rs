//! What the command line says, and the executor it asks for.

use std::num::NonZeroUsize;

use clap::{Args as Group, Parser, Subcommand};
use elinvar::{BackendType, Error, Executor, Precision, Result};

#[cfg(target_os = "linux")]
use crate::commands::check;
use crate::commands::{bench, chat, devices, doctor, emit, generate, launch, logits, op, run};

/// Transformer kernels and language models with the same bits on every device.
#[derive(Debug, Parser)]
#[command(name = "elinvar", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a text
    Generate(generate::GenerateArgs),
    /// Chat with a model that has a chat template
    Chat(chat::ChatArgs),
    /// Run a Metal kernel on the simulator and report its faults
    #[cfg(target_os = "linux")]
    Check(Box<check::CheckArgs>),
    /// Benchmark operators and decoding
    Bench(bench::BenchArgs),
    /// Report what this machine has, compile every kernel for each device and run it: one page for a report
    Doctor(doctor::DoctorArgs),
    /// Write an Atlas program in another form: Metal, CUDA, its text or its binary
    Emit(emit::EmitArgs),
    /// Run an Atlas program on a device
    Run(Box<run::RunArgs>),
    /// List the devices of this build and their properties
    Devices(devices::DevicesArgs),
    /// Run a Metal kernel on a device
    Launch(Box<launch::LaunchArgs>),
    /// Write the logits of the given tokens to a file
    Logits(logits::LogitsArgs),
    /// Run one operator on tensors from a file, or list the operators
    Op(op::OpArgs),
}

/// Where to run.
#[derive(Clone, Debug, Group)]
pub(crate) struct DeviceArgs {
    /// Run on this device: auto, metal, cuda (metal:1, cuda:1 for the second GPU), cpu, metal-sim [default: auto; ELINVAR_DEVICE overrides auto]
    #[arg(long, default_value = "auto", hide_default_value = true)]
    pub(crate) device: String,
}

impl DeviceArgs {
    /// Whether it is the simulator, which makes native code of kernels: named here, or in the environment.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_simulator(&self) -> Result<bool> {
        let named = if self.device == "auto" { BackendType::from_environment()? } else { Some(self.device.parse()?) };
        Ok(named == Some(BackendType::MetalSim))
    }

    /// Opens the device.
    pub(crate) fn executor(&self) -> Result<Executor> {
        self.open(None, 0)
    }

    /// Opens the device, the CPU with so many threads, for work that needs so much memory: what `auto` chooses has it, or is the CPU.
    fn open(&self, threads: Option<NonZeroUsize>, bytes: u64) -> Result<Executor> {
        let backend = if self.device == "auto" { None } else { Some(self.device.parse::<BackendType>()?) };
        match (backend, threads) {
            (None | Some(BackendType::Cpu), Some(threads)) => Executor::new_cpu(threads),
            (Some(backend), Some(_)) => Err(Error::invalid_argument(format!("--threads is for the cpu device, not for {backend}"))),
            (Some(backend), None) => Executor::new_with_backend(backend),
            (None, None) => {
                let (executor, passed_over) = Executor::new_auto_for(bytes)?;
                if let Some(why) = passed_over {
                    eprintln!("{why}");
                }
                Ok(executor)
            }
        }
    }
}

/// Where and how to compute. (Commands that launch a kernel have `--threads` of their own: those of its grid.)
#[derive(Clone, Debug, Group)]
pub(crate) struct ComputeArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Use this many threads on the CPU device [default: one per core]
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Compute matmul and attention in this precision: strict (the same bits everywhere) or fast [default: fast]
    #[arg(long)]
    pub(crate) precision: Option<Precision>,
}

impl ComputeArgs {
    /// Opens the device.
    pub(crate) fn executor(&self) -> Result<Executor> {
        self.executor_for(0)
    }

    /// Opens the device for work that needs so much memory: what `auto` chooses has it, or is the CPU.
    pub(crate) fn executor_for(&self, bytes: u64) -> Result<Executor> {
        Ok(self.device.open(self.threads, bytes)?.with_precision(self.precision.unwrap_or(Executor::DEFAULT_PRECISION)))
    }
}
