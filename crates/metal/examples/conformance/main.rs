//! Runs conformance cases on the simulated Metal device: `conformance [--sources crates/kernels/src] [--seeds N] [FILTER]`.
//!
//! With `--sources` the kernels' texts are read from that folder, so that work on them needs no rebuild.

#[cfg(target_os = "linux")]
mod simulated;

#[cfg(target_os = "linux")]
fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    simulated::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the simulator runs on Linux");
}
