//! Vectors of f32 behind one small trait, so that a kernel is written once and compiled for each instruction set.
//!
//! A value of a [`Simd`] type is proof that the processor has its instructions. Kernels are `#[inline(always)]` bodies of a [`Work`],
//! which [`Level::run`](super::level::Level::run) compiles inside a function that enables the instruction set. Every operation is exact IEEE (fma, add, widening
//! conversion), so a kernel that fixes its order of operations gives the same bits on every level.

use half::{bf16, f16};

/// A set of vector instructions.
pub(crate) trait Simd: Copy + Send + Sync {
    /// A vector of [`Simd::LANES`] f32.
    type Vector: Copy;
    /// Lanes of a vector: a power of two, at most 16.
    const LANES: usize;
    /// A vector of as many i32, or of twice as many i16.
    type Integers: Copy;
    /// Whether the compiler chooses the instructions.
    const PORTABLE: bool = false;

    fn splat(self, value: f32) -> Self::Vector;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn multiply(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Numbers, none of them NaN, brought between two others.
    fn clamp(self, vector: Self::Vector, low: Self::Vector, high: Self::Vector) -> Self::Vector;

    /// # Safety
    /// `source` is valid for reading [`Simd::LANES`] elements (any alignment); likewise for the other loads.
    unsafe fn load(self, source: *const f32) -> Self::Vector;
    /// # Safety
    /// As [`Simd::load`].
    unsafe fn load_f16(self, source: *const f16) -> Self::Vector;
    /// # Safety
    /// As [`Simd::load`].
    unsafe fn load_bf16(self, source: *const bf16) -> Self::Vector;
    /// # Safety
    /// `target` is valid for writing [`Simd::LANES`] elements (any alignment).
    unsafe fn store(self, target: *mut f32, vector: Self::Vector);

    /// The bf16 values that the lower and the upper half of each element's bits are.
    fn split_bf16(self, pairs: Self::Vector) -> [Self::Vector; 2];

    /// Sums of neighbours: `a0 + a1, a2 + a3, …`, then those of `b`.
    fn add_pairs(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    fn zero_integers(self) -> Self::Integers;
    /// # Safety
    /// `source` is valid for reading twice [`Simd::LANES`] elements (any alignment).
    unsafe fn load_integers(self, source: *const i16) -> Self::Integers;
    /// # Safety
    /// `target` is valid for writing twice [`Simd::LANES`] elements (any alignment).
    unsafe fn store_integers(self, target: *mut i16, integers: Self::Integers);
    /// Two neighbours in every lane, the first in the lower half.
    fn splat_pair(self, pair: i32) -> Self::Integers;
    /// Of i16, the sum of the two products of each pair of neighbours.
    fn multiply_pairs(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// Sums of i32, modulo 2^32.
    fn add_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// Differences of i32, modulo 2^32.
    fn subtract_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    fn and_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// The greater of two i32.
    fn max_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// The greater of two i16.
    fn max_words(self, a: Self::Integers, b: Self::Integers) -> Self::Integers;
    /// `i << 16` of each i32.
    fn lower_to_upper(self, integers: Self::Integers) -> Self::Integers;
    /// `i >> 16` of each i32.
    fn upper_to_lower(self, integers: Self::Integers) -> Self::Integers;
    /// A step of folding the lanes of as many vectors as there are: two vectors to be folded lane by lane into one, which stands for `a` and `b`. Steps go from
    /// 0 on, each from neighbours `a` and `b`. After the last one, lane `i` has what vector `i` had.
    fn fold_step<const STEP: usize>(self, a: Self::Integers, b: Self::Integers) -> [Self::Integers; 2];
    /// The f32 whose bits each i32 is.
    fn floats_of_bits(self, integers: Self::Integers) -> Self::Vector;
    /// Each i32, of at most 24 bits.
    fn to_floats(self, integers: Self::Integers) -> Self::Vector;
    /// The lower 16 bits of each element's bits, those of `a` first.
    fn low_words(self, a: Self::Vector, b: Self::Vector) -> Self::Integers;
    /// The same, those of `a` and `b` in turn.
    fn low_words_in_turn(self, a: Self::Vector, b: Self::Vector) -> Self::Integers;

    /// Announces that the cache lines somewhat after `address` will be read: soon, and later. Any address is fine.
    #[inline(always)]
    fn prefetch_after<T>(self, address: *const T) {
        let _ = address;
    }

    /// Transposes a square of [`Simd::LANES`] vectors: element `j` of vector `i` becomes element `i` of vector `j`.
    fn transpose(self, rows: &mut [Self::Vector]);
}

/// A computation that can be compiled for any [`Simd`]. Implementations of `run` are `#[inline(always)]`.
pub(crate) trait Work {
    type Output;
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

const PORTABLE_LANES: usize = 8;

/// Two neighbours as an element of [`Simd::Integers`].
#[inline(always)]
pub(crate) fn pair([first, second]: [i16; 2]) -> i32 {
    i32::from(first as u16) | i32::from(second) << 16
}

#[inline(always)]
fn halves(pair: i32) -> [i16; 2] {
    [pair as i16, (pair >> 16) as i16]
}

/// Plain arrays, which the compiler turns into what the target has (NEON on aarch64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portable;

impl Simd for Portable {
    type Vector = [f32; PORTABLE_LANES];
    type Integers = [i32; PORTABLE_LANES];
    const LANES: usize = PORTABLE_LANES;
    const PORTABLE: bool = true;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::Vector {
        [value; PORTABLE_LANES]
    }

    #[inline(always)]
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn multiply(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn clamp(self, vector: Self::Vector, low: Self::Vector, high: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| vector[i].clamp(low[i], high[i]))
    }

    #[inline(always)]
    fn split_bf16(self, pairs: Self::Vector) -> [Self::Vector; 2] {
        [pairs.map(|v| f32::from_bits(v.to_bits() << 16)), pairs.map(|v| f32::from_bits(v.to_bits() & 0xffff_0000))]
    }

    #[inline(always)]
    fn add_pairs(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| if i < 4 { a[2 * i] + a[2 * i + 1] } else { b[2 * i - 8] + b[2 * i - 7] })
    }

    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { source.cast::<Self::Vector>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(self, source: *const f16) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { source.cast::<[f16; PORTABLE_LANES]>().read_unaligned() }.map(f16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_bf16(self, source: *const bf16) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { source.cast::<[bf16; PORTABLE_LANES]>().read_unaligned() }.map(|v| f32::from_bits(u32::from(v.to_bits()) << 16))
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32, vector: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { target.cast::<Self::Vector>().write_unaligned(vector) }
    }

    #[inline(always)]
    fn zero_integers(self) -> Self::Integers {
        [0; PORTABLE_LANES]
    }

    #[inline(always)]
    unsafe fn load_integers(self, source: *const i16) -> Self::Integers {
        // SAFETY: the caller's promise.
        unsafe { source.cast::<[[i16; 2]; PORTABLE_LANES]>().read_unaligned() }.map(pair)
    }

    #[inline(always)]
    unsafe fn store_integers(self, target: *mut i16, integers: Self::Integers) {
        // SAFETY: the caller's promise.
        unsafe { target.cast::<[[i16; 2]; PORTABLE_LANES]>().write_unaligned(integers.map(halves)) }
    }

    #[inline(always)]
    fn splat_pair(self, pair: i32) -> Self::Integers {
        [pair; PORTABLE_LANES]
    }

    #[inline(always)]
    fn multiply_pairs(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        std::array::from_fn(|i| {
            let ([a, c], [b, d]) = (halves(a[i]).map(i32::from), halves(b[i]).map(i32::from));
            (a * b).wrapping_add(c * d)
        })
    }

    #[inline(always)]
    fn add_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }

    #[inline(always)]
    fn subtract_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        std::array::from_fn(|i| a[i].wrapping_sub(b[i]))
    }

    #[inline(always)]
    fn and_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        std::array::from_fn(|i| a[i] & b[i])
    }

    #[inline(always)]
    fn max_integers(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        std::array::from_fn(|i| a[i].max(b[i]))
    }

    #[inline(always)]
    fn max_words(self, a: Self::Integers, b: Self::Integers) -> Self::Integers {
        std::array::from_fn(|i| {
            let ([a, c], [b, d]) = (halves(a[i]), halves(b[i]));
            pair([a.max(b), c.max(d)])
        })
    }

    #[inline(always)]
    fn lower_to_upper(self, integers: Self::Integers) -> Self::Integers {
        integers.map(|i| i << 16)
    }

    #[inline(always)]
    fn upper_to_lower(self, integers: Self::Integers) -> Self::Integers {
        integers.map(|i| i >> 16)
    }

    #[inline(always)]
    fn fold_step<const STEP: usize>(self, a: Self::Integers, b: Self::Integers) -> [Self::Integers; 2] {
        let of = |i: usize| if i < PORTABLE_LANES { a[i] } else { b[i - PORTABLE_LANES] };
        [std::array::from_fn(|i| of(2 * i)), std::array::from_fn(|i| of(2 * i + 1))]
    }

    #[inline(always)]
    fn floats_of_bits(self, integers: Self::Integers) -> Self::Vector {
        integers.map(|i| f32::from_bits(i as u32))
    }

    #[inline(always)]
    fn to_floats(self, integers: Self::Integers) -> Self::Vector {
        integers.map(|i| i as f32)
    }

    #[inline(always)]
    fn low_words(self, a: Self::Vector, b: Self::Vector) -> Self::Integers {
        let word = |i: usize| if i < PORTABLE_LANES { a[i] } else { b[i - PORTABLE_LANES] }.to_bits() as i16;
        std::array::from_fn(|i| pair([word(2 * i), word(2 * i + 1)]))
    }

    #[inline(always)]
    fn low_words_in_turn(self, a: Self::Vector, b: Self::Vector) -> Self::Integers {
        std::array::from_fn(|i| pair([a[i], b[i]].map(|v| v.to_bits() as i16)))
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [Self::Vector]) {
        for i in 0..PORTABLE_LANES {
            for j in 0..i {
                let (above, below) = rows.split_at_mut(i);
                std::mem::swap(&mut above[j][i], &mut below[0][j]);
            }
        }
    }
}
