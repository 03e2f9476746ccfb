//! The CPU kernel: rows of x as integers first, then each row of the weight against all of them, a tile of rows at a time.

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};

use super::{AT, Params};
use crate::{
    float::{Float, with_float},
    parallel::{Shared, for_each, for_each_part},
    quantized::{
        CHUNK, Format,
        format::{Blocks, Chunk, with_blocks},
    },
    simd,
};

/// Rows of x that share what is unpacked of the weight.
const ROWS: usize = 8;

pub(super) fn kernel(x: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => run::<T>))
}

/// The sums of a row of y's element, one for each lane.
type Sums = [f32; 32];

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { m, n, chunks, row_bytes, format } = arguments.params()?;
    let format = Format::ALL.get(format as usize).ok_or_else(|| Error::internal(format!("there is no format {format}")))?;
    let add = with_blocks!(format, F => add::<F>);
    let [m, n, chunks, row_bytes] = [m, n, chunks, row_bytes].map(|extent| extent as usize);
    let (x, weight, y) = (arguments.input::<T>(AT.x)?, arguments.input::<u8>(AT.weight)?, arguments.output::<T>(AT.y)?);
    let mut q = vec![0i16; CHUNK * m * chunks];
    let mut scales = vec![0f32; m * chunks];
    let places = Shared::new(&mut scales);
    for_each_part(&mut q, CHUNK * chunks.max(1), |row, q| {
        for (index, (q, x)) in q.chunks_exact_mut(CHUNK).zip(x[CHUNK * chunks * row..].chunks_exact(CHUNK)).enumerate() {
            // SAFETY: this chunk belongs to this row's task.
            unsafe { places.write(row * chunks + index, integers(q, x)) };
        }
    });
    let y = Shared::new(y);
    for_each(n, CHUNK * m * chunks, |column| {
        let weight = &weight[column * row_bytes..][..row_bytes];
        for first in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - first);
            let mut sums = [[0.0; 32]; ROWS];
            add(weight, &q[CHUNK * chunks * first..], &scales[chunks * first..], chunks, &mut sums[..rows]);
            for (row, sums) in sums[..rows].iter().enumerate() {
                // SAFETY: this element belongs to this column's task.
                unsafe { y.write((first + row) * n + column, T::from_f32(tree(*sums))) };
            }
        }
    });
    Ok(())
}

simd! {
    /// 32 elements as multiples of what is given back.
    fn integers<T: Float>(q: &mut [i16], x: &[T]) -> f32 {
        let largest = x.iter().fold(0, |largest, x| largest.max(x.to_f32().to_bits() & 0x7fff_ffff));
        let scale = f32::from_bits(largest) / 32767.0;
        if largest >= 0x7f80_0000 || scale < f32::MIN_POSITIVE {
            q.fill(0);
            return if largest >= 0x7f80_0000 { f32::NAN } else { 0.0 };
        }
        let inverse = 1.0 / scale;
        q.iter_mut().zip(x).for_each(|(q, x)| *q = (x.to_f32() * inverse).round_ties_even() as i16);
        scale
    }
}

simd! {
    fn add<F: Blocks>(weight: &[u8], q: &[i16], scales: &[f32], chunks: usize, sums: &mut [Sums]) {
        for (number, block) in weight.chunks_exact(F::BYTES).enumerate() {
            for index in 0..F::ELEMENTS / CHUNK {
                let at = number * (F::ELEMENTS / CHUNK) + index;
                let chunk = F::chunk(block, index);
                for (row, sums) in sums.iter_mut().enumerate() {
                    let place = row * chunks + at;
                    let sum = &mut sums[at % 32];
                    *sum = add_chunk::<F>(&chunk, &q[CHUNK * place..][..CHUNK], scales[place], *sum);
                }
            }
        }
    }
}

#[inline(always)]
fn add_chunk<F: Blocks>(chunk: &Chunk, q: &[i16], scale: f32, mut sum: f32) -> f32 {
    for group in 0..CHUNK / F::GROUP {
        let of = group * F::GROUP..(group + 1) * F::GROUP;
        let (weights, q) = (&chunk.q[of.clone()], &q[of]);
        let product: i32 = weights.iter().zip(q).map(|(w, q)| i32::from(*w) * i32::from(*q)).sum();
        sum = (chunk.scale[group] * scale).mul_add(product as f32, sum);
        if F::OFFSETS {
            let total: i32 = q.iter().map(|q| i32::from(*q)).sum();
            sum = (chunk.offset[group] * scale).mul_add(total as f32, sum);
        }
    }
    sum
}

/// The lanes' xor tree, as the first lane has it.
fn tree(mut sums: Sums) -> f32 {
    for mask in [16, 8, 4, 2, 1] {
        for lane in 0..mask {
            sums[lane] += sums[lane + mask];
        }
    }
    sums[0]
}
