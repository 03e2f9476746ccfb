//! The CPU kernel: rows of x as integers first, then each row of the weight against all of them, a tile of rows at a time.

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};

use super::{AT, Params, SUMS};
use crate::{
    float::{Float, with_float},
    matmul::{cpu::operand::with_values, values},
    parallel::{Shared, for_each, for_each_part},
    quantized::{
        CHUNK, Format,
        format::{Blocks, with_blocks},
        packed::{PackedRow, Places},
    },
    simd,
};

/// Rows of x that share what is unpacked of the weight.
const ROWS: usize = 8;

pub(super) fn kernel(x: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => run::<T>))
}

/// What 32 neighbours of x share as integers.
#[derive(Clone, Copy, Default)]
struct Shares {
    scale: f32,
    /// The sums of each half.
    totals: [i32; 2],
}

/// The sums of an element of y.
type Sums = [f32; SUMS];

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { m, n: [n, ..], chunks, row_bytes, format, bias, .. } = arguments.params()?;
    let format = Format::ALL.get(format as usize).ok_or_else(|| Error::internal(format!("there is no format {format}")))?;
    let add = with_blocks!(format, F => add::<F>);
    let [m, n, chunks, row_bytes] = [m, n, chunks, row_bytes].map(|extent| extent as usize);
    let (x, weight, y) = (arguments.input::<T>(AT.x)?, arguments.input::<u8>(AT.w0)?, arguments.output::<T>(AT.y0)?);
    let bias = arguments.is_bound(AT.b0).then(|| values(arguments, AT.b0, bias)).transpose()?;
    let mut q = vec![0i16; CHUNK * m * chunks];
    let mut shares = vec![Shares::default(); m * chunks];
    let places = Shared::new(&mut shares);
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
            let mut sums = [[0.0; SUMS]; ROWS];
            add(weight, &q[CHUNK * chunks * first..], &shares[chunks * first..], chunks, &mut sums[..rows]);
            for (row, sums) in sums[..rows].iter().enumerate() {
                let sum = tree(*sums);
                let biased = bias.map_or(sum, |bias| sum + with_values!(bias, |bias| bias[column].to_f32()));
                // SAFETY: this element belongs to this column's task.
                unsafe { y.write((first + row) * n + column, T::from_f32(biased)) };
            }
        }
    });
    Ok(())
}

simd! {
    /// 32 elements as multiples of the scale.
    fn integers<T: Float>(q: &mut [i16], x: &[T]) -> Shares {
        let largest = x.iter().fold(0, |largest, x| largest.max(x.to_f32().to_bits() & 0x7fff_ffff));
        let scale = f32::from_bits(largest) / 32767.0;
        if largest >= 0x7f80_0000 || scale < f32::MIN_POSITIVE {
            q.fill(0);
            return Shares { scale: if largest >= 0x7f80_0000 { f32::NAN } else { 0.0 }, totals: [0; 2] };
        }
        let inverse = 1.0 / scale;
        q.iter_mut().zip(x).for_each(|(q, x)| *q = (x.to_f32() * inverse).round_ties_even() as i16);
        Shares { scale, totals: std::array::from_fn(|half| q[16 * half..][..16].iter().map(|q| i32::from(*q)).sum()) }
    }
}

simd! {
    fn add<F: Blocks>(weight: &[u8], q: &[i16], shares: &[Shares], chunks: usize, sums: &mut [Sums]) {
        let Some(places) = Places::of::<F>(chunks) else { return };
        let weight = PackedRow { bytes: weight, places };
        for at in 0..chunks {
            let integers = weight.fields::<F>(at).map(|field| F::FIELDS.integer(field));
            let scales = weight.scales::<F>(at);
            for (row, sums) in sums.iter_mut().enumerate() {
                let (place, sum) = (row * chunks + at, &mut sums[at % SUMS]);
                let (q, Shares { scale, totals }) = (&q[CHUNK * place..][..CHUNK], shares[place]);
                for group in 0..CHUNK / F::GROUP {
                    let of = group * F::GROUP..(group + 1) * F::GROUP;
                    let product: i32 = integers[of.clone()].iter().zip(&q[of]).map(|(w, q)| i32::from(*w) * i32::from(*q)).sum();
                    *sum = (scales.scale[group] * scale).mul_add(product as f32, *sum);
                    if F::OFFSETS {
                        let total = if F::GROUP == CHUNK { totals[0] + totals[1] } else { totals[group] };
                        *sum = (scales.offset[group] * scale).mul_add(total as f32, *sum);
                    }
                }
            }
        }
    }
}

/// The lanes' xor tree, as the first lane has it.
fn tree(mut sums: Sums) -> f32 {
    for mask in [4, 2, 1] {
        for lane in 0..mask {
            sums[lane] += sums[lane + mask];
        }
    }
    sums[0]
}
