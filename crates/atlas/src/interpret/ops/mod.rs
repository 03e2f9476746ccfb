//! Loops over lanes, one for each function and type. 16-bit floats are widened before and narrowed after.

mod convert;
mod fused;
mod lanes;
mod loops;

use bytemuck::Pod;
use elinvar_core::DType;
use elinvar_math::{
    functions::{Function1, Function2, Function3, Integer, Relation, RelationVisitor, Visitor1, Visitor2, Visitor3},
    simd,
};

pub(super) use convert::convert;
pub(super) use fused::{pair, times};
pub(super) use lanes::{all_equal, and, and_not, blend, gather, or, scatter, select, splat};
pub(super) use loops::{Gate, One, Three, Two, elements, elements_mut};

use loops::{float1, map1, map2, map3};

use crate::program::{Binary, Compare, Ternary, Unary};

simd! {
    fn compare_as<R: Relation, T: Ordered>(a: &[u8], b: &[u8], out: &mut [u8]) {
        let lanes = out.iter_mut().zip(elements::<T>(a));
        match elements::<T>(b) {
            [b] => lanes.for_each(|(out, a)| *out = u8::from(R::holds(a, b))),
            b => lanes.zip(b).for_each(|((out, a), b)| *out = u8::from(R::holds(a, b))),
        }
    }
}

/// What is compared.
trait Ordered: Pod + PartialOrd {}
impl<T: Pod + PartialOrd> Ordered for T {}

/// Makes the loop of a function.
struct Loop;

macro_rules! loops {
    ($($visitor:ident $function:ident $type:ident $map:ident $float:ident $(<$single:ident>)?;)*) => {$(
        impl $visitor for Loop {
            type Output = $type;

            fn float<F: $function<f32>>(self) -> $type {
                $float::<F$(, $single)?>
            }

            fn double<F: $function<f64>>(self) -> $type {
                $map::<F, f64>
            }

            fn integer<T: Integer, F: $function<T>>(self) -> $type {
                $map::<F, T>
            }

            fn truth<F: $function<u8>>(self) -> $type {
                $map::<F, u8>
            }
        }
    )*};
}
loops! {
    Visitor1 Function1 One map1 float1;
    Visitor2 Function2 Two map2 map2<f32>;
    Visitor3 Function3 Three map3 map3<f32>;
}

/// Makes the loop of a comparison of that type.
struct CompareLoop(DType);

impl RelationVisitor for CompareLoop {
    type Output = Two;

    fn visit<R: Relation>(self) -> Two {
        match self.0 {
            DType::F32 | DType::F16 | DType::BF16 => compare_as::<R, f32>,
            DType::F64 => compare_as::<R, f64>,
            DType::I8 => compare_as::<R, i8>,
            DType::I16 => compare_as::<R, i16>,
            DType::I32 => compare_as::<R, i32>,
            DType::I64 => compare_as::<R, i64>,
            DType::U8 | DType::Bool => compare_as::<R, u8>,
            DType::U16 => compare_as::<R, u16>,
            DType::U32 => compare_as::<R, u32>,
            DType::U64 => compare_as::<R, u64>,
        }
    }
}

/// The loop that moves elements of a size as they are.
pub(super) fn same(size: usize) -> One {
    let dtype = match size {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    };
    convert(dtype, dtype)
}

/// The loop that makes truth values, 0 or 1, of any bytes.
pub(super) fn truth() -> One {
    convert(DType::U8, DType::Bool)
}

/// The loop of a function, if it takes the type.
pub(super) fn unary(op: Unary, dtype: DType) -> Option<One> {
    op.visit(dtype, Loop)
}

/// The loop of a function, if it takes the type.
pub(super) fn binary(op: Binary, dtype: DType) -> Option<Two> {
    op.visit(dtype, Loop)
}

/// The loop of a function, if it takes the type.
pub(super) fn ternary(op: Ternary, dtype: DType) -> Option<Three> {
    op.visit(dtype, Loop)
}

/// The loop of a comparison.
pub(super) fn compare(op: Compare, dtype: DType) -> Two {
    op.visit(CompareLoop(dtype))
}
