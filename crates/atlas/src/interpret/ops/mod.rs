//! Loops over lanes, one for each operation and type. Halves are widened before and narrowed after.

/// Operations on a type, and which loop each is.
macro_rules! operations {
    ($type:ident: $trait:ident $op:ident $result:ident $function:ident $map:ident { $($name:ident |$($x:ident),+| $body:expr;)* }) => {
        $(
            struct $name;
            impl $trait for $name {
                type A = $type;
                type R = $type;
                #[inline(always)]
                fn at($($x: $type),+) -> $type { $body }
            }
        )*

        pub(in crate::interpret::ops) fn $function(op: $op) -> Option<$result> {
            match op {
                $($op::$name => Some($map::<$name>),)*
                _ => None,
            }
        }
    };
}

/// The operations on a floating-point type.
macro_rules! float_operations {
    ($type:ident: unary { $($unary:tt)* } binary { $($binary:tt)* }) => {
        operations! { $type: Op1 Unary One unary map1 {
            Neg |a| -a;
            Abs |a| a.abs();
            Floor |a| a.floor();
            Ceil |a| a.ceil();
            Trunc |a| a.trunc();
            Round |a| a.round_ties_even();
            Sqrt |a| a.sqrt();
            $($unary)*
        } }

        operations! { $type: Op2 Binary Two binary map2 {
            Add |a, b| a + b;
            Sub |a, b| a - b;
            Mul |a, b| a * b;
            Div |a, b| a / b;
            Rem |a, b| (-(a / b).trunc()).mul_add(b, a);
            Min |a, b| if a.is_nan() | (a < b) { a } else { b };
            Max |a, b| if a.is_nan() | (a > b) { a } else { b };
            $($binary)*
        } }

        /// The product exact.
        struct Fma;
        impl Op3 for Fma {
            type A = $type;
            #[inline(always)]
            fn at(a: $type, b: $type, c: $type) -> $type {
                a.mul_add(b, c)
            }
        }

        /// The product rounded.
        struct Mad;
        impl Op3 for Mad {
            type A = $type;
            #[inline(always)]
            fn at(a: $type, b: $type, c: $type) -> $type {
                a * b + c
            }
        }

        pub(super) fn ternary(op: Ternary) -> Three {
            match op {
                Ternary::Fma => map3::<Fma>,
                Ternary::Mad => map3::<Mad>,
            }
        }
    };
}

mod convert;
mod double;
mod float;
mod integer;
mod lanes;

use elinvar_core::DType;
use elinvar_math::simd;

pub(super) use convert::convert;
pub(super) use float::{fused, times};
pub(super) use lanes::{all_equal, and, and_not, blend, gather, or, scatter, select, splat};

use super::lower::Kernel;
use crate::program::{Binary, Compare, Ternary, Unary};

/// A loop over the lanes of one operand: bytes of aligned elements.
pub(super) type One = fn(&[u8], &mut [u8]);
/// Of two; the second may be one element, for all lanes.
pub(super) type Two = fn(&[u8], &[u8], &mut [u8]);
/// Of three; the second and the third may be one element each, for all lanes.
pub(super) type Three = fn(&[u8], &[u8], &[u8], &mut [u8]);

/// Of three as [`Three`], and numbers that the results are kept between.
pub(super) type Gate = fn(&[u8], &[u8], &[u8], [f32; 2], &mut [u8]);

/// Bytes as elements; none if the bytes are not aligned for them.
#[inline(always)]
pub(super) fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// The same for writing.
#[inline(always)]
pub(super) fn elements_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or(&mut [])
}

trait Op1 {
    type A: bytemuck::Pod;
    type R: bytemuck::Pod;
    fn at(a: Self::A) -> Self::R;
}

trait Op2 {
    type A: bytemuck::Pod;
    type R: bytemuck::Pod;
    fn at(a: Self::A, b: Self::A) -> Self::R;
}

