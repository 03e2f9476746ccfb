//! The CPU kernels: a row at a time, widened in cache.

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{
    Params, backward,
    exponentials::{Group, exponentials},
    operands,
};
use crate::{
    float::{Float, as_f32, with_float},
    gather::index::{Index, for_indices, outside},
    math, order,
    parallel::{Shared, for_each, for_each_part},
    rows::{rows_per_task, with_scratch},
    signature::no_kernel,
    simd,
};

pub(super) fn loss(logits: DType, targets: DType) -> Result<HostKernel> {
    let kernel: Option<HostKernel> = with_float!(logits, T => for_indices!(targets, I => run_loss::<T, I>));
    kernel.ok_or_else(|| no_kernel(targets))
}

pub(super) fn gradient(logits: DType, targets: DType) -> Result<HostKernel> {
    let kernel: Option<HostKernel> = with_float!(logits, T => for_indices!(targets, I => run_gradient::<T, I>));
    kernel.ok_or_else(|| no_kernel(targets))
}

pub(super) fn total(targets: DType) -> Result<HostKernel> {
    let kernel: Option<HostKernel> = for_indices!(targets, I => run_total::<I>);
    kernel.ok_or_else(|| no_kernel(targets))
}

impl Params {
    fn is_ignored<I: Index>(&self, target: I) -> bool {
        self.ignores == 1 && target.wide() == self.ignored
    }

    /// The class of a row, if it counts.
    fn target<I: Index>(&self, target: I) -> Option<usize> {
        if self.is_ignored(target) { None } else { target.resolve(self.rows.length as usize) }
    }

    fn check<I: Index>(&self, targets: &[I]) -> Result<()> {
        let is_wrong = |target: &I| !self.is_ignored(*target) && target.resolve(self.rows.length as usize).is_none();
        match targets.iter().position(is_wrong) {
            None => Ok(()),
            Some(at) => Err(outside(targets[at], at, 0, self.rows.length as usize)),
        }
    }
}

fn run_loss<T: Float, I: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    use operands::AT;
    let params: Params = arguments.params()?;
    let (logits, targets, loss) = (arguments.input::<T>(AT.logits)?, arguments.input::<I>(AT.targets)?, arguments.output::<f32>(AT.loss)?);
    let (maxima, sums) = (arguments.optional_output::<f32>(AT.max)?.map(Shared::new), arguments.optional_output::<f32>(AT.sum)?.map(Shared::new));
    params.check(targets)?;
    let n = params.rows.length as usize;
    let (count, rows) = (loss.len(), rows_per_task(n, loss.len()));
    let losses = Shared::new(loss);
    for_each(count.div_ceil(rows), rows * n, |task| {
        let mut groups = Group::of_row(n);
        with_scratch(n, |wide| {
            for at in task * rows..count.min((task + 1) * rows) {
                let target = params.target(targets[at]);
                let mut loss = 0.0;
                if target.is_some() || maxima.is_some() {
                    let row = &logits[at * n..][..n];
                    let row = as_f32(row).unwrap_or_else(|| {
                        T::widen_into(row, wide);
                        wide
                    });
                    let (max, sum) = exponentials(row, &mut groups);
                    loss = target.map_or(0.0, |target| math::log(sum) - (row[target] - max));
                    // SAFETY: the row's statistics belong to this task.
                    unsafe {
                        maxima.iter().for_each(|maxima| maxima.write(at, max));
                        sums.iter().for_each(|sums| sums.write(at, sum));
                    }
                }
                // SAFETY: the row belongs to this task.
                unsafe { losses.write(at, loss) };
            }
        });
    });
    Ok(())
}

fn run_total<I: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (losses, targets, loss) = (arguments.input::<f32>(0)?, arguments.input::<I>(1)?, arguments.output::<f32>(2)?);
    let total = order::sum(&losses[..targets.len()], |sum, loss| sum + loss);
    let count = || order::sum(targets, |count, target| count + f32::from(u8::from(!params.is_ignored(target))));
    loss[0] = if params.mean == 1 { total / count() } else { total };
    Ok(())
}

fn run_gradient<T: Float, I: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    use backward::AT;
    let params: Params = arguments.params()?;
    let (logits, targets, dloss) = (arguments.input::<T>(AT.logits)?, arguments.input::<I>(AT.targets)?, arguments.input::<f32>(AT.dloss)?);
    let (dlogits, losses) = (arguments.output::<T>(AT.dlogits)?, arguments.optional_output::<f32>(AT.loss)?.map(Shared::new));
    let statistics = arguments.optional::<f32>(AT.max)?.zip(arguments.optional::<f32>(AT.sum)?);
    params.check(targets)?;
    let n = params.rows.length as usize;
    if dlogits.is_empty() {
        return Ok(());
    }
    let rows = rows_per_task(n, targets.len());
    for_each_part(dlogits, rows * n, |task, dlogits| {
        let mut groups = Group::of_row(n);
        with_scratch(n, |row| {
            for (at, dlogits) in (task * rows..).zip(dlogits.chunks_exact_mut(n)) {
                T::widen_into(&logits[at * n..][..n], row);
                let loss = match params.target(targets[at]) {
                    Some(target) => {
                        let (max, sum) = statistics.map_or_else(|| exponentials(row, &mut groups), |(maxima, sums)| (maxima[at], sums[at]));
                        differentiate(row, target, max, sum, dloss[at])
                    }
                    None => {
                        row.fill(0.0);
                        0.0
                    }
                };
                // SAFETY: the row belongs to this task.
                losses.iter().for_each(|losses| unsafe { losses.write(at, loss) });
                T::narrow_into(row, dlogits);
            }
        });
    });
    Ok(())
}

simd! {
    /// The row becomes its gradient; gives the loss.
    fn differentiate(row: &mut [f32], target: usize, max: f32, sum: f32, upstream: f32) -> f32 {
        let loss = math::log(sum) - (row[target] - max);
        let scale = 1.0 / sum;
        for x in row.iter_mut() {
            *x = math::exp_nonpositive(*x - max) * scale;
        }
        row[target] -= 1.0;
        for x in row.iter_mut() {
            *x *= upstream;
        }
        loss
    }
}
