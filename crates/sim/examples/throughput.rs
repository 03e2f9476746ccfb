//! GPU threads per second of one host thread's processor time: a vector addition and a softmax, with and without checks.

use std::time::Duration;

use elinvar_core::Result;
use elinvar_sim::{Binding, CommandBuffer, CompileOptions, Config, Dispatch, Grid, Pipeline, Simulator, Source};

const TEXT: &str = "
#include <metal_stdlib>
using namespace metal;
kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    c[i] = a[i] + b[i];
}
kernel void softmax(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint& columns [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    threadgroup float scratch[256];
    device const float* from = x + row * columns;
    float most = -INFINITY;
    for (uint c = t; c < columns; c += n) most = max(most, from[c]);
    scratch[t] = most;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = n / 2; s > 0; s >>= 1) {
        if (t < s) scratch[t] = max(scratch[t], scratch[t + s]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    most = scratch[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint c = t; c < columns; c += n) sum += exp(from[c] - most);
    scratch[t] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = n / 2; s > 0; s >>= 1) {
        if (t < s) scratch[t] += scratch[t + s];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float scale = 1.0f / scratch[0];
    for (uint c = t; c < columns; c += n) y[row * columns + c] = exp(from[c] - most) * scale;
}
";
const N: u32 = 1_000_003;

fn main() -> Result<()> {
    let simulator = Simulator::new(Config { threads: Some(1), ..Config::default() })?;
    println!("{}", simulator.toolchain().describe());
    let ones = 1f32.to_le_bytes().repeat(N as usize);
    let (a, b, c) = (simulator.buffer_with("a", &ones)?, simulator.buffer_with("b", &ones)?, simulator.buffer_with("c", &ones)?);
    for checked in [false, true] {
        let library = simulator.library(&Source::new("throughput.metal", TEXT), &CompileOptions { checked, ..CompileOptions::default() })?;
        let add = |pipeline: &Pipeline| {
            let dispatch = Dispatch::new(pipeline, Grid::Threadgroups([N.div_ceil(256), 1, 1]), [256, 1, 1]);
            let dispatch = dispatch.with(Binding::new(0, &a)).with(Binding::new(1, &b)).with(Binding::new(2, &c));
            dispatch.with_bytes(3, N.to_le_bytes())
        };
        let softmax = |pipeline: &Pipeline| {
            let dispatch = Dispatch::new(pipeline, Grid::Threadgroups([256, 1, 1]), [256, 1, 1]);
            dispatch.with(Binding::new(0, &a)).with(Binding::new(1, &c)).with_bytes(2, 1000u32.to_le_bytes())
        };
        measure(&simulator, &format!("add, checked {checked}"), add(&library.pipeline("add", &[])?))?;
        measure(&simulator, &format!("softmax 256x1000, checked {checked}"), softmax(&library.pipeline("softmax", &[])?))?;
    }
    Ok(())
}

/// The best of several runs, after one that is not counted.
fn measure(simulator: &Simulator, what: &str, dispatch: Dispatch) -> Result<()> {
    let queue = simulator.queue()?;
    let mut best = f64::INFINITY;
    let mut threads = 0;
    for _ in 0..6 {
        let mut commands = CommandBuffer::with_seed(1);
        commands.dispatch(dispatch.clone())?;
        let start = processor_time();
        threads = queue.submit(commands).wait()?.threads;
        best = best.min((processor_time() - start).as_secs_f64());
    }
    println!("{what}: {:.2} ms, {:.1} M threads/s", best * 1e3, threads as f64 / best / 1e6);
    Ok(())
}

/// Of the whole process; unlike the clock on the wall it does not count what others do meanwhile.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
