//! Packets of four vectors of AVX2 or AVX-512. They are computed with in functions compiled for these instructions alone ([`mod@crate::simd`]).

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

use elinvar_core::DType;

use super::{Float, Packet, Real};

/// How elements are stored.
#[derive(Clone, Copy)]
enum Storage {
    F32,
    F16,
    BF16,
}

/// How a type's elements are stored.
const fn storage<S: Float>() -> Storage {
    match S::DTYPE {
        DType::F16 => Storage::F16,
        DType::BF16 => Storage::BF16,
        DType::F32 | DType::F64 | DType::Bool => Storage::F32,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => Storage::F32,
    }
}

/// A function of each of four vectors, or of pairs of them, …
macro_rules! four {
    ($function:path; $($vectors:expr),+) => {
        // SAFETY: only code compiled for these instructions computes with packets.
        unsafe { [$function($($vectors[0]),+), $function($($vectors[1]),+), $function($($vectors[2]),+), $function($($vectors[3]),+)] }
    };
}

macro_rules! packet {
    ($(#[$doc:meta])* $name:ident $vector:ident $integers:ident $numbers:literal, mask $mask:ident $less:path, $choose:path;
     $splat:path, $splat_int:path, $add:path, $sub:path, $mul:path, $div:path, $fma:path, $and:path, $andnot:path, $or:path, $xor:path, $max:path, $min:path;
     $bits:path, $from_bits:path, $add_int:path, $sub_int:path, $halve:path, $max_int:path, $shift:path) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name([$vector; 4]);

        packet!(@operator $name Add add $add);
        packet!(@operator $name Sub sub $sub);
        packet!(@operator $name Mul mul $mul);
        packet!(@operator $name Div div $div);

        impl Neg for $name {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self(four!($xor; self.0, Self::of(-0.0).0))
            }
        }

        impl Real for $name {
            type Mask = [$mask; 4];
            type Int = [$integers; 4];

            #[inline(always)]
            fn of(value: f32) -> Self {
                // SAFETY: as in `four`.
                Self(unsafe { [$splat(value); 4] })
            }

            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                Self(four!($fma; self.0, b.0, c.0))
            }

            #[inline(always)]
            fn abs(self) -> Self {
                Self(four!($andnot; Self::of(-0.0).0, self.0))
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                let sign = four!($and; sign.0, Self::of(-0.0).0);
                Self(four!($or; self.abs().0, sign))
            }

            #[inline(always)]
            fn at_least(self, low: f32) -> Self {
                // The second operand if one is a NaN.
                Self(four!($max; Self::of(low).0, self.0))
            }

            #[inline(always)]
            fn at_most(self, high: f32) -> Self {
                Self(four!($min; Self::of(high).0, self.0))
            }

            #[inline(always)]
            fn is_below(self, bound: f32) -> Self::Mask {
                four!($less; self.0, Self::of(bound).0)
            }

            #[inline(always)]
            fn any_below(self, bound: f32) -> bool {
                // SAFETY: as in `four`.
                unsafe { $name::any(self.is_below(bound)) }
            }

            #[inline(always)]
            fn choose(mask: Self::Mask, yes: Self, no: Self) -> Self {
                Self(four!($choose; mask, yes.0, no.0))
            }

            #[inline(always)]
            fn bits(self) -> Self::Int {
                four!($bits; self.0)
            }

            #[inline(always)]
            fn from_bits(bits: Self::Int) -> Self {
                Self(four!($from_bits; bits))
            }

            #[inline(always)]
            fn plus(a: Self::Int, b: i32) -> Self::Int {
                // SAFETY: as in `four`.
                let b = unsafe { [$splat_int(b); 4] };
                four!($add_int; a, b)
            }

            #[inline(always)]
            fn minus(a: Self::Int, b: Self::Int) -> Self::Int {
                four!($sub_int; a, b)
            }

            #[inline(always)]
            fn halved(a: Self::Int) -> Self::Int {
                four!($halve; a)
            }

            #[inline(always)]
            fn larger(a: Self::Int, low: i32) -> Self::Int {
                // SAFETY: as in `four`.
                let low = unsafe { [$splat_int(low); 4] };
                four!($max_int; a, low)
            }

            #[inline(always)]
            fn exponents(a: Self::Int) -> Self::Int {
                four!($shift; a)
            }
        }

        impl Packet for $name {
            const NUMBERS: usize = 4 * $numbers;

            #[inline(always)]
            unsafe fn load<S: Float>(from: *const S) -> Self {
                // SAFETY: so many elements are there, by the caller.
                let parts = unsafe { [from, from.add($numbers), from.add(2 * $numbers), from.add(3 * $numbers)] };
                Self(match storage::<S>() {
                    Storage::F32 => four!($name::load_f32; parts),
                    Storage::F16 => four!($name::load_f16; parts),
                    Storage::BF16 => {
                        // SAFETY: as in `four`.
                        let ([a, b], [c, d]) = unsafe { ($name::load_bf16(parts[0]), $name::load_bf16(parts[2])) };
                        [a, b, c, d]
                    }
                })
            }

            #[inline(always)]
            unsafe fn store<S: Float>(self, to: *mut S) {
                // SAFETY: so many places are there, by the caller.
                let parts = unsafe { [to, to.add($numbers), to.add(2 * $numbers), to.add(3 * $numbers)] };
                match storage::<S>() {
                    Storage::F32 => _ = four!($name::store_f32; parts, self.0),
                    Storage::F16 => _ = four!($name::store_f16; parts, self.0),
                    Storage::BF16 => {
                        let [a, b, c, d] = self.0;
                        // SAFETY: as in `four`.
                        unsafe {
                            $name::store_bf16(parts[0], [a, b]);
                            $name::store_bf16(parts[2], [c, d]);
                        }
                    }
                }
            }

            #[inline(always)]
            fn rounded<S: Float>(self) -> Self {
                match storage::<S>() {
                    Storage::F32 => self,
                    Storage::F16 => Self(four!($name::round_f16; self.0)),
                    Storage::BF16 => Self(four!($name::round_bf16; self.0)),
                }
            }
        }
    };
    (@operator $name:ident $trait:ident $method:ident $function:path) => {
        impl $trait for $name {
            type Output = Self;
            #[inline(always)]
            fn $method(self, b: Self) -> Self {
                Self(four!($function; self.0, b.0))
            }
        }
    };
}

