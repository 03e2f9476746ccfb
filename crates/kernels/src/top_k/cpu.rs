//! The CPU kernel: rows in parallel. An element is looked at again only if it beats the worst of `k` seen before; whole blocks that cannot are
//! passed over in vectors.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};

use super::{Params, operands::AT};
use crate::{
    elementwise::dispatch::for_numbers,
    float::Float,
    parallel::{Shared, for_each},
    signature::no_kernel,
    simd,
};

/// An element with a key that sorts as it does: larger is larger.
trait Key: Element {
    fn key(self) -> u64;
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Key for $type {
            #[inline(always)]
            fn key(self) -> u64 {
                // Adding +0 makes zeros one; a NaN comes after infinity.
                let value = Float::to_f32(self) + 0.0;
                let bits = value.to_bits();
                let key = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
                u64::from(if value.is_nan() { u32::MAX } else { key })
            }
        }
    )*};
}
floats!(f32, half::f16, half::bf16);

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Key for $type {
            #[inline(always)]
            fn key(self) -> u64 {
                // Signed numbers are moved up so that the least is zero.
                (self as u64) ^ if <$type>::MIN == 0 { 0 } else { 1 << 63 }
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// What is looked for, best first in descending order: the key (its complement for the smallest), then the lower index.
type Candidate = (u64, u32);

#[inline(always)]
fn candidate<T: Key>(x: T, index: usize, flip: u64) -> Candidate {
    (x.key() ^ flip, !(index as u32))
}

pub(super) fn kernel(dtype: DType) -> Result<HostKernel> {
    for_numbers!(dtype, T => run::<T> as HostKernel).ok_or_else(|| no_kernel(dtype))
}

fn run<T: Key>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (x, values, indices) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.values)?, arguments.output::<i64>(AT.indices)?);
    let (length, inner, k) = (params.rows.length as usize, params.rows.inner as usize, params.k as usize);
    if values.is_empty() {
        return Ok(());
    }
    let (values, indices) = (Shared::new(values), Shared::new(indices));
    let work = |row: usize| {
        let (o, i) = (row / inner, row % inner);
        let start = o * length * inner + i;
        let gathered: Vec<T>;
        let row = if inner == 1 {
            &x[start..start + length]
        } else {
            gathered = x[start..].iter().step_by(inner).take(length).copied().collect();
            &gathered
        };
        let mut found = select(row, k, if params.largest == 0 { u64::MAX } else { 0 });
        if params.sorted == 0 {
            found.sort_unstable_by_key(|&(_, index)| !index);
        }
        for (place, (_, index)) in found.into_iter().enumerate() {
            let (at, index) = ((o * k + place) * inner + i, !index);
            // SAFETY: an element of this row's outputs, which belong to this task.
            unsafe {
                values.write(at, row[index as usize]);
                indices.write(at, index.into());
            }
        }
    };
    for_each(params.rows.count(), length, work);
    Ok(())
}

simd! {
    /// The best `k` of a row, best first.
    fn select<T: Key>(row: &[T], k: usize, flip: u64) -> Vec<Candidate> {
        const BLOCK: usize = 128;
        let capacity = 2 * k + 2 * BLOCK;
        let mut found: Vec<Candidate> = Vec::with_capacity(capacity.min(row.len()));
        let mut worst = 0;
        let mut full = false;
        for (block, part) in row.chunks(BLOCK).enumerate() {
            // A later element with the worst key loses to it by its index.
            if full && !part.iter().fold(false, |any, x| any | (x.key() ^ flip > worst)) {
                continue;
            }
            let candidates = part.iter().enumerate().map(|(i, &x)| candidate(x, block * BLOCK + i, flip));
            found.extend(candidates.filter(|c| !full || c.0 > worst));
            if found.len() + BLOCK > capacity {
                keep_best(&mut found, k);
                (worst, full) = (found[k - 1].0, true);
            }
        }
        keep_best(&mut found, k);
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }
}

/// Drops all but the best `k`, of which the last becomes the worst.
fn keep_best(found: &mut Vec<Candidate>, k: usize) {
    if found.len() > k {
        found.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        found.truncate(k);
    }
}
