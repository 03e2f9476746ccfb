//! A Metal kernel compiled and launched, on a GPU or else on the simulator, which checks every access: `cargo run -p elinvar --example metal_demo`.

use elinvar::{BackendType, DType, Executor, KernelArgument, MetalSource, Result};

const SOURCE: &str = "
#include <metal_stdlib>
using namespace metal;

kernel void saxpy(device const float* x [[buffer(0)]],
                  device float* y [[buffer(1)]],
                  constant float& a [[buffer(2)]],
                  uint i [[thread_position_in_grid]]) {
    y[i] = fma(a, x[i], y[i]);
}
";

/// The best device here, or the simulator where that is a CPU, which runs no Metal text.
fn device() -> Result<Executor> {
    let best = Executor::new_auto()?;
    if best.properties().has_simdgroups() { Ok(best) } else { Executor::new_with_backend(BackendType::MetalSim) }
}

/// Launches the kernel over exactly as many threads as there are elements.
///
/// # Errors
/// No device that runs Metal text, or one that failed.
pub fn main() -> Result<()> {
    let executor = device()?;
    let saxpy = executor.compile_metal(&MetalSource::new("saxpy.metal", SOURCE))?.kernel("saxpy", &[])?;
    let (x, y) = (executor.arange(DType::F32, 0, 1000, 1)?, executor.ones(DType::F32, &[1000])?);
    let (threads, a) = ([1000, 1, 1], 2f32.to_ne_bytes());
    let arguments = [("x", KernelArgument::Tensor(&x)), ("y", KernelArgument::Tensor(&y)), ("a", KernelArgument::Bytes(&a))];
    saxpy.launch_threads(threads, saxpy.threadgroup_for(threads), &arguments)?;
    println!("{}: 2 x + 1 = {}", executor.properties().name, y.i(..5)?);
    assert_eq!(y.i(999)?.item::<f32>()?, 1999.0);
    Ok(())
}
