//! Loops that move lanes, and masks: a byte for each lane, 0 or 1.

use elinvar_core::DType;
use elinvar_math::simd;

use super::loops::{Three, elements, elements_mut};

simd! {
    fn blend_as<T: bytemuck::Pod>(mask: &[u8], new: &[u8], old: &mut [u8]) {
        for ((old, new), mask) in elements_mut::<T>(old).iter_mut().zip(elements::<T>(new)).zip(mask) {
            *old = if *mask != 0 { *new } else { *old };
        }
    }
}

simd! {
    fn select_as<T: bytemuck::Pod>(mask: &[u8], a: &[u8], b: &[u8], out: &mut [u8]) {
        let lanes = elements_mut::<T>(out).iter_mut().zip(mask);
        match (elements::<T>(a), elements::<T>(b)) {
            ([a], [b]) => lanes.for_each(|(out, mask)| *out = if *mask != 0 { *a } else { *b }),
            (a, b) => lanes.zip(a).zip(b).for_each(|(((out, mask), a), b)| *out = if *mask != 0 { *a } else { *b }),
        }
    }
}

macro_rules! by_size {
    ($size:expr, $function:ident($($argument:expr),*)) => {
        match $size {
            1 => $function::<u8>($($argument),*),
            2 => $function::<u16>($($argument),*),
            4 => $function::<u32>($($argument),*),
            _ => $function::<u64>($($argument),*),
        }
    };
}

/// Takes the new lanes where the mask is set.
pub(in crate::interpret) fn blend(size: usize, mask: &[u8], new: &[u8], old: &mut [u8]) {
    by_size!(size, blend_as(mask, new, old));
}

/// `a` where the mask is set, else `b`.
pub(in crate::interpret) fn select(size: usize) -> Three {
    match size {
        1 => select_as::<u8>,
        2 => select_as::<u16>,
        4 => select_as::<u32>,
        _ => select_as::<u64>,
    }
}

fn splat_as<T: bytemuck::Pod>(bits: u64, out: &mut [u8]) {
    let bytes = bits.to_le_bytes();
    let value = bytemuck::try_pod_read_unaligned::<T>(&bytes[..size_of::<T>()]);
    if let Ok(value) = value {
        elements_mut::<T>(out).fill(value);
    }
}

/// The low bytes of `bits` in every lane.
pub(in crate::interpret) fn splat(size: usize, bits: u64, out: &mut [u8]) {
    by_size!(size, splat_as(bits, out));
}

simd! {
    /// `a & b`.
    pub(in crate::interpret) fn and(a: &[u8], b: &[u8], out: &mut [u8]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a & b;
        }
    }
}

simd! {
    /// `a & !b`.
    pub(in crate::interpret) fn and_not(a: &[u8], b: &[u8], out: &mut [u8]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a & (b ^ 1);
        }
    }
}

simd! {
    /// `a |= b`.
    pub(in crate::interpret) fn or(a: &mut [u8], b: &[u8]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a |= b;
        }
    }
}

simd! {
    /// How many lanes are set.
    pub(in crate::interpret) fn count(mask: &[u8]) -> usize {
        mask.chunks(128).map(|chunk| usize::from(chunk.iter().fold(0u8, |sum, &lane| sum.wrapping_add(lane)))).sum()
    }
}

/// Whether every lane of a mask is the same.
pub(in crate::interpret) fn all_equal(mask: &[u8]) -> Option<bool> {
    match count(mask) {
        0 => Some(false),
        n if n == mask.len() => Some(true),
        _ => None,
    }
}

/// An element's number as memory counts it: negative ones are beyond every end.
trait Index: bytemuck::Pod {
    fn place(self) -> u64;
}

macro_rules! indices {
    ($($type:ident as $wide:ident;)*) => {$(
        impl Index for $type {
            #[inline(always)]
            fn place(self) -> u64 { self as $wide as u64 }
        }
    )*};
}
indices! {
    u32 as u64;
    i32 as i64;
    u64 as u64;
    i64 as i64;
}

macro_rules! by_index {
    ($dtype:expr, $function:ident<$element:ident>($($argument:expr),*)) => {
        match $dtype {
            DType::I32 => $function::<i32, $element>($($argument),*),
            DType::U64 => $function::<u64, $element>($($argument),*),
            DType::I64 => $function::<i64, $element>($($argument),*),
            _ => $function::<u32, $element>($($argument),*),
        }
    };
}

macro_rules! by_both {
    ($dtype:expr, $size:expr, $function:ident($($argument:expr),*)) => {
        match $size {
            1 => by_index!($dtype, $function<u8>($($argument),*)),
            2 => by_index!($dtype, $function<u16>($($argument),*)),
            4 => by_index!($dtype, $function<u32>($($argument),*)),
            _ => by_index!($dtype, $function<u64>($($argument),*)),
        }
    };
}

/// # Safety
/// As [`gather`].
unsafe fn gather_as<I: Index, E: bytemuck::Pod>(memory: *const u8, length: u64, index: &[u8], out: &mut [u8]) {
    for (out, index) in elements_mut::<E>(out).iter_mut().zip(elements::<I>(index)) {
        let place = index.place();
        // SAFETY: in bounds; volatile, because other threads of a program that races may write meanwhile.
        *out = if place < length { unsafe { memory.cast::<E>().add(place as usize).read_volatile() } } else { E::zeroed() };
    }
}

/// Loads for every lane; zero where the index is out of bounds.
///
/// # Safety
/// `memory` has `length` elements of `size` bytes, aligned and valid for reads.
pub(in crate::interpret) unsafe fn gather(index_type: DType, size: usize, memory: *const u8, length: u64, index: &[u8], out: &mut [u8]) {
    // SAFETY: by the caller.
    unsafe { by_both!(index_type, size, gather_as(memory, length, index, out)) }
}

/// # Safety
/// As [`scatter`].
unsafe fn scatter_as<I: Index, E: bytemuck::Pod>(memory: *mut u8, length: u64, index: &[u8], value: &[u8], mask: Option<&[u8]>) {
    for (lane, (value, index)) in elements::<E>(value).iter().zip(elements::<I>(index)).enumerate() {
        let place = index.place();
        if place < length && mask.is_none_or(|mask| mask[lane] != 0) {
            // SAFETY: in bounds; volatile, because other threads of a program that races may touch it meanwhile.
            unsafe { memory.cast::<E>().add(place as usize).write_volatile(*value) };
        }
    }
}

/// Stores for the lanes that are set, in ascending order; not where the index is out of bounds.
///
/// # Safety
/// `memory` has `length` elements of `size` bytes, aligned and valid for writes.
pub(in crate::interpret) unsafe fn scatter(
    index_type: DType,
    size: usize,
    (memory, length): (*mut u8, u64),
    index: &[u8],
    value: &[u8],
    mask: Option<&[u8]>,
) {
    // SAFETY: by the caller.
    unsafe { by_both!(index_type, size, scatter_as(memory, length, index, value, mask)) }
}
