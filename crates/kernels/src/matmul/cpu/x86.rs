//! AVX2 and AVX-512 for [`Simd`].

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::simd::{Simd, Work};

/// Bytes ahead of a stream at which lines are fetched into the second-level cache, which the hardware alone does too late to reach the
/// memory's rate, and from there into the first.
const FAR: usize = 16384;
const NEAR: usize = 4096;

#[inline(always)]
fn prefetch_after<T>(address: *const T) {
    // SAFETY: SSE is part of x86-64; prefetching reads nothing, whatever the address.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(address.wrapping_byte_add(FAR).cast());
        _mm_prefetch::<_MM_HINT_T0>(address.wrapping_byte_add(NEAR).cast());
    }
}

/// AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn enabled<W: Work>(simd: Avx2, work: W) -> W::Output {
            work.run(simd)
        }
        // SAFETY: `detect` is the only constructor, so the processor has these instructions.
        unsafe { enabled(self, work) }
    }
}

/// AVX-512 F, VL, BW and DQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let vectors = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        let integers = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512dq");
        (vectors && integers && Avx2::detect().is_some()).then_some(Self(()))
    }

    pub(crate) fn run<W: Work>(self, work: W) -> W::Output {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c")]
        fn enabled<W: Work>(simd: Avx512, work: W) -> W::Output {
            work.run(simd)
        }
        // SAFETY: `detect` is the only constructor, so the processor has these instructions.
        unsafe { enabled(self, work) }
    }
}

impl Simd for Avx2 {
    type Vector = __m256;
    type Integers = __m256i;
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: `self` proves that the processor has the instruction; so everywhere below.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn multiply(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn clamp(self, vector: __m256, low: __m256, high: __m256) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_min_ps(_mm256_max_ps(vector, low), high) }
    }

    #[inline(always)]
    fn split_bf16(self, pairs: __m256) -> [__m256; 2] {
        // SAFETY: see `splat`.
        unsafe {
            let (bits, upper) = (_mm256_castps_si256(pairs), _mm256_set1_epi32(-0x1_0000));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)), _mm256_castsi256_ps(_mm256_and_si256(bits, upper))]
        }
    }

    #[inline(always)]
    fn add_pairs(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(_mm256_hadd_ps(a, b)))) }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> __m256 {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm256_loadu_ps(source) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, source: *const f16) -> __m256 {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(source.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, source: *const bf16) -> __m256 {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(source.cast())))) }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32, vector: __m256) {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm256_storeu_ps(target, vector) }
    }

    #[inline(always)]
    fn zero_integers(self) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load_integers(self, source: *const i16) -> __m256i {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm256_loadu_si256(source.cast()) }
    }

    #[inline(always)]
    unsafe fn store_integers(self, target: *mut i16, integers: __m256i) {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm256_storeu_si256(target.cast(), integers) }
    }

    #[inline(always)]
    fn splat_pair(self, pair: i32) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_set1_epi32(pair) }
    }

    #[inline(always)]
    fn multiply_pairs(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_madd_epi16(a, b) }
    }

    #[inline(always)]
    fn add_integers(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn subtract_integers(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and_integers(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn max_integers(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_max_epi32(a, b) }
    }

    #[inline(always)]
    fn max_words(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_max_epi16(a, b) }
    }

    #[inline(always)]
    fn lower_to_upper(self, integers: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_slli_epi32::<16>(integers) }
    }

    #[inline(always)]
    fn upper_to_lower(self, integers: __m256i) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_srai_epi32::<16>(integers) }
    }

    #[inline(always)]
    fn fold_step<const STEP: usize>(self, a: __m256i, b: __m256i) -> [__m256i; 2] {
        // SAFETY: see `splat`.
        unsafe {
            match STEP {
                0 => [_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)],
                1 => [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)],
                _ => [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)],
            }
        }
    }

    #[inline(always)]
    fn floats_of_bits(self, integers: __m256i) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_castsi256_ps(integers) }
    }

    #[inline(always)]
    fn to_floats(self, integers: __m256i) -> __m256 {
        // SAFETY: see `splat`.
        unsafe { _mm256_cvtepi32_ps(integers) }
    }

    #[inline(always)]
    fn low_words(self, a: __m256, b: __m256) -> __m256i {
        // SAFETY: see `splat`.
        unsafe {
            let [a, b] = [a, b].map(|v| _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0xffff)));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(a, b))
        }
    }

    #[inline(always)]
    fn low_words_in_turn(self, a: __m256, b: __m256) -> __m256i {
        // SAFETY: see `splat`.
        unsafe { _mm256_blend_epi16::<0xaa>(_mm256_castps_si256(a), _mm256_slli_epi32::<16>(_mm256_castps_si256(b))) }
    }

    #[inline(always)]
    fn prefetch_after<T>(self, address: *const T) {
        prefetch_after(address);
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [__m256]) {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = rows else { return };
        // SAFETY: see `splat`.
        unsafe {
            let (upper, lower) = (quad(*r0, *r1, *r2, *r3), quad(*r4, *r5, *r6, *r7));
            for i in 0..4 {
                rows[i] = _mm256_permute2f128_ps::<0x20>(upper[i], lower[i]);
                rows[i + 4] = _mm256_permute2f128_ps::<0x31>(upper[i], lower[i]);
            }
        }
    }
}

/// Transposes the 4 x 4 blocks that the four vectors form in each half.
///
/// # Safety
/// The processor has AVX.
#[inline(always)]
unsafe fn quad(a: __m256, b: __m256, c: __m256, d: __m256) -> [__m256; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (ab_high, cd_high) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(ab, cd),
            _mm256_shuffle_ps::<0xee>(ab, cd),
            _mm256_shuffle_ps::<0x44>(ab_high, cd_high),
            _mm256_shuffle_ps::<0xee>(ab_high, cd_high),
        ]
    }
}

