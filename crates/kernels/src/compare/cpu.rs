//! The CPU twin: one vectorised loop for each relation and type; halves are widened block by block.

use elinvar_core::{DType, Element, Error, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::Relation;
use crate::{
    binary::BinaryParams,
    elementwise::{
        blocks::{Strided, map2},
        dispatch::{Truth, for_integers, for_storage},
        halves,
    },
    float::Float,
    simd,
};

trait Holds<T> {
    fn holds(a: &T, b: &T) -> bool;
}

macro_rules! relations {
    ($($relation:ident $operator:tt),*) => {$(
        struct $relation;
        impl<T: Element> Holds<T> for $relation {
            #[inline(always)]
            fn holds(a: &T, b: &T) -> bool {
                a $operator b
            }
        }
    )*};
}
relations!(Equal ==, NotEqual !=, Less <, LessOrEqual <=);

/// The kernel of a relation of a type that [`Relation::dtype`] leaves.
pub(super) fn twin(relation: Relation, dtype: DType) -> Result<HostKernel> {
    let kernel = match (relation, dtype.is_float()) {
        (Relation::Equal, true) => float::<Equal>(dtype),
        (Relation::NotEqual, true) => float::<NotEqual>(dtype),
        (Relation::Less, true) => float::<Less>(dtype),
        (Relation::LessOrEqual, true) => float::<LessOrEqual>(dtype),
        (Relation::Equal, false) => Some(for_storage!(dtype, T => run::<Equal, T> as HostKernel)),
        (Relation::NotEqual, false) => Some(for_storage!(dtype, T => run::<NotEqual, T> as HostKernel)),
        (Relation::Less, false) => for_integers!(dtype, T => run::<Less, T> as HostKernel),
        (Relation::LessOrEqual, false) => for_integers!(dtype, T => run::<LessOrEqual, T> as HostKernel),
    };
    kernel.ok_or_else(|| Error::unsupported(format!("comparison of {dtype}")))
}

fn float<R: Holds<f32>>(dtype: DType) -> Option<HostKernel> {
    match dtype {
        DType::F32 => Some(run::<R, f32>),
        DType::F16 => Some(run_halves::<R, f16>),
        DType::BF16 => Some(run_halves::<R, bf16>),
        _ => None,
    }
}

fn run<R: Holds<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    compare(arguments, block::<R, T>)
}

fn run_halves<R: Holds<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    compare::<T>(arguments, |a, b, y| halves::map_to([a, b], y, |[a, b], y| block::<R, f32>(a, b, y)))
}

fn compare<T: Element>(arguments: &mut HostArguments<'_>, block: fn(&[T], &[T], &mut [Truth])) -> Result<()> {
    let BinaryParams { space, a, b } = arguments.params()?;
    let a = Strided::new(&space, &a, arguments.input::<T>(0)?)?;
    let b = Strided::new(&space, &b, arguments.input::<T>(1)?)?;
    map2(a, b, arguments.output::<Truth>(2)?, block);
    Ok(())
}

simd! {
    fn block<R: Holds<T>, T: Element>(a: &[T], b: &[T], y: &mut [Truth]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = Truth::new(R::holds(a, b));
        }
    }
}
