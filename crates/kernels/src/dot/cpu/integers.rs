//! Lines of a matrix as integers and units.

use std::slice;

use half::{bf16, f16};

use crate::{
    dot::{BLOCK, INFINITE, LEAST_FIELD, Side},
    float::Float,
    matmul::cpu::{
        operand::{Load, Matrix, with_values},
        scratch::Scratch,
        simd::{Simd, Work},
    },
};

/// Lanes of a vector, at most.
pub(super) const MAX_LANES: usize = 16;

/// Element types of lines.
pub(super) trait Block: Load {
    /// Whether two vectors have elements in turn, else those of one before those of the other.
    const IN_TURN: bool = false;

    /// Bits of f32, of which the greatest among the lanes, as an integer, has the exponent field of the largest magnitude; of f16 in the upper half its bits.
    #[inline(always)]
    fn largest<S: Simd>(simd: S, values: &[Self; BLOCK]) -> S::Integers {
        let (mut largest, magnitude) = (simd.zero_integers(), simd.splat_pair(0x7fff_7fff));
        for place in (0..BLOCK).step_by(2 * S::LANES) {
            // SAFETY: there are so many elements, of 16 bits.
            let words = unsafe { simd.load_integers(values.as_ptr().add(place).cast()) };
            largest = simd.max_words(largest, simd.and_integers(words, magnitude));
        }
        simd.max_words(largest, simd.lower_to_upper(largest))
    }

    /// What [`Block::largest`] gave, as bits of f32.
    #[inline(always)]
    fn widen<S: Simd>(simd: S, largest: S::Integers) -> S::Integers {
        let _ = simd;
        largest
    }

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
    fn largest<S: Simd>(simd: S, values: &[Self; BLOCK]) -> S::Integers {
        let (mut largest, magnitude) = (simd.zero_integers(), simd.splat_pair(0x7fff_ffff));
        for place in (0..BLOCK).step_by(S::LANES) {
            // SAFETY: there are so many elements, of 32 bits.
            let bits = unsafe { simd.load_integers(values.as_ptr().add(place).cast()) };
            largest = simd.max_integers(largest, simd.and_integers(bits, magnitude));
        }
        largest
    }
}

impl Block for f16 {
    #[inline(always)]
    fn widen<S: Simd>(simd: S, largest: S::Integers) -> S::Integers {
        let (bits, mut wide) = (simd.floats_of_bits(simd.upper_to_lower(largest)), [0.0; MAX_LANES]);
        let mut halves = [f16::ZERO; 2 * MAX_LANES];
        // SAFETY: there is room for so many.
        unsafe {
            simd.store_integers(halves.as_mut_ptr().cast(), simd.low_words(bits, bits));
            simd.store(wide.as_mut_ptr(), simd.load_f16(halves.as_ptr()));
            simd.load_integers(wide.as_ptr().cast())
        }
    }
}

impl Block for bf16 {
    const IN_TURN: bool = true;

    #[inline(always)]
    unsafe fn load_two<S: Simd>(simd: S, source: *const Self) -> [S::Vector; 2] {
        // SAFETY: the caller's promise; two bf16 are the bits of an f32.
        simd.split_bf16(unsafe { simd.load(source.cast()) })
    }
}

/// How lanes are folded.
pub(super) trait Fold {
    fn fold<S: Simd>(simd: S, a: S::Integers, b: S::Integers) -> S::Integers;
}

pub(super) struct Sum;
pub(super) struct Greatest;

impl Fold for Sum {
    #[inline(always)]
    fn fold<S: Simd>(simd: S, a: S::Integers, b: S::Integers) -> S::Integers {
        simd.add_integers(a, b)
    }
}

impl Fold for Greatest {
    #[inline(always)]
    fn fold<S: Simd>(simd: S, a: S::Integers, b: S::Integers) -> S::Integers {
        simd.max_integers(a, b)
    }
}

/// Folds the lanes of each of as many vectors as there are lanes: lane `i` is what is left of vector `i`.
#[inline(always)]
pub(super) fn fold_lanes<S: Simd, F: Fold>(simd: S, vectors: &[S::Integers; MAX_LANES]) -> S::Integers {
    let first = fold_eight::<S, F>(simd, vectors, 0);
    if S::LANES == 8 { first } else { fold_two::<S, F, 3>(simd, first, fold_eight::<S, F>(simd, vectors, 8)) }
}