packet! {
    /// Four vectors of AVX2 with FMA and F16C.
    Avx2 __m256 __m256i 8, mask __m256 _mm256_cmp_ps::<_CMP_LT_OQ>, Self::choose_vector;
    _mm256_set1_ps, _mm256_set1_epi32, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps, _mm256_div_ps, _mm256_fmadd_ps, _mm256_and_ps, _mm256_andnot_ps,
    _mm256_or_ps, _mm256_xor_ps, _mm256_max_ps, _mm256_min_ps;
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_add_epi32, _mm256_sub_epi32, _mm256_srai_epi32::<1>, _mm256_max_epi32, _mm256_slli_epi32::<23>
}

packet! {
    /// Four vectors of AVX-512 F and DQ.
    Avx512 __m512 __m512i 16, mask __mmask16 _mm512_cmp_ps_mask::<_CMP_LT_OQ>, Self::choose_vector;
    _mm512_set1_ps, _mm512_set1_epi32, _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps, _mm512_div_ps, _mm512_fmadd_ps, _mm512_and_ps, _mm512_andnot_ps,
    _mm512_or_ps, _mm512_xor_ps, _mm512_max_ps, _mm512_min_ps;
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_add_epi32, _mm512_sub_epi32, _mm512_srai_epi32::<1>, _mm512_max_epi32, _mm512_slli_epi32::<23>
}

impl Avx2 {
    #[inline]
    #[target_feature(enable = "avx")]
    fn any([a, b, c, d]: [__m256; 4]) -> bool {
        _mm256_movemask_ps(_mm256_or_ps(_mm256_or_ps(a, b), _mm256_or_ps(c, d))) != 0
    }

