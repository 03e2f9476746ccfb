//! The CPU twin: checks every position, then turns and rounds row by row; a token's cosines and sines serve all its heads.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::TurnedRows;
use crate::{
    float::Float,
    kv_append::{check_positions, round, with_pair},
    rope::{angles, half_split, interleaved},
    rows::with_scratch,
};

pub(super) fn twin(rows: DType, cache: DType) -> Result<HostKernel> {
    Ok(with_pair!((rows, cache), "rope_append", A, B => run::<A, B>))
}

fn run<A: Float, B: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: TurnedRows = arguments.params()?;
    let (cache, rows) = (arguments.output::<B>(0)?, arguments.input::<A>(1)?);
    let (positions, frequencies) = (arguments.input::<i32>(2)?, arguments.input::<f32>(3)?);
    let (p, half) = (&params.append, params.half_dim as usize);
    let width = p.width as usize;
    check_positions(p, positions)?;
    with_scratch(2 * half, |table| {
        let (cos, sin) = table.split_at_mut(half);
        for index in 0..(p.batch * p.tokens) as usize {
            let (b, t) = (index / p.tokens as usize, index % p.tokens as usize);
            let position = positions[b * p.position_stride as usize + t];
            angles(frequencies, position as f32, cos, sin);
            for h in 0..p.heads as usize {
                let mut row = rows[p.rows.at(b, h, t)..][..width].to_vec();
                if params.interleaved == 0 {
                    half_split(&mut row, cos, sin)
                } else {
                    interleaved(&mut row, cos, sin)
                }
                round(&row, &mut cache[p.cache.at(b, h, position as usize)..][..width]);
            }
        }
    });
    Ok(())
}