/// The first three steps, of eight vectors.
#[inline(always)]
fn fold_eight<S: Simd, F: Fold>(simd: S, vectors: &[S::Integers; MAX_LANES], first: usize) -> S::Integers {
    let mut fours = [simd.zero_integers(); 2];
    for i in 0..2 {
        let at = first + 4 * i;
        let (a, b) = (fold_two::<S, F, 0>(simd, vectors[at], vectors[at + 1]), fold_two::<S, F, 0>(simd, vectors[at + 2], vectors[at + 3]));
        fours[i] = fold_two::<S, F, 1>(simd, a, b);
    }
    fold_two::<S, F, 2>(simd, fours[0], fours[1])
}

#[inline(always)]
fn fold_two<S: Simd, F: Fold, const STEP: usize>(simd: S, a: S::Integers, b: S::Integers) -> S::Integers {
    let [a, b] = simd.fold_step::<STEP>(a, b);
    F::fold(simd, a, b)
}

/// Sums of products, lane by lane: modulo 2^32, and of the upper halves of fours, which give the rest.
#[derive(Clone, Copy)]
pub(super) struct Exact<I> {
    pub(super) sums: I,
    pub(super) uppers: I,
}

impl<I: Copy> Exact<I> {
    #[inline(always)]
    pub(super) fn zero<S: Simd<Integers = I>>(simd: S) -> Self {
        Self { sums: simd.zero_integers(), uppers: simd.zero_integers() }
    }

    #[inline(always)]
    pub(super) fn add<S: Simd<Integers = I>>(&mut self, simd: S, fours: I) {
        self.sums = simd.add_integers(self.sums, fours);
        self.uppers = simd.add_integers(self.uppers, simd.upper_to_lower(fours));
    }

    /// The sums, of a block at most: both parts are integers of less than 24 bits, so that they are rounded once.
    #[inline(always)]
    pub(super) fn rounded<S: Simd<Integers = I>>(self, simd: S) -> S::Vector {
        let lowers = simd.subtract_integers(self.sums, simd.lower_to_upper(self.uppers));
        simd.fma(simd.to_floats(self.uppers), simd.splat(65536.0), simd.to_floats(lowers))
    }
}

/// Of what is added to it, the last bit of the sum is one, and the lower half of its bits is the integer.
const ROUND: f32 = 1.5 * (1u32 << 23) as f32;

/// Blocks whose units are made together, at most: many enough that none waits for another's, and few enough to stay in the first cache.
pub(super) const TOGETHER: usize = 32;

/// Units of up to [`TOGETHER`] blocks, and their inverses.
pub(super) struct Units {
    pub(super) units: [f32; TOGETHER],
    inverses: [f32; TOGETHER],
}

impl Units {
    #[inline(always)]
    pub(super) fn new<S: Simd, T: Block>(simd: S, side: Side, blocks: &[[T; BLOCK]]) -> Self {
        let mut all = Self { units: [0.0; TOGETHER], inverses: [0.0; TOGETHER] };
        let mut lanes = [simd.zero_integers(); MAX_LANES];
        let field = |field: u32| (field << 23) as i32;
        let (least, infinite) = (simd.splat_pair(field(LEAST_FIELD)), simd.splat_pair(field(INFINITE)));
        let (less, more) = (simd.splat_pair(field(side.bits() - 2)), simd.splat_pair(field(252 + side.bits())));
        let places = all.units.chunks_exact_mut(S::LANES).zip(all.inverses.chunks_exact_mut(S::LANES));
        for (blocks, (units, inverses)) in blocks.chunks(S::LANES).zip(places) {
            for (lanes, values) in lanes.iter_mut().zip(blocks) {
                *lanes = T::largest(simd, values);
            }
            let largest = T::widen(simd, fold_lanes::<S, Greatest>(simd, &lanes));
            let exponents = simd.and_integers(simd.max_integers(largest, least), infinite);
            let (unit, inverse) = (simd.subtract_integers(exponents, less), simd.subtract_integers(more, exponents));
            // SAFETY: each is a vector.
            unsafe {
                // An infinity, and that alone, makes NaN of zero.
                simd.store(units.as_mut_ptr(), simd.add(simd.floats_of_bits(unit), simd.multiply(simd.floats_of_bits(exponents), simd.splat(0.0))));
                simd.store(inverses.as_mut_ptr(), simd.floats_of_bits(inverse));
            }
        }
        all
    }

