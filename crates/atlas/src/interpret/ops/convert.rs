//! Conversions: Rust's `as` is what Atlas says, but for integers and f64 to halves, which go through f32 rounded to odd so that they round once.

use std::marker::PhantomData;

use bytemuck::Pod;
use elinvar_core::DType;
use elinvar_math::simd;

use super::{One, elements, elements_mut};

trait As<T> {
    fn to(self) -> T;
}

macro_rules! casts {
    ($($from:ident)*) => { $(casts!(@ $from: f32 f64 i8 i16 i32 i64 u8 u16 u32 u64);)* };
    (@ $from:ident: $($to:ident)*) => {
        $(impl As<$to> for $from {
            #[inline(always)]
            fn to(self) -> $to { self as $to }
        })*
    };
}
casts!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64);

trait Conversion {
    type From: Pod;
    type To: Pod;
    fn at(a: Self::From) -> Self::To;
}

simd! {
    fn map<C: Conversion>(a: &[u8], out: &mut [u8]) {
        for (out, a) in elements_mut::<C::To>(out).iter_mut().zip(elements::<C::From>(a)) {
            *out = C::at(*a);
        }
    }
}

struct Cast<S, T>(PhantomData<(S, T)>);
impl<S: Pod + As<T>, T: Pod> Conversion for Cast<S, T> {
    type From = S;
    type To = T;
    #[inline(always)]
    fn at(a: S) -> T {
        a.to()
    }
}

struct NonZero<S>(PhantomData<S>);
impl<S: Pod + PartialEq> Conversion for NonZero<S> {
    type From = S;
    type To = u8;
    #[inline(always)]
    fn at(a: S) -> u8 {
        u8::from(a != S::zeroed())
    }
}

/// To f32 with the last bit set if anything is lost, so that a second rounding, to fewer bits, is the only one.
trait ToOdd {
    fn to_odd(self) -> f32;
}

macro_rules! to_odd {
    ($($type:ident)*) => {$(
        impl ToOdd for $type {
            #[inline(always)]
            fn to_odd(self) -> f32 {
                #[allow(unused_comparisons, reason = "unsigned types have no negative values")]
                let negative = self < 0;
                let magnitude = if negative { (self as i64 as u64).wrapping_neg() } else { self as u64 };
                let shift = 40u32.saturating_sub(magnitude.leading_zeros());
                let kept = magnitude >> shift;
                let lost = u64::from(kept << shift != magnitude);
                let value = (kept | lost) as f32 * f32::from_bits((127 + shift) << 23);
                if negative { -value } else { value }
            }
        }
    )*};
}
to_odd!(i8 i16 i32 i64 u8 u16 u32 u64);

impl ToOdd for f64 {
    #[inline(always)]
    fn to_odd(self) -> f32 {
        let nearest = self as f32;
        let exact = f64::from(nearest);
        // What is lost was rounded away from zero or towards it.
        let below = nearest.to_bits() - u32::from(exact.abs() > self.abs());
        if exact == self || self.is_nan() { nearest } else { f32::from_bits(below | 1) }
    }
}

struct Odd<S>(PhantomData<S>);
impl<S: Pod + ToOdd> Conversion for Odd<S> {
    type From = S;
    type To = f32;
    #[inline(always)]
    fn at(a: S) -> f32 {
        a.to_odd()
    }
}

/// The loop that converts. Halves are f32 on either side, those of the target not yet narrowed.
pub(in crate::interpret) fn convert(from: DType, to: DType) -> One {
    match from {
        DType::I8 => by_odd::<i8>(to),
        DType::I16 => by_odd::<i16>(to),
        DType::I32 => by_odd::<i32>(to),
        DType::I64 => by_odd::<i64>(to),
        DType::U8 | DType::Bool => by_odd::<u8>(to),
        DType::U16 => by_odd::<u16>(to),
        DType::U32 => by_odd::<u32>(to),
        DType::U64 => by_odd::<u64>(to),
        DType::F64 => by_odd::<f64>(to),
        DType::F32 | DType::F16 | DType::BF16 => any::<f32>(to),
    }
}

trait Number: Pod + PartialEq + As<f32> + As<f64> + As<i8> + As<i16> + As<i32> + As<i64> + As<u8> + As<u16> + As<u32> + As<u64> {}
impl<T: Pod + PartialEq + As<f32> + As<f64> + As<i8> + As<i16> + As<i32> + As<i64> + As<u8> + As<u16> + As<u32> + As<u64>> Number for T {}

fn by_odd<S: Number + ToOdd>(to: DType) -> One {
    match to {
        DType::F16 | DType::BF16 => map::<Odd<S>>,
        DType::F32 | DType::F64 | DType::Bool => any::<S>(to),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => any::<S>(to),
    }
}

fn any<S: Number>(to: DType) -> One {
    match to {
        DType::I8 => map::<Cast<S, i8>>,
        DType::I16 => map::<Cast<S, i16>>,
        DType::I32 => map::<Cast<S, i32>>,
        DType::I64 => map::<Cast<S, i64>>,
        DType::U8 => map::<Cast<S, u8>>,
        DType::U16 => map::<Cast<S, u16>>,
        DType::U32 => map::<Cast<S, u32>>,
        DType::U64 => map::<Cast<S, u64>>,
        DType::F64 => map::<Cast<S, f64>>,
        DType::Bool => map::<NonZero<S>>,
        DType::F32 | DType::F16 | DType::BF16 => map::<Cast<S, f32>>,
    }
}
