//! The CPU kernel: checks every position, then copies row by row. A new token is a few KiB, far below what a second thread is worth.

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{float::Float, quantized::cached::Cached};

/// Calls `$body` with `$rows` and `$cache` standing for the types of new rows and of the cache they go to.
macro_rules! with_pair {
    ($types:expr, $rows:ident, $cache:ident => $body:expr) => {{
        use elinvar_core::DType;
        use half::{bf16, f16};
        macro_rules! of {
            ($a:ty, $b:ty) => {{
                type $rows = $a;
                type $cache = $b;
                $body
            }};
        }
        match $types {
            (DType::F32, DType::F32) => of!(f32, f32),
            (DType::F32, DType::F16) => of!(f32, f16),
            (DType::F32, DType::BF16) => of!(f32, bf16),
            (DType::F16, DType::F16) => of!(f16, f16),
            (DType::BF16, DType::BF16) => of!(bf16, bf16),
            (DType::F32, DType::U8) => of!(f32, u8),
            (rows, cache) => return Err($crate::signature::no_kernel(format_args!("{rows} to {cache}"))),
        }
    }};
}
pub(crate) use with_pair;

pub(super) fn kernel(rows: DType, cache: DType) -> Result<HostKernel> {
    Ok(with_pair!((rows, cache), A, B => run::<A, B>))
}

fn run<A: Float, B: Cached>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (cache, rows, positions) = (arguments.output::<B>(AT.cache)?, arguments.input::<A>(AT.rows)?, arguments.input::<i32>(AT.positions)?);
    let (tokens, width) = (params.tokens as usize, params.width as usize);
    check_positions(&params, positions)?;
    for index in 0..params.batch as usize * tokens {
        let (b, t) = (index / tokens, index % tokens);
        let position = positions[b * params.position_stride as usize + t] as usize;
        for h in 0..params.heads as usize {
            let (from, to) = (params.rows.at(b, h, t), params.cache.at(b, h, position));
            B::store(&rows[from..from + width], &mut cache[to..to + B::extent(width)]);
        }
    }
    Ok(())
}

/// Whether every position lies in the cache.
pub(crate) fn check_positions(params: &Params, positions: &[i32]) -> Result<()> {
    let (tokens, capacity) = (params.tokens as usize, params.capacity);
    for index in 0..params.batch as usize * tokens {
        let (b, t) = (index / tokens, index % tokens);
        let at = positions[b * params.position_stride as usize + t];
        if u64::try_from(at).map_or(true, |at| at >= capacity) {
            return Err(Error::invalid_argument(format!(
                "token {t} goes to position {at} of a cache for {capacity}: use a cache with more capacity"
            )));
        }
    }
    Ok(())
}
