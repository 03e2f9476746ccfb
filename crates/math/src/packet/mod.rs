//! Several vectors at once, for long functions. Such a function is a chain of operations, each of which waits for the one before, and a processor looks
//! ahead no further than a vector or two of it; of a packet each operation is done for all vectors before the next one.

#[cfg(target_arch = "x86_64")]
mod x86;

use super::{Real, float::Float, simd::prefetch};

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

/// Numbers that are read, computed with and written together. Baseline code takes them one by one.
pub trait Packet: Real {
    /// How many there are.
    const NUMBERS: usize;

    /// Reads neighbours, in an order of the type `S`.
    ///
    /// # Safety
    /// They are there.
    unsafe fn load<S: Float>(from: *const S) -> Self;

    /// Writes neighbours that `S` holds, in the order in which they were read.
    ///
    /// # Safety
    /// Their places are there.
    unsafe fn store<S: Float>(self, to: *mut S);

    /// Rounded to what `S` holds. Of a NaN the low half is zero, as of every result of arithmetic on numbers of 16 bits, or `S` is not bf16.
    fn rounded<S: Float>(self) -> Self;
}

impl Packet for f32 {
    const NUMBERS: usize = 1;

    #[inline(always)]
    unsafe fn load<S: Float>(from: *const S) -> Self {
        // SAFETY: by the caller.
        unsafe { from.read() }.to_f32()
    }

    #[inline(always)]
    unsafe fn store<S: Float>(self, to: *mut S) {
        // SAFETY: by the caller.
        unsafe { to.write(S::from_f32(self)) };
    }

    #[inline(always)]
    fn rounded<S: Float>(self) -> Self {
        S::from_f32(self).to_f32()
    }
}

/// What is computed of packets of `N` operands, each result one that the elements' type holds.
pub trait Packed<const N: usize> {
    /// The result, or what [`finish`](Self::finish) makes it of. None, for whatever packet, if it is better computed element by element.
    fn at<P: Packet>(&self, x: [P; N]) -> Option<P>;

    /// Whether several packets have their [`at`](Self::at) before any has its [`finish`](Self::finish). A long function's operations, each of which
    /// waits for the one before, fill a processor's queues; of shorter ones it computes several packets at the same time. Where memory is the bound,
    /// one packet after the other is faster.
    const STAGED: bool = false;

    /// The end of the function.
    #[inline(always)]
    fn finish<P: Packet>(&self, begun: P, _x: [P; N]) -> P {
        begun
    }
}

/// Packets that a staged function is computed of together.
const TOGETHER: usize = 4;

/// Elements ahead of which memory is fetched.
const AHEAD: usize = 1024;

/// Computes as many elements of `y` as are whole packets: how many. Baseline code has none.
#[inline(always)]
pub fn in_packets<P: Packet, S: Float, F: Packed<N>, const N: usize>(x: [&[S]; N], y: &mut [S], function: &F) -> usize {
    if P::NUMBERS == 1 {
        return 0;
    }
    let count = x.iter().fold(y.len(), |count, x| count.min(x.len())) / P::NUMBERS * P::NUMBERS;
    let mut begun = [P::of(0.0); TOGETHER];
    let step = if F::STAGED { TOGETHER * P::NUMBERS } else { P::NUMBERS };
    for start in (0..count).step_by(step) {
        let places = (start..count.min(start + step)).step_by(P::NUMBERS);
        for (begun, at) in begun.iter_mut().zip(places.clone()) {
            for x in x {
                for line in (0..P::NUMBERS).step_by(64 / size_of::<S>()) {
                    prefetch(x.as_ptr().wrapping_add(at + line + AHEAD));
                }
            }
            // SAFETY: so many elements are left.
            let operands = unsafe { loaded(&x, at) };
            let Some(value) = function.at(operands) else { return 0 };
            if F::STAGED {
                *begun = value;
            } else {
                // SAFETY: as above.
                unsafe { function.finish(value, operands).store(y.as_mut_ptr().add(at)) };
            }
        }
        if F::STAGED {
            for (begun, at) in begun.iter().zip(places) {
                // SAFETY: as above.
                unsafe { function.finish(*begun, loaded(&x, at)).store(y.as_mut_ptr().add(at)) };
            }
        }
    }
    count
}

/// Packets of the operands from an element on.
///
/// # Safety
/// They have as many elements.
#[inline(always)]
unsafe fn loaded<P: Packet, S: Float, const N: usize>(x: &[&[S]; N], at: usize) -> [P; N] {
    let mut operands = [P::of(0.0); N];
    for (operand, x) in operands.iter_mut().zip(x) {
        // SAFETY: by the caller.
        *operand = unsafe { P::load(x.as_ptr().add(at)) };
    }
    operands
}