    /// What makes the integers of block `number`.
    #[inline(always)]
    pub(super) fn rounding<S: Simd>(&self, simd: S, side: Side, number: usize) -> Rounding<S::Vector> {
        let limit = f32::from(side.limit());
        Rounding {
            inverse: simd.splat(self.inverses[number]),
            one: simd.splat(ROUND),
            limits: [simd.splat(ROUND - limit), simd.splat(ROUND + limit)],
        }
    }

    /// The integers of block `number`.
    #[inline(always)]
    pub(super) fn round<S: Simd, T: Block>(&self, simd: S, side: Side, number: usize, values: &[T; BLOCK], integers: &mut [i16; BLOCK]) {
        let rounding = self.rounding(simd, side, number);
        for place in (0..BLOCK).step_by(2 * S::LANES) {
            // SAFETY: there are so many elements, and as many integers.
            unsafe { simd.store_integers(integers.as_mut_ptr().add(place), rounding.words(simd, values.as_ptr().add(place))) };
        }
    }
}

/// Makes integers of elements.
#[derive(Clone, Copy)]
pub(super) struct Rounding<V> {
    inverse: V,
    one: V,
    limits: [V; 2],
}

impl<V: Copy> Rounding<V> {
    /// The integers of neighbours. (No closure calls vectors' methods: it would be compiled without the caller's instructions.)
    ///
    /// # Safety
    /// `source` is valid for reading twice [`Simd::LANES`] elements.
    #[inline(always)]
    pub(super) unsafe fn words<S: Simd<Vector = V>, T: Block>(&self, simd: S, source: *const T) -> S::Integers {
        // SAFETY: the caller's promise.
        let mut vectors = unsafe { T::load_two(simd, source) };
        for vector in &mut vectors {
            // With powers of two the product is exact: both ways are the same.
            let product =
                if S::PORTABLE { simd.add(simd.multiply(*vector, self.inverse), self.one) } else { simd.fma(*vector, self.inverse, self.one) };
            *vector = if size_of::<T>() == 4 { simd.clamp(product, self.limits[0], self.limits[1]) } else { product };
        }
        let [a, b] = vectors;
        if T::IN_TURN { simd.low_words_in_turn(a, b) } else { simd.low_words(a, b) }
    }
}

/// The blocks of a line of contiguous elements; those that the last one lacks are zero.
#[inline(always)]
pub(super) fn quantise_line<S: Simd, T: Block>(simd: S, side: Side, line: &[T], integers: &mut [[i16; BLOCK]], units: &mut [f32]) {
    let (whole, rest) = line.as_chunks();
    let groups = integers.chunks_mut(TOGETHER).zip(units.chunks_mut(TOGETHER));
    for (blocks, (integers, units)) in whole.chunks(TOGETHER).zip(groups) {
        quantise(simd, side, blocks, integers, units);
    }
    if !rest.is_empty() {
        quantise(simd, side, &[filled(rest)], &mut integers[whole.len()..], &mut units[whole.len()..]);
    }
}

/// Up to [`TOGETHER`] blocks.
#[inline(always)]
fn quantise<S: Simd, T: Block>(simd: S, side: Side, blocks: &[[T; BLOCK]], integers: &mut [[i16; BLOCK]], units: &mut [f32]) {
    let of = Units::new(simd, side, blocks);
    for (number, (values, integers)) in blocks.iter().zip(integers).enumerate() {
        of.round(simd, side, number, values, integers);
    }
    units.iter_mut().zip(of.units).take(blocks.len()).for_each(|(unit, of)| *unit = of);
}

/// A block of these elements, the others zero.
#[inline(always)]
pub(super) fn filled<T: Block>(values: &[T]) -> [T; BLOCK] {
    let mut block = [T::from_f32(0.0); BLOCK];
    block[..values.len()].copy_from_slice(values);
    block
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
                quantise(simd, self.side, &[wide], slice::from_mut(integers), slice::from_mut(unit));
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
