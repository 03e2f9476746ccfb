//! The CPU kernel: checks every position, then rotates and rounds row by row; a token's cosines and sines serve all its heads.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{RotatedRows, operands::AT};
use crate::{
    float::Float,
    kv_append::{check_positions, with_pair},
    quantized::cached::Cached,
    rope::{angles, half_split, interleaved},
    rows::with_scratch,
};

pub(super) fn kernel(rows: DType, cache: DType) -> Result<HostKernel> {
    Ok(with_pair!((rows, cache), A, B => run::<A, B>))
}

fn run<A: Float, B: Cached>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: RotatedRows = arguments.params()?;
    let (cache, rows) = (arguments.output::<B>(AT.cache)?, arguments.input::<A>(AT.rows)?);
    let (positions, frequencies) = (arguments.input::<i32>(AT.positions)?, arguments.input::<f32>(AT.frequencies)?);
    let (mut value_cache, values, mut queries) =
        (arguments.optional_output::<B>(AT.value_cache)?, arguments.optional::<A>(AT.values)?, arguments.optional_output::<A>(AT.queries)?);
    let (keys, half, tokens) = (&params.append, params.half_dim as usize, params.append.tokens as usize);
    let width = keys.width as usize;
    let slots = arguments.optional::<i32>(AT.slots)?.unwrap_or(positions);
    check_positions(keys, slots)?;
    let mut rotated = vec![A::from_f32(0.0); width];
    with_scratch(2 * half, |table| {
        let (cos, sin) = table.split_at_mut(half);
        for index in 0..keys.batch as usize * tokens {
            let (b, t) = (index / tokens, index % tokens);
            let [position, slot] = [positions, slots].map(|places| places[b * keys.position_stride as usize + t]);
            angles(frequencies, position as f32, cos, sin);
            let rotate = |row: &mut [A]| if params.interleaved == 0 { half_split(row, cos, sin) } else { interleaved(row, cos, sin) };
            for h in 0..keys.heads as usize {
                rotated.copy_from_slice(&rows[keys.rows.at(b, h, t)..][..width]);
                rotate(&mut rotated);
                B::store(&rotated, &mut cache[keys.cache.at(b, h, slot as usize)..][..B::extent(width)]);
            }
            if let (Some(cache), Some(values)) = (value_cache.as_deref_mut(), values) {
                let (v, width) = (&params.values, params.values.width as usize);
                for h in 0..v.heads as usize {
                    B::store(&values[v.rows.at(b, h, t)..][..width], &mut cache[v.cache.at(b, h, slot as usize)..][..B::extent(width)]);
                }
            }
            if let Some(queries) = queries.as_deref_mut() {
                for h in 0..params.query_heads as usize {
                    rotate(&mut queries[params.queries.at(b, h, t)..][..width]);
                }
            }
        }
    });
    Ok(())
}
