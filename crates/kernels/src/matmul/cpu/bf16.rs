//! bf16 products by the processor's own dot products (VDPBF16PS), for fast precision.
//!
//! An element of a panel is a pair of neighbours along k, as one 32-bit word, so packing and tiles are those of f32 with half as many k. The
//! instruction adds the two exact products to an f32 sum, rounds in a way of its own and flushes denormals.

use std::{arch::x86_64::*, sync::LazyLock};

use half::bf16;

use super::{
    operand::{Matrix, Values},
    plan::Plan,
    simd::{Simd, Work},
    tile::{Multiply, Tile},
    x86::Avx512,
};

/// AVX-512 BF16 of a processor on which it is faster than f32 arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bf16Pairs(Avx512);

impl Bf16Pairs {
    /// AMD's units do twice the work of f32 in the same time. On Intel's (Sapphire and Emerald Rapids) the instruction has a quarter of the rate
    /// of an f32 multiply-add: half the work in the same time.
    pub(crate) fn detect() -> Option<Self> {
        static DETECTED: LazyLock<Option<Bf16Pairs>> = LazyLock::new(|| {
            let vendor = __cpuid(0);
            let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
            Avx512::detect().filter(|_| is_amd && is_x86_feature_detected!("avx512bf16")).map(Bf16Pairs)
        });
        *DETECTED
    }

    /// Sums a tile of panels of pairs.
    pub(crate) fn run(self, tile: Tile<'_>) {
        #[target_feature(enable = "avx512bf16,avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
        fn enabled(simd: Avx512, tile: Tile<'_>) {
            tile.sum_columns::<Avx512, Pairs, true>(simd);
        }
        // SAFETY: `possible` makes every value, so the processor has these instructions.
        unsafe { enabled(self.0, tile) }
    }
}

struct Pairs;

impl Multiply<Avx512> for Pairs {
    #[inline(always)]
    fn add_product(_: Avx512, a: __m512, b: __m512, sum: __m512) -> __m512 {
        // SAFETY: only `Bf16Pairs::run` multiplies by pairs; the transmutes are between 64-byte vectors of plain bits.
        unsafe { _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512, __m512bh>(a), std::mem::transmute::<__m512, __m512bh>(b)) }
    }
}

/// Packs the rows `first..first + count` of `matrix` (columns are k) as [`super::pack::pack`] does, by pairs along k; an odd last element is
/// paired with zero. `plan` is over the pairs.
pub(crate) fn pack_pairs(pairs: Bf16Pairs, plan: &Plan, matrix: Matrix<'_>, [first, count]: [usize; 2], width: usize, panel: &mut [f32]) {
    let Values::Bf16(values) = matrix.values() else { return };
    assert!(count >= 1 && first + count <= matrix.rows() && matrix.columns().div_ceil(2) == plan.k());
    assert!(panel.len() >= width * plan.k() && width.is_multiple_of(Avx512::LANES));
    pairs.0.run(Pack { plan, matrix, values, first, count, width, panel });
}

struct Pack<'a> {
    plan: &'a Plan,
    matrix: Matrix<'a>,
    values: &'a [bf16],
    first: usize,
    count: usize,
    width: usize,
    panel: &'a mut [f32],
}

impl Work for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let whole = if self.matrix.has_contiguous_rows() { self.matrix.columns() / (2 * S::LANES) * S::LANES } else { 0 };
        for row in (0..self.width).step_by(S::LANES) {
            for pair in (0..whole).step_by(S::LANES) {
                self.transpose(simd, row, pair);
            }
        }
        for pair in whole..self.plan.k() {
            for row in 0..self.width {
                self.panel[self.plan.position(pair) * self.width + row] = f32::from_bits(self.word(row, pair));
            }
        }
    }
}

impl Pack<'_> {
    #[inline(always)]
    fn index(&self, row: usize, k: usize) -> usize {
        self.matrix.index(self.first + row.min(self.count - 1), k)
    }

    #[inline(always)]
    fn word(&self, row: usize, pair: usize) -> u32 {
        let element = |k: usize| if k < self.matrix.columns() { u32::from(self.values[self.index(row, k)].to_bits()) } else { 0 };
        element(2 * pair) | element(2 * pair + 1) << 16
    }

    /// A square of `LANES` rows and `LANES` pairs.
    #[inline(always)]
    fn transpose<S: Simd>(&mut self, simd: S, row: usize, pair: usize) {
        let mut square = [simd.splat(0.0); 16];
        for i in 0..S::LANES {
            let source = self.index(row + i, 2 * pair);
            // SAFETY: `2 * LANES` elements of this row from `2 * pair` on are in the matrix, whose elements are in bounds; loads need no alignment.
            square[i] = unsafe { simd.load(self.values.as_ptr().add(source).cast()) };
        }
        simd.transpose(&mut square[..S::LANES]);
        for i in 0..S::LANES {
            let target = self.plan.position(pair + i) * self.width + row;
            // SAFETY: positions are below the number of pairs and `row + LANES <= width`; the panel has that many elements.
            unsafe { simd.store(self.panel.as_mut_ptr().add(target), square[i]) };
        }
    }
}
