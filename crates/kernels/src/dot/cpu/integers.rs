//! Lines of a matrix as integers and units.

use half::{bf16, f16};

use crate::{
    dot::{BLOCK, Side},
    float::Float,
    matmul::cpu::{
        operand::{Load, Matrix, with_values},
        scratch::Scratch,
        simd::{Simd, Work},
    },
};

/// Element types of lines.
pub(super) trait Block: Load {
    /// Whether two vectors have elements in turn, else those of one before those of the other.
    const IN_TURN: bool = false;

    /// The exponent field, in f32, of the largest magnitude.
    fn largest_field(values: &[Self; BLOCK]) -> u32;

    /// Two vectors of neighbours.
    ///
    /// # Safety
    /// `source` is valid for reading twice [`Simd::LANES`] elements.
    #[inline(always)]
    unsafe fn load_two<S: Simd>(simd: S, source: *const Self) -> [S::Vector; 2] {
        // SAFETY: the caller's promise.
        unsafe { [Self::load(simd, source), Self::load(simd, source.add(S::LANES))] }
    }
}

impl Block for f32 {
    #[inline(always)]
    fn largest_field(values: &[Self; BLOCK]) -> u32 {
        values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff)) >> 23
    }
}

impl Block for f16 {
    #[inline(always)]
    fn largest_field(values: &[Self; BLOCK]) -> u32 {
        f16::from_bits(values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff))).to_f32().to_bits() >> 23
    }
}

impl Block for bf16 {
    const IN_TURN: bool = true;

    #[inline(always)]
    fn largest_field(values: &[Self; BLOCK]) -> u32 {
        u32::from(values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff)) >> 7)
    }

    #[inline(always)]
    unsafe fn load_two<S: Simd>(simd: S, source: *const Self) -> [S::Vector; 2] {
        // SAFETY: the caller's promise; two bf16 are the bits of an f32.
        simd.split_bf16(unsafe { simd.load(source.cast()) })
    }
}

/// Of what is added to it, the last bit of the sum is one, and the lower half of its bits is the integer.
const ROUND: f32 = 1.5 * (1u32 << 23) as f32;

/// Units of blocks, and their inverses.
pub(super) struct Units<const N: usize> {
    pub(super) units: [f32; N],
    inverses: [f32; N],
}

impl<const N: usize> Units<N> {
    /// Those of blocks whose largest magnitudes have these exponent fields.
    #[inline(always)]
    pub(super) fn new(side: Side, fields: [u32; N]) -> Self {
        let mut all = Self { units: [0.0; N], inverses: [0.0; N] };
        for (i, field) in fields.into_iter().enumerate() {
            [all.units[i], all.inverses[i]] = side.unit(field);
        }
        all
    }

    /// The integers of block `number`. (No closure calls vectors' methods: it would be compiled without the caller's instructions.)
    #[inline(always)]
    pub(super) fn round<S: Simd, T: Block>(&self, simd: S, side: Side, number: usize, values: &[T; BLOCK], integers: &mut [i16; BLOCK]) {
        let (inverse, one, limit) = (simd.splat(self.inverses[number]), simd.splat(ROUND), f32::from(side.limit()));
        let (low, high) = (simd.splat(ROUND - limit), simd.splat(ROUND + limit));
        for place in (0..BLOCK).step_by(2 * S::LANES) {
            // SAFETY: there are so many elements, and as many integers.
            unsafe {
                let mut vectors = T::load_two(simd, values.as_ptr().add(place));
                for vector in &mut vectors {
                    // With powers of two the product is exact: both ways are the same.
                    *vector = if S::PORTABLE { simd.add(simd.multiply(*vector, inverse), one) } else { simd.fma(*vector, inverse, one) };
                    if size_of::<T>() == 4 {
                        *vector = simd.clamp(*vector, low, high);
                    }
                }
                let [a, b] = vectors;
                let words = if T::IN_TURN { simd.low_words_in_turn(a, b) } else { simd.low_words(a, b) };
                simd.store_integers(integers.as_mut_ptr().add(place), words);
            }
        }
    }
}

/// Blocks whose units are made together, so that none waits for another's.
pub(super) const GROUP: usize = 16;

/// The blocks of a line of contiguous elements; those that the last one lacks are zero.
#[inline(always)]
pub(super) fn quantise_line<S: Simd, T: Block>(simd: S, side: Side, line: &[T], integers: &mut [[i16; BLOCK]], units: &mut [f32]) {
    let (whole, rest) = line.as_chunks();
    let groups = integers.chunks_mut(GROUP).zip(units.chunks_mut(GROUP));
    for (values, (integers, units)) in whole.chunks(GROUP).zip(groups) {
        let mut fields = [0; GROUP];
        for (field, values) in fields.iter_mut().zip(values) {
            *field = T::largest_field(values);
        }
        let of = Units::new(side, fields);
        for (number, (values, integers)) in values.iter().zip(integers).enumerate() {
            of.round(simd, side, number, values, integers);
        }
        units.iter_mut().zip(of.units).take(values.len()).for_each(|(unit, of)| *unit = of);
    }
    if let (false, Some(integers), Some(unit)) = (rest.is_empty(), integers.get_mut(whole.len()), units.get_mut(whole.len())) {
        let mut values = [T::from_f32(0.0); BLOCK];
        values[..rest.len()].copy_from_slice(rest);
        let of = Units::new(side, [T::largest_field(&values)]);
        of.round(simd, side, 0, &values, integers);
        *unit = of.units[0];
    }
}

/// A row of a matrix of any strides: its blocks.
pub(super) struct Row<'a> {
    pub(super) side: Side,
    pub(super) matrix: Matrix<'a>,
    pub(super) row: usize,
    pub(super) integers: &'a mut [[i16; BLOCK]],
    pub(super) units: &'a mut [f32],
}

impl Work for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (matrix, k) = (self.matrix, self.matrix.columns());
        with_values!(matrix.values(), |values| {
            if k > 0 && matrix.has_contiguous_rows() {
                return quantise_line(simd, self.side, &values[matrix.index(self.row, 0)..][..k], self.integers, self.units);
            }
            for (block, (integers, unit)) in self.integers.iter_mut().zip(self.units).enumerate().take(k.div_ceil(BLOCK)) {
                let mut wide = [0.0; BLOCK];
                let first = block * BLOCK;
                wide.iter_mut().enumerate().take(k - first).for_each(|(i, wide)| *wide = values[matrix.index(self.row, first + i)].to_f32());
                let of = Units::new(self.side, [f32::largest_field(&wide)]);
                of.round(simd, self.side, 0, &wide, integers);
                *unit = of.units[0];
            }
        });
    }
}

/// Room for blocks of integers, with arbitrary content.
pub(super) fn room(blocks: usize) -> Scratch {
    Scratch::new(blocks * BLOCK / 2)
}

/// That room as blocks.
pub(super) fn blocks(room: &mut [f32]) -> &mut [[i16; BLOCK]] {
    bytemuck::cast_slice_mut::<f32, i16>(room).as_chunks_mut().0
}
