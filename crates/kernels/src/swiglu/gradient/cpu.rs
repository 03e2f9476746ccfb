//! The CPU kernel: blocks of the gradient that is given, in parallel, each cut at the ends of rows.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{super::cpu::BLOCK, Params, operands::AT};
use crate::{
    float::{Float, as_f32, as_f32_mut, with_float},
    math,
    parallel::{Shared, spread},
    rows::{PIECE, with_scratch},
    simd,
};

pub(super) fn kernel(dtype: DType) -> Result<HostKernel> {
    Ok(with_float!(dtype, T => run::<T>))
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (a, b, dy) = (arguments.input::<T>(AT.a)?, arguments.input::<T>(AT.b)?, arguments.input::<T>(AT.dy)?);
    let da = Shared::new(arguments.output::<T>(AT.da)?);
    let db = arguments.optional_output::<T>(AT.db)?.map_or(da, Shared::new);
    let columns = params.columns as usize;
    spread(dy.len().div_ceil(BLOCK), 1, &|index| {
        let (mut at, end) = (index * BLOCK, dy.len().min((index + 1) * BLOCK));
        while at < end {
            let (row, column) = (at / columns, at % columns);
            let count = (end - at).min(columns - column);
            let of_a = row * params.a_stride as usize + column;
            let of_b = row * params.b_stride as usize + params.b_offset as usize + column;
            // SAFETY: these elements of a's and b's gradients belong to these of the output's.
            let (da, db) = unsafe { (da.part(of_a, count), db.part(of_b, count)) };
            differentiate(&a[of_a..][..count], &b[of_b..][..count], &dy[at..][..count], da, db, params.alpha);
            at += count;
        }
    });
    Ok(())
}

fn differentiate<T: Float>(a: &[T], b: &[T], dy: &[T], da: &mut [T], db: &mut [T], alpha: f32) {
    if let (Some(a), Some(b), Some(dy), Some(da), Some(db)) = (as_f32(a), as_f32(b), as_f32(dy), as_f32_mut(da), as_f32_mut(db)) {
        return slopes(a, b, dy, da, db, alpha);
    }
    with_scratch(5 * PIECE, |scratch| {
        for start in (0..dy.len()).step_by(PIECE) {
            let count = PIECE.min(dy.len() - start);
            let (parts, _) = scratch.as_chunks_mut::<PIECE>();
            let [wide_a, wide_b, wide_dy, wide_da, wide_db] = parts else { return };
            let [wide_a, wide_b, wide_dy, wide_da, wide_db] = [wide_a, wide_b, wide_dy, wide_da, wide_db].map(|part| &mut part[..count]);
            T::widen_into(&a[start..][..count], wide_a);
            T::widen_into(&b[start..][..count], wide_b);
            T::widen_into(&dy[start..][..count], wide_dy);
            slopes(wide_a, wide_b, wide_dy, wide_da, wide_db, alpha);
            T::narrow_into(wide_da, &mut da[start..][..count]);
            T::narrow_into(wide_db, &mut db[start..][..count]);
        }
    });
}

simd! {
    fn slopes(a: &[f32], b: &[f32], dy: &[f32], da: &mut [f32], db: &mut [f32], alpha: f32) {
        for ((((a, b), dy), da), db) in a.iter().zip(b).zip(dy).zip(da).zip(db) {
            let (s, rest) = math::sigmoids(alpha * a);
            let silu = a * s;
            *da = dy * b * (alpha * silu).mul_add(rest, s);
            *db = dy * silu;
        }
    }
}