/// The even ones of 64 words.
static EVEN_WORDS: [u16; 32] = {
    let (mut places, mut i) = ([0; 32], 0);
    while i < 32 {
        places[i] = 2 * i as u16;
        i += 1;
    }
    places
};

impl Simd for Avx512 {
    type Vector = __m512;
    type Integers = __m512i;
    const LANES: usize = 16;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: `self` proves that the processor has the instruction; so everywhere below.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see `splat`.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see `splat`.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn multiply(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see `splat`.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn clamp(self, vector: __m512, low: __m512, high: __m512) -> __m512 {
        // SAFETY: see `splat`.
        unsafe { _mm512_min_ps(_mm512_max_ps(vector, low), high) }
    }

    #[inline(always)]
    fn split_bf16(self, pairs: __m512) -> [__m512; 2] {
        // SAFETY: see `splat`.
        unsafe {
            let (bits, upper) = (_mm512_castps_si512(pairs), _mm512_set1_epi32(-0x1_0000));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)), _mm512_castsi512_ps(_mm512_and_si512(bits, upper))]
        }
    }

    #[inline(always)]
    fn add_pairs(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: see `splat`.
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b))
        }
    }

    #[inline(always)]
    unsafe fn load(self, source: *const f32) -> __m512 {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm512_loadu_ps(source) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, source: *const f16) -> __m512 {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(source.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, source: *const bf16) -> __m512 {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(source.cast())))) }
    }

    #[inline(always)]
    unsafe fn store(self, target: *mut f32, vector: __m512) {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm512_storeu_ps(target, vector) }
    }

    #[inline(always)]
    fn zero_integers(self) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load_integers(self, source: *const i16) -> __m512i {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm512_loadu_si512(source.cast()) }
    }

    #[inline(always)]
    unsafe fn store_integers(self, target: *mut i16, integers: __m512i) {
        // SAFETY: the caller's promise, and see `splat`.
        unsafe { _mm512_storeu_si512(target.cast(), integers) }
    }

    #[inline(always)]
    fn splat_pair(self, pair: i32) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_set1_epi32(pair) }
    }

    #[inline(always)]
    fn multiply_pairs(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_madd_epi16(a, b) }
    }

    #[inline(always)]
    fn add_integers(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn subtract_integers(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and_integers(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    fn max_integers(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_max_epi32(a, b) }
    }

    #[inline(always)]
    fn max_words(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_max_epi16(a, b) }
    }

    #[inline(always)]
    fn lower_to_upper(self, integers: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_slli_epi32::<16>(integers) }
    }

    #[inline(always)]
    fn upper_to_lower(self, integers: __m512i) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_srai_epi32::<16>(integers) }
    }

    #[inline(always)]
    fn fold_step<const STEP: usize>(self, a: __m512i, b: __m512i) -> [__m512i; 2] {
        // SAFETY: see `splat`.
        unsafe {
            match STEP {
                0 => [_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b)],
                1 => [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)],
                _ => [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b)],
            }
        }
    }

    #[inline(always)]
    fn floats_of_bits(self, integers: __m512i) -> __m512 {
        // SAFETY: see `splat`.
        unsafe { _mm512_castsi512_ps(integers) }
    }

    #[inline(always)]
    fn to_floats(self, integers: __m512i) -> __m512 {
        // SAFETY: see `splat`.
        unsafe { _mm512_cvtepi32_ps(integers) }
    }

    #[inline(always)]
    fn low_words(self, a: __m512, b: __m512) -> __m512i {
        // SAFETY: see `splat`.
        unsafe {
            let places = _mm512_loadu_si512(EVEN_WORDS.as_ptr().cast());
            _mm512_permutex2var_epi16(_mm512_castps_si512(a), places, _mm512_castps_si512(b))
        }
    }

    #[inline(always)]
    fn low_words_in_turn(self, a: __m512, b: __m512) -> __m512i {
        // SAFETY: see `splat`.
        unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_castps_si512(a), _mm512_slli_epi32::<16>(_mm512_castps_si512(b))) }
    }

    #[inline(always)]
    fn prefetch_after<T>(self, address: *const T) {
        prefetch_after(address);
    }

    #[inline(always)]
    fn transpose(self, rows: &mut [__m512]) {
        if rows.len() != 16 {
            return;
        }
        // SAFETY: see `splat`.
        unsafe {
            // 4 x 4 blocks within the 128-bit quarters, then the quarters themselves.
            for group in 0..4 {
                let [a, b, c, d] = [rows[4 * group], rows[4 * group + 1], rows[4 * group + 2], rows[4 * group + 3]];
                let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
                let (ab_high, cd_high) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
                rows[4 * group] = _mm512_shuffle_ps::<0x44>(ab, cd);
                rows[4 * group + 1] = _mm512_shuffle_ps::<0xee>(ab, cd);
                rows[4 * group + 2] = _mm512_shuffle_ps::<0x44>(ab_high, cd_high);
                rows[4 * group + 3] = _mm512_shuffle_ps::<0xee>(ab_high, cd_high);
            }
            for i in 0..4 {
                let [a, b, c, d] = [rows[i], rows[4 + i], rows[8 + i], rows[12 + i]];
                let (ab_even, ab_odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (cd_even, cd_odd) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                rows[i] = _mm512_shuffle_f32x4::<0x88>(ab_even, cd_even);
                rows[8 + i] = _mm512_shuffle_f32x4::<0xdd>(ab_even, cd_even);
                rows[4 + i] = _mm512_shuffle_f32x4::<0x88>(ab_odd, cd_odd);
                rows[12 + i] = _mm512_shuffle_f32x4::<0xdd>(ab_odd, cd_odd);
            }
        }
    }
}
