//! Groups of arguments that several commands take, and the executor they ask for.

use std::num::NonZeroUsize;

use clap::Args;
use elinvar::{BackendType, Error, Executor, Precision, Result};
use elinvar_llm::Checkpointing;

use crate::world;

/// What training computes again.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CheckpointArgs {
    /// Compute layers again on the way back, for less memory and more time; with =feed-forward keep what attention's linear layers gave, which takes some of that
    /// memory and saves some of that time
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "layers", default_value = "none")]
    #[arg(hide_default_value = true, value_name = "WHAT")]
    pub(crate) grad_checkpoint: Checkpointing,
}

/// Where to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Run on this device: auto, metal, cuda (metal:1, cuda:1 for the second GPU), cpu, metal-sim; on several: cuda:0,cuda:1; each process that torchrun starts has
    /// one [default: auto;
    /// ELINVAR_DEVICE overrides auto; ELINVAR_SIMD=baseline, avx2 or avx512 limits the cpu's vector instructions]
    #[arg(long, visible_alias = "devices", default_value = "auto", hide_default_value = true)]
    pub(crate) device: String,
}

impl DeviceArgs {
    /// Whether it is the simulator, which makes native code of kernels: named here, or in the environment.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_simulator(&self) -> Result<bool> {
        Ok(self.wanted()?.contains(&BackendType::MetalSim))
    }

    /// The devices named here, or in the environment.
    fn wanted(&self) -> Result<Vec<BackendType>> {
        if self.device == "auto" { Ok(BackendType::from_environment()?.into_iter().collect()) } else { self.named() }
    }

    /// The devices named, none for the automatic choice.
    fn named(&self) -> Result<Vec<BackendType>> {
        if self.device == "auto" { Ok(Vec::new()) } else { BackendType::parse_list(&self.device) }
    }

    /// Opens the device.
    pub(crate) fn executor(&self) -> Result<Executor> {
        self.executor_for(None, 0)
    }

    /// Opens the device, the CPU with so many threads, for work that needs so much memory: what `auto` chooses has it, or is the CPU.
    pub(crate) fn executor_for(&self, threads: Option<NonZeroUsize>, bytes: u64) -> Result<Executor> {
        if let Some(world) = world::world() {
            if threads.is_some() {
                return Err(Error::invalid_argument("--threads is for one process: those of a host share its cores"));
            }
            return Executor::among(world.clone(), &BackendType::of_process(&self.wanted()?, world.place())?);
        }
        world::check_alone()?;
        match (&self.named()?[..], threads) {
            ([] | [BackendType::Cpu], Some(threads)) => Executor::new_cpu(threads),
            (_, Some(_)) => Err(Error::invalid_argument(format!("--threads is for the cpu device, not for {}", self.device))),
            (&[backend], None) => Executor::new_with_backend(backend),
            (several @ [_, _, ..], None) => Executor::group(several),
            ([], None) => {
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
#[derive(Clone, Debug, Args)]
pub(crate) struct ComputeArgs {
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Use this many threads on the CPU device [default: one per core]
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Compute matmul and attention in this precision: strict (the same bits everywhere), invariant (the same bits of a row,
    /// whatever else is computed, on one device) or fast; what is not strict is trained in fast [default: invariant]
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
        Ok(self.device.executor_for(self.threads, bytes)?.with_precision(self.precision.unwrap_or(Executor::DEFAULT_PRECISION)))
    }
}
