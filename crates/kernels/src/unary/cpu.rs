//! The CPU kernels: one vectorised loop for each function and type; 16-bit floats are widened block by block. Long functions take packets.

use std::marker::PhantomData;

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{UnaryParams, operands::AT};
use crate::{
    elementwise::{
        blocks::{Strided, map1},
        halves,
    },
    float::{Float, as_f32, as_f32_mut},
    functions::{Function1, Function2, Integer, Visitor1, Visitor2},
    math::{
        Real,
        packet::{Packed, Packet, in_packets},
    },
    simd,
};

/// A function of an element and of a number that is the same for all.
trait WithScalar<T> {
    fn at(x: T, scalar: f32) -> T;

    /// [`Function1::of_packet`].
    #[inline(always)]
    fn of_packet<R: Real>(_x: R) -> Option<R> {
        None
    }
}

struct Alone<F>(F);

impl<T, F: Function1<T>> WithScalar<T> for Alone<F> {
    #[inline(always)]
    fn at(x: T, _scalar: f32) -> T {
        F::at(x)
    }

    #[inline(always)]
    fn of_packet<R: Real>(x: R) -> Option<R> {
        F::of_packet(x)
    }
}

struct Scaled<F>(F);

impl<F: Function2<f32>> WithScalar<f32> for Scaled<F> {
    #[inline(always)]
    fn at(x: f32, scalar: f32) -> f32 {
        F::at(x, scalar)
    }
}

/// Makes the kernel for a data type that the function takes.
pub(super) struct Kernels(pub(super) DType);

impl Visitor1 for Kernels {
    type Output = Option<HostKernel>;

    fn float<F: Function1<f32>>(self) -> Self::Output {
        float::<Alone<F>>(self.0)
    }

    fn double<F: Function1<f64>>(self) -> Self::Output {
        None
    }

    fn integer<T: Integer, F: Function1<T>>(self) -> Self::Output {
        Some(run::<Alone<F>, T>)
    }

    fn truth<F: Function1<u8>>(self) -> Self::Output {
        None
    }
}

impl Visitor2 for Kernels {
    type Output = Option<HostKernel>;

    fn float<F: Function2<f32>>(self) -> Self::Output {
        float::<Scaled<F>>(self.0)
    }

    fn double<F: Function2<f64>>(self) -> Self::Output {
        None
    }

    fn integer<T: Integer, F: Function2<T>>(self) -> Self::Output {
        None
    }

    fn truth<F: Function2<u8>>(self) -> Self::Output {
        None
    }
}

fn float<F: WithScalar<f32>>(dtype: DType) -> Option<HostKernel> {
    match dtype {
        DType::F32 => Some(run_float::<F, f32>),
        DType::F16 => Some(run_float::<F, f16>),
        DType::BF16 => Some(run_float::<F, bf16>),
        DType::F64 | DType::Bool => None,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => None,
    }
}

fn run<F: WithScalar<T>, T: Element>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let UnaryParams { space, x, scalar, .. } = arguments.params()?;
    let x = Strided::new(&space, &x, arguments.input::<T>(AT.x)?)?;
    map1(x, arguments.output::<T>(AT.y)?, &|x, y| block::<F, T>(x, y, scalar));
    Ok(())
}

fn run_float<F: WithScalar<f32>, T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let UnaryParams { space, x, scalar, .. } = arguments.params()?;
    let x = Strided::new(&space, &x, arguments.input::<T>(AT.x)?)?;
    map1(x, arguments.output::<T>(AT.y)?, &|x, y| {
        let done = packets::<F, T>(x, y);
        let (x, y) = (&x[done..], &mut y[done..]);
        if let (Some(x), Some(y)) = (as_f32(x), as_f32_mut(y)) {
            return block::<F, f32>(x, y, scalar);
        }
        halves::map([x], y, &|[x], y| block::<F, f32>(x, y, scalar));
    });
    Ok(())
}

simd! {
    fn block<F: WithScalar<T>, T: Element>(x: &[T], y: &mut [T], scalar: f32) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = F::at(*x, scalar);
        }
    }
}

/// A function's values, rounded.
struct Rounded<F, T>(PhantomData<(F, T)>);

impl<F: WithScalar<f32>, T: Float> Packed<1> for Rounded<F, T> {
    #[inline(always)]
    fn at<P: Packet>(&self, [x]: [P; 1]) -> Option<P> {
        F::of_packet(x).map(P::rounded::<T>)
    }
}

simd! {
    /// The first elements, as many as are whole packets: how many.
    fn packets[P]<F: WithScalar<f32>, T: Float>(x: &[T], y: &mut [T]) -> usize {
        in_packets::<P, T, 1>([x], y, &Rounded::<F, T>(PhantomData))
    }
}
