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
    /// Whether the compiler chooses the instructions.
    const PORTABLE: bool = false;

    fn splat(self, value: f32) -> Self::Vector;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

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

/// Plain arrays, which the compiler turns into what the target has (NEON on aarch64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portable;

impl Simd for Portable {
    type Vector = [f32; PORTABLE_LANES];
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
    fn transpose(self, rows: &mut [Self::Vector]) {
        for i in 0..PORTABLE_LANES {
            for j in 0..i {
                let (above, below) = rows.split_at_mut(i);
                std::mem::swap(&mut above[j][i], &mut below[0][j]);
            }
        }
    }
}
