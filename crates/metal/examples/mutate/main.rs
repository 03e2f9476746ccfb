//! Mutation run of the kernels' texts: deletes each barrier, widens each bound and drops each store in turn, runs the conformance cases that
//! use the file on the simulator, those that must be rejected included, and reports the fraction noticed:
//! `mutate [--seeds 4] [--cases N] [--named TEXT] [--kernel TEXT] [--shard 0/8] [--nvidia UNITS] [FILE[:LINE]…]`. `--cases` takes at most so many of a
//! file's cases, seemingly at random: files that most kernels use have hundreds. `--named` takes those whose name contains a text, `--kernel` those that launch
//! such a kernel, for kernels share files that only some of them run. `--nvidia` plans strict cases as for one of NVIDIA's GPUs with so many compute units,
//! whose kernels Apple's do not get.
//!
//! A mutant is noticed by a finding, by other bits than the CPU's, or by the oracle. One that does not compile is not counted.

#[cfg(target_os = "linux")]
mod simulated;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    simulated::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the simulator runs on Linux");
}
