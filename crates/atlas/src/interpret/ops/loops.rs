//! Loops over the lanes of one, two and three operands.

use std::marker::PhantomData;

use bytemuck::Pod;
use elinvar_math::{
    functions::{Function1, Function2, Function3},
    packet::{Packed, Packet, in_packets},
    simd,
};

/// A loop over the lanes of one operand: bytes of aligned elements.
pub(in crate::interpret) type One = fn(&[u8], &mut [u8]);
/// Of two; the second may be one element, for all lanes.
pub(in crate::interpret) type Two = fn(&[u8], &[u8], &mut [u8]);
/// Of three; the second and the third may be one element each, for all lanes.
pub(in crate::interpret) type Three = fn(&[u8], &[u8], &[u8], &mut [u8]);

/// Of three as [`Three`], and numbers that the results are kept between.
pub(in crate::interpret) type Gate = fn(&[u8], &[u8], &[u8], [f32; 2], &mut [u8]);

/// Bytes as elements; none if the bytes are not aligned for them.
#[inline(always)]
pub(in crate::interpret) fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or(&[])
}

/// The same for writing.
#[inline(always)]
pub(in crate::interpret) fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or(&mut [])
}

simd! {
    pub(super) fn map1<F: Function1<T>, T: Pod>(a: &[u8], out: &mut [u8]) {
        for (out, a) in elements_mut::<T>(out).iter_mut().zip(elements::<T>(a)) {
            *out = F::at(*a);
        }
    }
}

/// A function of f32.
struct Alone<F>(PhantomData<F>);

impl<F: Function1<f32>> Packed<1> for Alone<F> {
    #[inline(always)]
    fn at<P: Packet>(&self, [a]: [P; 1]) -> Option<P> {
        F::of_packet(a)
    }
}

simd! {
    pub(super) fn float1[P]<F: Function1<f32>>(a: &[u8], out: &mut [u8]) {
        let (a, out) = (elements::<f32>(a), elements_mut::<f32>(out));
        let done = in_packets::<P, f32, _, 1>([a], out, &Alone::<F>(PhantomData));
        for (out, a) in out[done..].iter_mut().zip(&a[done..]) {
            *out = F::at(*a);
        }
    }
}

simd! {
    pub(super) fn map2<F: Function2<T>, T: Pod>(a: &[u8], b: &[u8], out: &mut [u8]) {
        let lanes = elements_mut::<T>(out).iter_mut().zip(elements::<T>(a));
        match elements::<T>(b) {
            [b] => lanes.for_each(|(out, a)| *out = F::at(*a, *b)),
            b => lanes.zip(b).for_each(|((out, a), b)| *out = F::at(*a, *b)),
        }
    }
}

simd! {
    pub(super) fn map3<F: Function3<T>, T: Pod>(a: &[u8], b: &[u8], c: &[u8], out: &mut [u8]) {
        let lanes = elements_mut::<T>(out).iter_mut().zip(elements::<T>(a));
        match (elements::<T>(b), elements::<T>(c)) {
            ([b], [c]) => lanes.for_each(|(out, a)| *out = F::at(*a, *b, *c)),
            (b, c) => lanes.zip(b).zip(c).for_each(|(((out, a), b), c)| *out = F::at(*a, *b, *c)),
        }
    }
}
