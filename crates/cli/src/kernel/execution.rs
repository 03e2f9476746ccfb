//! What `launch` and `run` do around a launch: make its buffers, save them, time it again.

use std::time::Instant;

use elinvar::{DType, Executor, Recording, Result, Tensor};

use super::arguments::BufferArgument;
use crate::{
    measure::median,
    profile::{Profiler, profiled},
    tensors,
};

/// What the buffers hold at first.
pub(crate) fn contents(arguments: &[BufferArgument], seed: u64) -> Result<Vec<(DType, Vec<u8>)>> {
    let read =
        |(place, argument): (usize, &BufferArgument)| argument.bytes(seed, place).map_err(|e| e.context(format_args!("--buffer {}", argument.name)));
    arguments.iter().enumerate().map(read).collect()
}

/// The buffers, by name.
pub(crate) fn buffers<'a>(executor: &Executor, arguments: &'a [BufferArgument], contents: &[(DType, Vec<u8>)]) -> Result<Vec<(&'a str, Tensor)>> {
    let make = |(argument, (dtype, bytes)): (&'a BufferArgument, &(DType, Vec<u8>))| {
        Ok((argument.name.as_str(), executor.tensor_from_bytes(*dtype, &[bytes.len() / dtype.size()], bytes)?))
    };
    arguments.iter().zip(contents).map(make).collect()
}

/// The buffers as a safetensors file.
pub(crate) fn saved(buffers: &[(&str, Tensor)]) -> Result<Vec<u8>> {
    let contents: Vec<(String, DType, Vec<u8>)> =
        buffers.iter().map(|(name, tensor)| Ok(((*name).to_owned(), tensor.dtype(), tensor.to_bytes()?))).collect::<Result<_>>()?;
    tensors::bytes_of(contents.into_iter())
}

/// The median of `count` replays in seconds, waiting included; none of no replays.
pub(crate) fn median_seconds(executor: &Executor, recording: &Recording, count: usize, profiler: &mut Option<Profiler>) -> Result<Option<f64>> {
    if count == 0 {
        return Ok(None);
    }
    let replay = |_| {
        let start = Instant::now();
        executor.replay(recording)?.wait()?;
        Ok(start.elapsed().as_secs_f64())
    };
    profiled(profiler, "repeated", || (0..count).map(replay).collect()).map(|seconds| Some(median(seconds)))
}

/// That median for a reader, after the rest of the launch's report.
pub(crate) fn shown_median(seconds: Option<f64>, count: usize) -> String {
    seconds.map_or(String::new(), |s| format!(", {:.1} µs a launch with its wait (median of {count})", s * 1e6))
}
