//! What `launch` and `run` do around a launch: make its buffers, save them, time it again.

use std::time::Instant;

use elinvar::{DType, Executor, Recording, Result, Tensor};

use super::BufferArgument;
use crate::{commands::bench::median, tensors};

/// The buffers, by name.
pub(crate) fn buffers<'a>(executor: &Executor, arguments: &'a [BufferArgument], seed: u64) -> Result<Vec<(&'a str, Tensor)>> {
    let make = |(place, argument): (usize, &'a BufferArgument)| {
        let (dtype, bytes) = argument.bytes(seed, place).map_err(|e| e.context(format_args!("--buffer {}", argument.name)))?;
        Ok((argument.name.as_str(), executor.tensor_from_bytes(dtype, &[bytes.len() / dtype.size()], &bytes)?))
    };
    arguments.iter().enumerate().map(make).collect()
}

/// The buffers as a safetensors file.
pub(crate) fn saved(buffers: &[(&str, Tensor)]) -> Result<Vec<u8>> {
    let contents: Vec<(String, DType, Vec<u8>)> =
        buffers.iter().map(|(name, tensor)| Ok(((*name).to_owned(), tensor.dtype(), tensor.to_bytes()?))).collect::<Result<_>>()?;
    tensors::bytes_of(contents.into_iter())
}

/// The median of `count` replays in seconds, waiting included; none of no replays.
pub(crate) fn median_seconds(executor: &Executor, recording: &Recording, count: usize) -> Result<Option<f64>> {
    let mut seconds = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        executor.replay(recording)?.wait()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok((count > 0).then(|| median(seconds)))
}

/// That median for a reader, after what else is told of the launch.
pub(crate) fn shown_median(seconds: Option<f64>, count: usize) -> String {
    seconds.map_or(String::new(), |s| format!(", {:.1} µs a launch with its wait (median of {count})", s * 1e6))
}