    #[inline]
    #[target_feature(enable = "avx")]
    fn choose_vector(mask: __m256, yes: __m256, no: __m256) -> __m256 {
        _mm256_blendv_ps(no, yes, mask)
    }

    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn load_f32<S>(from: *const S) -> __m256 {
        // SAFETY: by the caller.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn load_f16<S>(from: *const S) -> __m256 {
        // SAFETY: by the caller.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.cast()) })
    }

    /// Of twice as many elements those in even places, and those in odd ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load_bf16<S>(from: *const S) -> [__m256; 2] {
        // SAFETY: by the caller.
        let both = unsafe { _mm256_loadu_si256(from.cast()) };
        let (even, odd) = (_mm256_slli_epi32::<16>(both), _mm256_and_si256(both, _mm256_set1_epi32(-0x1_0000)));
        [_mm256_castsi256_ps(even), _mm256_castsi256_ps(odd)]
    }

    #[inline]
    #[target_feature(enable = "avx")]
    unsafe fn store_f32<S>(to: *mut S, vector: __m256) {
        // SAFETY: by the caller.
        unsafe { _mm256_storeu_ps(to.cast(), vector) };
    }

    #[inline]
    #[target_feature(enable = "avx,f16c")]
    unsafe fn store_f16<S>(to: *mut S, vector: __m256) {
        // SAFETY: by the caller.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(vector)) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store_bf16<S>(to: *mut S, [even, odd]: [__m256; 2]) {
        let even = _mm256_srli_epi32::<16>(_mm256_castps_si256(even));
        // SAFETY: by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), _mm256_or_si256(even, _mm256_castps_si256(odd))) };
    }

    #[inline]
    #[target_feature(enable = "avx,f16c")]
    fn round_f16(vector: __m256) -> __m256 {
        _mm256_cvtph_ps(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(vector))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn round_bf16(vector: __m256) -> __m256 {
        let bits = _mm256_castps_si256(vector);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let raised = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        _mm256_castsi256_ps(_mm256_and_si256(raised, _mm256_set1_epi32(-0x1_0000)))
    }
}

impl Avx512 {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn any([a, b, c, d]: [__mmask16; 4]) -> bool {
        a | b | c | d != 0
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn choose_vector(mask: __mmask16, yes: __m512, no: __m512) -> __m512 {
        _mm512_mask_blend_ps(mask, no, yes)
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_f32<S>(from: *const S) -> __m512 {
        // SAFETY: by the caller.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_f16<S>(from: *const S) -> __m512 {
        // SAFETY: by the caller.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    /// Of twice as many elements those in even places, and those in odd ones.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load_bf16<S>(from: *const S) -> [__m512; 2] {
        // SAFETY: by the caller.
        let both = unsafe { _mm512_loadu_si512(from.cast()) };
        let (even, odd) = (_mm512_slli_epi32::<16>(both), _mm512_and_si512(both, _mm512_set1_epi32(-0x1_0000)));
        [_mm512_castsi512_ps(even), _mm512_castsi512_ps(odd)]
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store_f32<S>(to: *mut S, vector: __m512) {
        // SAFETY: by the caller.
        unsafe { _mm512_storeu_ps(to.cast(), vector) };
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store_f16<S>(to: *mut S, vector: __m512) {
        // SAFETY: by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(vector)) };
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn store_bf16<S>(to: *mut S, [even, odd]: [__m512; 2]) {
        let even = _mm512_srli_epi32::<16>(_mm512_castps_si512(even));
        // SAFETY: by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), _mm512_or_si512(even, _mm512_castps_si512(odd))) };
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn round_f16(vector: __m512) -> __m512 {
        _mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(vector))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn round_bf16(vector: __m512) -> __m512 {
        let bits = _mm512_castps_si512(vector);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let raised = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        _mm512_castsi512_ps(_mm512_and_si512(raised, _mm512_set1_epi32(-0x1_0000)))
    }
}
