//! The CPU kernel: one vectorised loop for each pair of types; 16-bit floats go through f32, block by block.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{CastParams, operands::AT};
use crate::{
    elementwise::{
        blocks::{Strided, map1},
        dispatch::{Truth, for_integers, for_storage, select},
        halves,
    },
    float::Float,
    signature::no_kernel,
    simd,
};

/// Conversion of `Self` to `T`.
trait To<T>: Copy {
    fn to(self) -> T;
}

macro_rules! conversions {
    ($($from:ty, $to:ty, $x:ident => $body:expr;)*) => {
        $(impl To<$to> for $from {
            #[inline(always)]
            fn to(self) -> $to {
                let $x = self;
                $body
            }
        })*
    };
}

conversions! {
    f16, f32, x => Float::to_f32(x);
    bf16, f32, x => Float::to_f32(x);
    f32, f16, x => Float::from_f32(x);
    f32, bf16, x => Float::from_f32(x);
    f32, Truth, x => Truth::new(x != 0.0);
    Truth, f32, x => if x.get() { 1.0 } else { 0.0 };
}

/// The nearest f32 of an integer, and one that may still be rounded to fewer bits as if it were exact.
trait Wide: To<f32> {
    fn to_odd(self) -> f32;
}

macro_rules! integer_conversions {
    ($($integer:ident),*) => {$(
        conversions! {
            f32, $integer, x => x as $integer;
            $integer, f32, x => x as f32;
            $integer, Truth, x => Truth::new(x != 0);
            Truth, $integer, x => <$integer>::from(x.get());
        }
        integer_conversions!(@from $integer: i8, i16, i32, i64, u8, u16, u32, u64);

        impl Wide for $integer {
            #[inline(always)]
            #[allow(clippy::unnecessary_cast, unused_comparisons)]
            fn to_odd(self) -> f32 {
                if size_of::<Self>() <= 2 {
                    return self as f32;
                }
                let odd = leading_bits(if self < 0 { (self as u64).wrapping_neg() } else { self as u64 });
                if self < 0 { -odd } else { odd }
            }
        }
    )*};
    (@from $from:ident: $($to:ident),*) => { conversions! { $($from, $to, x => x as $to;)* } };
}
integer_conversions!(i8, i16, i32, i64, u8, u16, u32, u64);

/// The 24 leading bits, the last one set if any is lost ("round to odd"): rounding again, to fewer bits, is then rounding once.
#[inline(always)]
fn leading_bits(magnitude: u64) -> f32 {
    let shift = 40u32.saturating_sub(magnitude.leading_zeros());
    let kept = magnitude >> shift;
    let lost = u64::from(kept << shift != magnitude);
    (kept | lost) as f32 * f32::from_bits((127 + shift) << 23)
}

/// The kernel of a pair of types; of integers only the pairs that [`super::canonical`] leaves.
pub(super) fn kernel(from: DType, to: DType) -> Result<HostKernel> {
    let kernel = match (from, to) {
        (DType::F16, DType::F32) => Some(run::<f16, f32> as HostKernel),
        (DType::F16, _) => from_half::<f16>(to),
        (DType::BF16, DType::F32) => Some(run::<bf16, f32> as HostKernel),
        (DType::BF16, _) => from_half::<bf16>(to),
        (DType::F32, _) => from_f32(to),
        (DType::Bool, DType::F32) => Some(run::<Truth, f32> as HostKernel),
        (DType::Bool, DType::F16) => Some(run_through::<Truth, f16> as HostKernel),
        (DType::Bool, DType::BF16) => Some(run_through::<Truth, bf16> as HostKernel),
        (DType::Bool, _) => Some(for_storage!(to, T => run::<Truth, T> as HostKernel)),
        (_, DType::Bool) => Some(for_storage!(from, S => run::<S, Truth> as HostKernel)),
        (_, DType::F32) => for_integers!(from, S => run::<S, f32> as HostKernel),
        (_, DType::F16) => for_integers!(from, S => run_rounding::<S, f16> as HostKernel),
        (_, DType::BF16) => for_integers!(from, S => run_rounding::<S, bf16> as HostKernel),
        (DType::U64, _) => select!(to, T => run::<u64, T> as HostKernel; U8 u8, U16 u16, U32 u32),
        (DType::U32, _) => select!(to, T => run::<u32, T> as HostKernel; U8 u8, U16 u16, U64 u64),
        (DType::U16, _) => select!(to, T => run::<u16, T> as HostKernel; U8 u8, U32 u32, U64 u64),
        (DType::U8, _) => select!(to, T => run::<u8, T> as HostKernel; U16 u16, U32 u32, U64 u64),
        (DType::I32, _) => select!(to, T => run::<i32, T> as HostKernel; U64 u64),
        (DType::I16, _) => select!(to, T => run::<i16, T> as HostKernel; U32 u32, U64 u64),
        (DType::I8, _) => select!(to, T => run::<i8, T> as HostKernel; U16 u16, U32 u32, U64 u64),
        _ => None,
    };
    kernel.ok_or_else(|| no_kernel(format_args!("{from} to {to}")))
}

