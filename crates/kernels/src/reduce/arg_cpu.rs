//! The CPU kernel of the arg reductions. A row is folded to its best element, then searched for it: two looks, both in vectors. Columns keep
//! their best element and its index line by line.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use super::{
    Geometry,
    arg::{Params, operands::AT},
    cpu::Units,
};
use crate::{
    elementwise::dispatch::for_numbers,
    float::Float,
    order,
    parallel::{Shared, for_each},
    signature::no_kernel,
    simd,
};

/// What is best.
trait Side: 'static {
    const LARGEST: bool;
}

struct Largest;
struct Smallest;

impl Side for Largest {
    const LARGEST: bool = true;
}

impl Side for Smallest {
    const LARGEST: bool = false;
}

/// An element that can be the best of a row.
trait Candidate: Element {
    /// The best of a row that has elements.
    fn best<S: Side>(row: &[Self]) -> Self;

    /// Strictly better than `other`: a tie is none.
    fn beats<S: Side>(self, other: Self) -> bool;

    /// As good as `other`.
    fn ties(self, other: Self) -> bool;
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Candidate for $type {
            #[inline(always)]
            fn best<S: Side>(row: &[Self]) -> Self {
                let value = if S::LARGEST {
                    order::fold(row, f32::NEG_INFINITY, |a, x: Self| order::max(a, Float::to_f32(x)), order::max)
                } else {
                    order::fold(row, f32::INFINITY, |a, x: Self| order::min(a, Float::to_f32(x)), order::min)
                };
                Float::from_f32(value)
            }

            #[inline(always)]
            fn beats<S: Side>(self, other: Self) -> bool {
                let (a, b) = (Float::to_f32(self), Float::to_f32(other));
                (if S::LARGEST { a > b } else { a < b }) || a.is_nan() && !b.is_nan()
            }

            #[inline(always)]
            fn ties(self, other: Self) -> bool {
                let (a, b) = (Float::to_f32(self), Float::to_f32(other));
                a == b || a.is_nan() && b.is_nan()
            }
        }
    )*};
}
floats!(f32, f16, bf16);

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Candidate for $type {
            #[inline(always)]
            fn best<S: Side>(row: &[Self]) -> Self {
                let worst = if S::LARGEST { Self::MIN } else { Self::MAX };
                row.iter().fold(worst, |a, &x| if S::LARGEST { a.max(x) } else { a.min(x) })
            }

            #[inline(always)]
            fn beats<S: Side>(self, other: Self) -> bool {
                if S::LARGEST { self > other } else { self < other }
            }

            #[inline(always)]
            fn ties(self, other: Self) -> bool {
                self == other
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// A type of indices.
trait Index: Element {
    fn of(index: u32) -> Self;
}

macro_rules! indices {
    ($($type:ty),*) => {$(
        impl Index for $type {
            #[inline(always)]
            fn of(index: u32) -> Self {
                index as Self
            }
        }
    )*};
}
indices!(i64, i32, u32);

pub(super) fn kernel(x: DType, index: DType, largest: bool) -> Result<HostKernel> {
    fn with<T: Candidate>(index: DType, largest: bool) -> Result<HostKernel> {
        Ok(match (index, largest) {
            (DType::I64, true) => run::<T, i64, Largest>,
            (DType::I32, true) => run::<T, i32, Largest>,
            (DType::U32, true) => run::<T, u32, Largest>,
            (DType::I64, false) => run::<T, i64, Smallest>,
            (DType::I32, false) => run::<T, i32, Smallest>,
            (DType::U32, false) => run::<T, u32, Smallest>,
            _ => return Err(no_kernel(index)),
        })
    }
    for_numbers!(x, T => with::<T>(index, largest)).unwrap_or_else(|| Err(no_kernel(x)))
}

fn run<T: Candidate, I: Index, S: Side>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let Params { geometry, select_last, .. } = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, Shared::new(arguments.output::<I>(AT.index)?));
    find::<T, S>(x, &geometry, select_last != 0, &|first, found| {
        // SAFETY: the outputs of one unit, which belong to its task.
        let out = unsafe { y.part(first, found.len()) };
        out.iter_mut().zip(found).for_each(|(out, &index)| *out = I::of(index));
    });
    Ok(())
}

/// Calls `store(first output, indices)` for each unit of outputs, in parallel.
fn find<T: Candidate, S: Side>(x: &[T], geometry: &Geometry, last: bool, store: &(dyn Fn(usize, &[u32]) + Sync)) {
    let (units, inner) = (Units::new(geometry), geometry.inner as usize);
    if geometry.outputs() == 0 {
        return;
    }
    for_each(units.count(), x.len() / units.count(), |task| {
        let outputs = units.unit(task).outputs;
        let (o, first) = (outputs.start / inner, outputs.start % inner);
        let found = if inner == 1 {
            rows::<T, S>(x, geometry, outputs.start, outputs.len(), last)
        } else {
            columns::<T, S>(x, geometry, geometry.kept(o) + first, outputs.len(), last)
        };
        store(outputs.start, &found);
    });
}

simd! {
    /// The indices in `count` rows from `first` on.
    fn rows<T: Candidate, S: Side>(x: &[T], geometry: &Geometry, first: usize, count: usize, last: bool) -> Vec<u32> {
        let row = |o: usize| &x[geometry.kept(o)..][..geometry.length as usize];
        (first..first + count).map(|o| position(row(o), T::best::<S>(row(o)), last) as u32).collect()
    }
}

/// Where `best` is first, or last.
#[inline(always)]
fn position<T: Candidate>(row: &[T], best: T, last: bool) -> usize {
    const BLOCK: usize = 128;
    // A count vectorises where a search does not.
    let here = |block: &[T]| block.iter().fold(0, |count, x| count + u8::from(x.ties(best))) > 0;
    let mut blocks = row.chunks(BLOCK);
    let block = if last { blocks.rposition(here) } else { blocks.position(here) }.unwrap_or(0);
    let mut part = row[block * BLOCK..].iter().take(BLOCK);
    let inside = if last { part.rposition(|x| x.ties(best)) } else { part.position(|x| x.ties(best)) };
    block * BLOCK + inside.unwrap_or(0)
}

simd! {
    /// The indices in `width` columns from element `start` on.
    fn columns<T: Candidate, S: Side>(x: &[T], geometry: &Geometry, start: usize, width: usize, last: bool) -> Vec<u32> {
        let mut best = x[start..start + width].to_vec();
        let mut found = vec![0; width];
        for k in 1..geometry.length as usize {
            let line = &x[start + geometry.reduced(k)..][..width];
            for ((best, found), &x) in best.iter_mut().zip(&mut found).zip(line) {
                let better = x.beats::<S>(*best) || last && x.ties(*best);
                *best = if better { x } else { *best };
                *found = if better { k as u32 } else { *found };
            }
        }
        found
    }
}
