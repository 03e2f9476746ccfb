//! The CPU kernels: every index is checked before anything is written; updates are applied one after the other.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{Reduction, ScatterElementsParams, ScatterNdParams, updating::AT};
use crate::{
    elementwise::{blocks::walk, dispatch::for_numbers, number::Number},
    gather::index::{Index, check_all},
    signature::no_kernel,
};

pub(super) fn elements(dtype: DType) -> Result<HostKernel> {
    for_numbers!(dtype, T => run_elements::<T> as HostKernel).ok_or_else(|| no_kernel(dtype))
}

pub(super) fn slices(dtype: DType) -> Result<HostKernel> {
    for_numbers!(dtype, T => run_slices::<T> as HostKernel).ok_or_else(|| no_kernel(dtype))
}

fn run_elements<T: Number>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let ScatterElementsParams { places, reduction, .. } = arguments.params()?;
    let (indices, updates, y) = (arguments.input::<i64>(AT.indices)?, arguments.input::<T>(AT.updates)?, arguments.output::<T>(AT.y)?);
    let (stride, extent) = (places.stride as usize, places.extent as usize);
    check_all(indices, places.axis as usize, extent)?;
    let step = places.x.strides[places.space.axes().len() - 1] as usize;
    let mut targets = Vec::with_capacity(indices.len());
    walk(&places.space, [&places.x], 0, indices.len(), |[at], length| {
        let entries = indices[targets.len()..][..length].iter().enumerate();
        targets.extend(entries.map(|(i, index)| at + i * step + index.resolve(extent).unwrap_or(0) * stride));
    });
    apply(reduction, y, 1, &targets, updates);
    Ok(())
}

fn run_slices<T: Number>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let ScatterNdParams { places, reduction, .. } = arguments.params()?;
    let (indices, updates, y) = (arguments.input::<i64>(AT.indices)?, arguments.input::<T>(AT.updates)?, arguments.output::<T>(AT.y)?);
    places.check(indices)?;
    let slice = |number| places.slice(number, places.tuple(indices, number)).unwrap_or(0);
    let targets: Vec<usize> = (0..places.tuples as usize).map(slice).collect();
    apply(reduction, y, places.inner as usize, &targets, updates);
    Ok(())
}

/// Combines slice `targets[i]` of `y` with slice `i` of the updates, for ascending `i`.
fn apply<T: Number>(reduction: u64, y: &mut [T], length: usize, targets: &[usize], updates: &[T]) {
    match Reduction::ALL.get(reduction as usize) {
        Some(Reduction::Add) => combine(y, length, targets, updates, T::add),
        Some(Reduction::Mul) => combine(y, length, targets, updates, T::mul),
        Some(Reduction::Min) => combine(y, length, targets, updates, T::min),
        Some(Reduction::Max) => combine(y, length, targets, updates, T::max),
        _ => combine(y, length, targets, updates, |_, update| update),
    }
}

fn combine<T: Number>(y: &mut [T], length: usize, targets: &[usize], updates: &[T], f: impl Fn(T, T) -> T) {
    if length == 0 {
        return;
    }
    for (target, updates) in targets.iter().zip(updates.chunks_exact(length)) {
        for (y, update) in y[target * length..][..length].iter_mut().zip(updates) {
            *y = f(*y, *update);
        }
    }
}
