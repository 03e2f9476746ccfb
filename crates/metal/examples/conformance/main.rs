//! Runs conformance cases on the simulated Metal device: `conformance [--sources crates/kernels/src] [--seeds N] [FILTER]`.
//!
//! With `--sources` the kernels' texts are read from that folder, so that work on them needs no rebuild. On a Mac, `conformance [FILTER]` runs them on its
//! GPU, even on one that the device rejects: a trial, whose failures show what such a GPU lacks.

#[cfg(target_os = "linux")]
mod simulated;
#[cfg(target_vendor = "apple")]
mod trial;

#[cfg(target_os = "linux")]
fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    simulated::main()
}

#[cfg(target_vendor = "apple")]
fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    trial::main()
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn main() {
    println!("the simulator runs on Linux, Metal on Apple's systems");
}