fn from_f32(to: DType) -> Option<HostKernel> {
    select!(to, T => run::<f32, T> as HostKernel;
        F16 f16, BF16 bf16, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool Truth)
}

fn from_half<S: Float>(to: DType) -> Option<HostKernel> {
    select!(to, T => run_half::<S, T> as HostKernel;
        F16 f16, BF16 bf16, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool Truth)
}

fn run<S: Element + To<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    convert(arguments, &block::<S, T>)
}

fn run_half<S: Float, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()>
where
    f32: To<T>,
{
    convert::<S, T>(arguments, &|x, y| halves::map_to([x], y, &|[x], y| block::<f32, T>(x, y)))
}

/// To a half from what f32 holds exactly.
fn run_through<S: Element + To<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    convert::<S, T>(arguments, &|x, y| halves::map_from(x, y, &block::<S, f32>))
}

/// To a half from an integer that f32 might have to round.
fn run_rounding<S: Element + Wide, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    convert::<S, T>(arguments, &|x, y| halves::map_from(x, y, &odd_block::<S>))
}

fn convert<S: Element, T: Element>(arguments: &mut HostArguments<'_>, block: &(dyn Fn(&[S], &mut [T]) + Sync)) -> Result<()> {
    let CastParams { space, x } = arguments.params()?;
    map1(Strided::new(&space, &x, arguments.input::<S>(AT.x)?)?, arguments.output::<T>(AT.y)?, block);
    Ok(())
}

simd! {
    fn block<S: To<T>, T: Element>(x: &[S], y: &mut [T]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x.to();
        }
    }
}

simd! {
    fn odd_block<S: Wide>(x: &[S], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x.to_odd();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bf16(value: impl Wide) -> f32 {
        Float::to_f32(<bf16 as Float>::from_f32(value.to_odd()))
    }

    fn f16(value: impl Wide) -> f32 {
        Float::to_f32(<f16 as Float>::from_f32(value.to_odd()))
    }

    fn to<S: To<T>, T>(value: S) -> T {
        value.to()
    }

    #[test]
    fn wide_integers_round_once_to_halves() {
        // 2^24 + 2^16 + 1 lies just above the middle of two neighbours; f32 first would make it the middle, which rounds down.
        assert_eq!((bf16((1i64 << 24) + (1 << 16) + 1), bf16((1i32 << 24) + (1 << 16))), (16_908_288.0, 16_777_216.0));
        assert_eq!(bf16(-((1i64 << 40) + (1 << 32) + 1)), -(2f32.powi(40) + 2f32.powi(33)));
        assert_eq!((bf16(u64::MAX), bf16(i64::MIN), bf16(0i64).to_bits()), (2f32.powi(64), -(2f32.powi(63)), 0));
        assert_eq!((f16(65_519u64), f16(-2049i32), f16(2051u16)), (65_504.0, -2048.0, 2052.0));
        assert!(f16(65_520u32).is_infinite() && f16(i64::MIN).is_infinite());
    }

    #[test]
    fn floats_become_integers_towards_zero_and_saturate() {
        assert_eq!((to::<f32, i8>(-1.9), to::<f32, i8>(300.0), to::<f32, u8>(-3.0), to::<f32, i64>(f32::INFINITY)), (-1, 127, 0, i64::MAX));
        assert_eq!((to::<f32, i32>(f32::NAN), to::<f32, u64>(f32::NEG_INFINITY)), (0, 0));
    }

    #[test]
    fn truth_is_not_zero() {
        assert!(to::<f32, Truth>(f32::NAN).get() && to::<f32, Truth>(1e-45).get() && !to::<f32, Truth>(-0.0).get());
        assert!(to::<i64, Truth>(1 << 40).get());
        assert_eq!(to::<Truth, i64>(Truth::new(true)), 1);
    }
}