trait Op3 {
    type A: bytemuck::Pod;
    fn at(a: Self::A, b: Self::A, c: Self::A) -> Self::A;
}

simd! {
    fn map1<O: Op1>(a: &[u8], out: &mut [u8]) {
        for (out, a) in elements_mut::<O::R>(out).iter_mut().zip(elements::<O::A>(a)) {
            *out = O::at(*a);
        }
    }
}

simd! {
    fn map2<O: Op2>(a: &[u8], b: &[u8], out: &mut [u8]) {
        let lanes = elements_mut::<O::R>(out).iter_mut().zip(elements::<O::A>(a));
        match elements::<O::A>(b) {
            [b] => lanes.for_each(|(out, a)| *out = O::at(*a, *b)),
            b => lanes.zip(b).for_each(|((out, a), b)| *out = O::at(*a, *b)),
        }
    }
}

simd! {
    fn map3<O: Op3>(a: &[u8], b: &[u8], c: &[u8], out: &mut [u8]) {
        let lanes = elements_mut::<O::A>(out).iter_mut().zip(elements::<O::A>(a));
        match (elements::<O::A>(b), elements::<O::A>(c)) {
            ([b], [c]) => lanes.for_each(|(out, a)| *out = O::at(*a, *b, *c)),
            (b, c) => lanes.zip(b).zip(c).for_each(|(((out, a), b), c)| *out = O::at(*a, *b, *c)),
        }
    }
}

macro_rules! for_integers {
    ($dtype:expr, $function:ident($op:expr), $otherwise:expr) => {
        match $dtype {
            DType::I8 => integer::$function::<i8>($op),
            DType::I16 => integer::$function::<i16>($op),
            DType::I32 => integer::$function::<i32>($op),
            DType::I64 => integer::$function::<i64>($op),
            DType::U8 => integer::$function::<u8>($op),
            DType::U16 => integer::$function::<u16>($op),
            DType::U32 => integer::$function::<u32>($op),
            DType::U64 => integer::$function::<u64>($op),
            _ => $otherwise,
        }
    };
}

/// The loop that moves elements of a size as they are.
pub(super) fn same(size: usize) -> Kernel {
    let dtype = match size {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    };
    Kernel::One(convert(dtype, dtype))
}

/// The loop that makes truth values, 0 or 1, of any bytes.
pub(super) fn truth() -> Kernel {
    Kernel::One(convert(DType::U8, DType::Bool))
}

/// The loop of an operation that takes the type.
pub(super) fn unary(op: Unary, dtype: DType) -> Option<One> {
    match dtype {
        DType::Bool => (op == Unary::Not).then_some(map1::<integer::NotBool> as One),
        DType::F64 => double::unary(op),
        DType::BF16 => float::bfloat::unary(op).or_else(|| float::unary(op)),
        _ => for_integers!(dtype, unary(op), float::unary(op)),
    }
}

/// The loop of an operation that takes the type.
pub(super) fn binary(op: Binary, dtype: DType) -> Option<Two> {
    match dtype {
        DType::Bool => matches!(op, Binary::And | Binary::Or | Binary::Xor).then(|| integer::binary::<u8>(op))?,
        DType::F64 => double::binary(op),
        _ => for_integers!(dtype, binary(op), float::binary(op)),
    }
}

/// The loop of an operation that takes the type.
pub(super) fn ternary(op: Ternary, dtype: DType) -> Option<Three> {
    match dtype {
        DType::F64 => Some(double::ternary(op)),
        _ => for_integers!(dtype, ternary(op), Some(float::ternary(op))),
    }
}

/// The loop of a comparison.
pub(super) fn compare(op: Compare, dtype: DType) -> Two {
    match dtype {
        DType::Bool => integer::compare::<u8>(op),
        DType::F64 => integer::compare::<f64>(op),
        _ => for_integers!(dtype, compare(op), float::compare(op)),
    }
}
