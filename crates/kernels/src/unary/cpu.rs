//! The CPU kernels: one vectorised loop for each function and type; 16-bit floats are widened block by block. Long functions take packets.

use std::marker::PhantomData;

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{UnaryParams, operands::AT};
use crate::{
    elementwise::{
        blocks::{Strided, map1, map1_light},
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
    let y = arguments.output::<T>(AT.y)?;
    match table::<F, T>(y.len(), scalar) {
        Some(table) => map1_light(x, y, &|x, y| table.look_up(x, y)),
        None => map1(x, y, &|x, y| values::<F, T>(x, y, scalar)),
    }
    Ok(())
}

fn values<F: WithScalar<f32>, T: Float>(x: &[T], y: &mut [T], scalar: f32) {
    let done = packets::<F, T>(x, y);
    let (x, y) = (&x[done..], &mut y[done..]);
    if let (Some(x), Some(y)) = (as_f32(x), as_f32_mut(y)) {
        return block::<F, f32>(x, y, scalar);
    }
    halves::map([x], y, &|[x], y| block::<F, f32>(x, y, scalar));
}

/// A function's values for all elements of 16 bits, by their bits.
struct Table(Box<[u16; ENTRIES]>);

const ENTRIES: usize = 1 << 16;

/// Elements for each entry from which it pays to make a table.
const EACH: usize = 16;

/// The table of a long function where many values are wanted and a processor looks them up in less time than it computes them: one without AVX-512.
fn table<F: WithScalar<f32>, T: Float>(count: usize, scalar: f32) -> Option<Table> {
    let pays = size_of::<T>() == size_of::<u16>() && is_long::<F>() && count >= EACH * ENTRIES && simd::level() < simd::Level::Avx512;
    pays.then(|| Table::new(&|x, y| values::<F, T>(bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y), scalar)))
}

fn is_long<F: WithScalar<f32>>() -> bool {
    F::of_packet(0.0f32).is_some()
}

impl Table {
    fn new(values: &dyn Fn(&[u16], &mut [u16])) -> Self {
        let (elements, mut entries) = (Box::new(std::array::from_fn::<u16, ENTRIES, _>(|i| i as u16)), Box::new([0; ENTRIES]));
        values(&*elements, &mut *entries);
        Self(entries)
    }

    fn look_up<T: Element>(&self, x: &[T], y: &mut [T]) {
        for (y, x) in bytemuck::cast_slice_mut::<T, u16>(y).iter_mut().zip(bytemuck::cast_slice::<T, u16>(x)) {
            *y = self.0[usize::from(*x)];
        }
    }
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
        in_packets::<P, T, _, 1>([x], y, &Rounded::<F, T>(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math;

    struct Silu;

    impl Function1<f32> for Silu {
        fn at(a: f32) -> f32 {
            math::silu(a)
        }

        fn of_packet<R: Real>(a: R) -> Option<R> {
            Some(math::silu(a))
        }
    }

    /// Of more elements than a task has, in no order.
    fn looked_up<T: Float>() {
        let x: Vec<u16> = (0..3 * ENTRIES as u32 + 5).map(|i| i.wrapping_mul(40_503) as u16).collect();
        let x: &[T] = bytemuck::cast_slice(&x);
        let (mut computed, mut found) = (x.to_vec(), x.to_vec());
        values::<Alone<Silu>, T>(x, &mut computed, 0.0);
        let table = Table::new(&|x, y| values::<Alone<Silu>, T>(bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y), 0.0));
        table.look_up(x, &mut found);
        assert_eq!(bytemuck::cast_slice::<T, u16>(&found), bytemuck::cast_slice::<T, u16>(&computed));
    }

    #[test]
    fn what_is_looked_up_has_the_bits_of_what_is_computed() {
        looked_up::<f16>();
        looked_up::<bf16>();
    }

    #[test]
    fn only_long_functions_of_many_elements_are_looked_up() {
        assert!(is_long::<Alone<Silu>>());
        assert!(table::<Alone<Silu>, bf16>(EACH * ENTRIES - 1, 0.0).is_none() && table::<Alone<Silu>, f32>(EACH * ENTRIES, 0.0).is_none());
        assert_eq!(table::<Alone<Silu>, bf16>(EACH * ENTRIES, 0.0).is_some(), simd::level() < simd::Level::Avx512);
    }
}
