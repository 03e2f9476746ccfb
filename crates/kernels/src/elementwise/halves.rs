//! Sixteen-bit floating-point blocks, computed on in f32: widened, worked on and narrowed in L1.
//!
//! So that the functions, which are long, are compiled for f32 alone; and they come as `dyn Fn`, so that this is compiled once for each type.

use crate::{float::Float, rows::with_scratch, simd::prefetch};

/// Elements widened at once: few enough for the processor to read some while it computes on others.
const BLOCK: usize = 256;

/// Elements ahead of which memory is fetched.
const AHEAD: usize = 1024;

/// What is done with `N` blocks in f32, for a block of results.
type Body<'a, Y, const N: usize> = &'a dyn Fn([&[f32]; N], &mut [Y]);

/// Widens `N` blocks and calls `body` with them, a block for results, and the start and number of their elements.
#[inline(always)]
fn widened<T: Float, const N: usize>(x: [&[T]; N], mut body: impl FnMut([&[f32]; N], &mut [f32], usize, usize)) {
    with_scratch((N + 1) * BLOCK, |scratch| {
        let (wide, result) = scratch.split_at_mut(N * BLOCK);
        let length = x[0].len();
        for start in (0..length).step_by(BLOCK) {
            let count = BLOCK.min(length - start);
            x.iter().for_each(|x| fetch(x.as_ptr().wrapping_add(start + AHEAD)));
            for (wide, x) in wide.chunks_exact_mut(BLOCK).zip(x) {
                T::widen_into(&x[start..start + count], &mut wide[..count]);
            }
            body(std::array::from_fn(|i| &wide[i * BLOCK..][..count]), &mut result[..count], start, count);
        }
    });
}

/// Fetches a block, which would otherwise be waited for after the arithmetic on those before it.
fn fetch<T>(block: *const T) {
    for at in (0..BLOCK).step_by(64 / size_of::<T>()) {
        prefetch(block.wrapping_add(at));
    }
}

/// `f` over blocks of halves, rounded once.
pub(crate) fn map<T: Float, const N: usize>(x: [&[T]; N], y: &mut [T], f: Body<'_, f32, N>) {
    widened(x, |x, result, start, count| {
        fetch(y.as_ptr().wrapping_add(start + AHEAD));
        f(x, result);
        T::narrow_into(result, &mut y[start..start + count]);
    });
}

/// `f` over blocks of halves, to another type.
pub(crate) fn map_to<T: Float, Y, const N: usize>(x: [&[T]; N], y: &mut [Y], f: Body<'_, Y, N>) {
    widened(x, |x, _, start, count| f(x, &mut y[start..start + count]));
}

/// `f` over blocks of another type, its f32 results rounded to halves.
pub(crate) fn map_from<X, T: Float>(x: &[X], y: &mut [T], f: &dyn Fn(&[X], &mut [f32])) {
    with_scratch(BLOCK, |result| {
        for (x, y) in x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
            f(x, &mut result[..x.len()]);
            T::narrow_into(&result[..x.len()], y);
        }
    });
}
