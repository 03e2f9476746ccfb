//! The CPU kernel: each row is copied whole.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};

use super::{
    GatherParams,
    index::{Index, check_all, for_indices},
    operands::AT,
};
use crate::{
    elementwise::{blocks::TASK, dispatch::for_storage},
    parallel::for_each_part,
    signature::no_kernel,
};

pub(super) fn kernel(dtype: DType, indices: DType) -> Result<HostKernel> {
    let kernel: Option<HostKernel> = for_storage!(dtype, T => for_indices!(indices, I => run::<T, I>));
    kernel.ok_or_else(|| no_kernel(indices))
}

fn run<T: Element, I: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: GatherParams = arguments.params()?;
    let (x, indices, y) = (arguments.input::<T>(AT.x)?, arguments.input::<I>(AT.indices)?, arguments.output::<T>(AT.y)?);
    let (extent, inner, count) = (params.extent as usize, params.inner as usize, params.count as usize);
    if y.is_empty() {
        return Ok(());
    }
    check_all(indices, params.axis as usize, extent)?;
    let rows = (TASK / inner).max(1);
    for_each_part(y, rows * inner, |number, y| {
        for (row, y) in (number * rows..).zip(y.chunks_exact_mut(inner)) {
            if let Some(entry) = indices[row % count].resolve(extent) {
                y.copy_from_slice(&x[(row / count * extent + entry) * inner..][..inner]);
            }
        }
    });
    Ok(())
}
