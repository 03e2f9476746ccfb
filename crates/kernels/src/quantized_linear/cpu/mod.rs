//! The CPU kernel: rows of x as integers first, then [`COLUMNS`] rows of the weight at a time against all of them.
//!
//! The eight sums of an element are eight lanes: of an [`Octet`], the chunks that go to them stand side by side.

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};

use super::{AT, Params, SUMS};
use crate::{
    float::{Float, with_float},
    matmul::{cpu::operand::with_values, values},
    parallel::{Shared, for_each},
    quantized::{CHUNK, Format, format::with_blocks},
    simd,
};

/// Rows of the weight that a task takes.
const COLUMNS: usize = 16;

/// Chunks of x side by side, one for each sum. Those after a row's end are zeros.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Octet {
    /// The integers, as bytes of weights become words: element j of a chunk is `q[`[`place`]`(j)][chunk][j % 16 / 2]`.
    q: [[[i16; 8]; SUMS]; 4],
    /// Of each chunk.
    scales: [f32; SUMS],
    /// The sums of each half of each chunk.
    totals: [[i32; SUMS]; 2],
}

#[cfg(target_arch = "x86_64")]
impl Octet {
    /// The four pairs of `q[place][chunk]`.
    #[inline(always)]
    fn pairs(&self, place: usize, chunk: usize) -> *const i32 {
        self.q[place][chunk].as_ptr().cast()
    }
}

const NOTHING: Octet = Octet { q: [[[0; 8]; SUMS]; 4], scales: [0.0; SUMS], totals: [[0; SUMS]; 2] };

/// The elements of even and of odd places in each half of a chunk are apart.
const fn place(j: usize) -> usize {
    j / 16 * 2 + j % 2
}

/// Rows of x.
struct Rows {
    m: usize,
    chunks: usize,
    /// The first of each row, then the second of each…
    octets: Vec<Octet>,
}

impl Rows {
    fn new<T: Float>(x: &[T], [m, chunks]: [usize; 2]) -> Self {
        let mut rows = Self { m, chunks, octets: vec![NOTHING; m * chunks.div_ceil(SUMS)] };
        let places = Shared::new(&mut rows.octets);
        for_each(m, CHUNK * chunks, |row| {
            for (octet, x) in x[CHUNK * chunks * row..][..CHUNK * chunks].chunks(SUMS * CHUNK).enumerate() {
                // SAFETY: this row belongs to this task.
                integers(&mut unsafe { places.part(m * octet + row, 1) }[0], x);
            }
        });
        rows
    }

    /// An octet of each row.
    #[inline(always)]
    fn octet(&self, index: usize) -> &[Octet] {
        &self.octets[self.m * index..][..self.m]
    }
}

/// Up to [`COLUMNS`] packed rows of a weight against rows of x: those, the bytes of a packed row, them, and the products, of each row of x.
type Multiply = fn(&Rows, usize, &[u8], &mut [[f32; COLUMNS]]);

pub(super) fn kernel(x: DType) -> Result<HostKernel> {
    Ok(with_float!(x, T => run::<T>))
}

/// For the best level here.
fn multiply(format: Format) -> Multiply {
    #[cfg(target_arch = "x86_64")]
    if simd::level() >= simd::Level::Avx2 {
        return x86::multiply(format);
    }
    with_blocks!(format, F => portable::multiply::<F>)
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { m, n: [n, ..], chunks, row_bytes, format, bias, .. } = arguments.params()?;
    let format = Format::ALL.get(format as usize).ok_or_else(|| Error::internal(format!("there is no format {format}")))?;
    let [m, n, chunks, row_bytes] = [m, n, chunks, row_bytes].map(|extent| extent as usize);
    let (x, weight, y) = (arguments.input::<T>(AT.x)?, arguments.input::<u8>(AT.w0)?, arguments.output::<T>(AT.y0)?);
    let bias = arguments.is_bound(AT.b0).then(|| values(arguments, AT.b0, bias)).transpose()?;
    let (rows, multiply) = (Rows::new(x, [m, chunks]), multiply(*format));
    let y = Shared::new(y);
    for_each(n.div_ceil(COLUMNS), COLUMNS * CHUNK * m * chunks, |tile| {
        let columns = COLUMNS * tile..n.min(COLUMNS * (tile + 1));
        let mut products = vec![[0.0; COLUMNS]; m];
        multiply(&rows, row_bytes, &weight[row_bytes * columns.start..row_bytes * columns.end], &mut products);
        for (row, products) in products.iter().enumerate() {
            for (column, product) in columns.clone().zip(products) {
                let biased = bias.map_or(*product, |bias| product + with_values!(bias, |bias| bias[column].to_f32()));
                // SAFETY: this element belongs to this tile's task.
                unsafe { y.write(row * n + column, T::from_f32(biased)) };
            }
        }
    });
    Ok(())
}

simd! {
    /// Up to eight chunks of a row of x: the 32 elements of each as multiples of their scale.
    fn integers<T: Float>(octet: &mut Octet, x: &[T]) {
        for (chunk, x) in x.chunks_exact(CHUNK).enumerate() {
            let largest = x.iter().fold(0, |largest, x| largest.max(x.to_f32().to_bits() & 0x7fff_ffff));
            let scale = f32::from_bits(largest) / 32767.0;
            if largest >= 0x7f80_0000 || scale < f32::MIN_POSITIVE {
                octet.scales[chunk] = if largest >= 0x7f80_0000 { f32::NAN } else { 0.0 };
                continue;
            }
            octet.scales[chunk] = scale;
            let inverse = 1.0 / scale;
            for (half, x) in x.as_chunks::<16>().0.iter().enumerate() {
                // Added to a small number, it leaves the nearest integer in the low bits, ties to even: of vectors, unlike a cast that saturates.
                let q = x.map(|x| (x.to_f32() * inverse + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i16);
                octet.totals[half][chunk] = q.iter().map(|q| i32::from(*q)).sum();
                for (j, q) in q.into_iter().enumerate() {
                    octet.q[place(16 * half + j)][chunk][j / 2] = q;
                }
            }
        }
    }
}

/// Of what is added to it, the last bit of the sum is one.
const ROUND: f32 = 1.5 * (1u32 << 23) as f32;

/// The lanes' xor tree, as the first lane has it.
#[inline(always)]
fn tree(mut sums: [f32; SUMS]) -> f32 {
    for mask in [4, 2, 1] {
        for lane in 0..mask {
            sums[lane] += sums[lane + mask];
        }
    }
    sums[0]
}
