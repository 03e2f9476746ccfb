//! The CPU kernel for floats. A unit of work is a block of rows, or a tile of columns; where there are too few units for the threads, the
//! simdgroups of the canonical order are shared out instead.

use std::ops::Range;

use elinvar_core::{DType, HostArguments, HostKernel, Result};

use super::{geometry::Geometry, operands::AT, reduction::Reduction};
use crate::{
    float::{Float, with_float},
    math,
    order::{self, Fold},
    parallel::{SERIAL_BELOW, Shared, spread},
    rows::{rows_per_task, with_scratch},
    simd,
};

/// How elements are folded.
trait Step: 'static {
    const IDENTITY: f32;

    /// Takes `x` into an accumulator; `shift` is the output's own number, for those that have one.
    fn step(a: f32, x: f32, shift: f32) -> f32;

    fn combine(a: f32, b: f32) -> f32;
}

macro_rules! steps {
    ($($name:ident $identity:expr, |$a:ident, $x:ident, $shift:ident| $step:expr, $combine:expr;)*) => {$(
        struct $name;

        impl Step for $name {
            const IDENTITY: f32 = $identity;

            #[inline(always)]
            fn step($a: f32, $x: f32, $shift: f32) -> f32 {
                $step
            }

            #[inline(always)]
            fn combine(a: f32, b: f32) -> f32 {
                $combine(a, b)
            }
        }
    )*};
}

steps! {
    Sum 0.0, |a, x, _shift| a + x, order::add;
    SumSquare 0.0, |a, x, _shift| x.mul_add(x, a), order::add;
    SumExp 0.0, |a, x, shift| a + math::exp(x - shift), order::add;
    Max f32::NEG_INFINITY, |a, x, _shift| order::max(a, x), order::max;
    Min f32::INFINITY, |a, x, _shift| order::min(a, x), order::min;
    Prod 1.0, |a, x, _shift| a * x, |a, b| a * b;
}

pub(super) fn kernel(reduction: Reduction, dtype: DType) -> Result<HostKernel> {
    Ok(with_float!(dtype, T => match reduction {
        Reduction::Sum => run::<T, Sum, SUM>,
        Reduction::Mean => run::<T, Sum, MEAN>,
        Reduction::Max => run::<T, Max, SUM>,
        Reduction::Min => run::<T, Min, SUM>,
        Reduction::Prod => run::<T, Prod, SUM>,
        Reduction::SumSquare => run::<T, SumSquare, SUM>,
        Reduction::L2 => run::<T, SumSquare, ROOT>,
        Reduction::LogSumExp => run_log_sum_exp::<T>,
    }))
}

/// What becomes of a total.
const SUM: u8 = 0;
const MEAN: u8 = 1;
const ROOT: u8 = 2;

fn run<T: Float, S: Step, const FINISH: u8>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let geometry: Geometry = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    let totals = totals::<T, S>(x, &geometry, None);
    for (y, total) in y.iter_mut().zip(totals) {
        *y = T::from_f32(match FINISH {
            MEAN => total / geometry.length as f32,
            ROOT => total.sqrt(),
            _ => total,
        });
    }
    Ok(())
}

fn run_log_sum_exp<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let geometry: Geometry = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    let mut shifts = totals::<T, Max>(x, &geometry, None);
    shifts.iter_mut().filter(|m| !m.is_finite()).for_each(|m| *m = 0.0);
    let totals = totals::<T, SumExp>(x, &geometry, Some(&shifts));
    for ((y, total), shift) in y.iter_mut().zip(totals).zip(shifts) {
        *y = T::from_f32(math::log(total) + shift);
    }
    Ok(())
}

/// Every output's total, before it is finished.
fn totals<T: Float, S: Step>(x: &[T], geometry: &Geometry, shifts: Option<&[f32]>) -> Vec<f32> {
    let mut out = vec![S::IDENTITY; geometry.outputs()];
    if x.is_empty() {
        return out;
    }
    let units = Units::new(geometry);
    let groups = order::row_groups(geometry.length as usize);
    let serial = x.len() < SERIAL_BELOW;
    if !serial && groups > 1 && units.count() < rayon::current_num_threads() {
        let mut parts = vec![S::IDENTITY; groups * out.len()];
        let shared = Shared::new(&mut parts);
        let count = out.len();
        spread(groups * units.count(), 1, &|task| {
            let (group, unit) = (task / units.count(), units.unit(task % units.count()));
            // SAFETY: the outputs of this unit in the part of this group, which belong to this task.
            let part = unsafe { shared.part(group * count + unit.outputs.start, unit.outputs.len()) };
            fold_unit::<T, S>(x, geometry, &unit, group..group + 1, shifts, part);
        });
        for (group, parts) in parts.chunks_exact(count).enumerate() {
            for (total, part) in out.iter_mut().zip(parts) {
                *total = if group == 0 { *part } else { S::combine(*total, *part) };
            }
        }
        return out;
    }
    let shared = Shared::new(&mut out);
    let work = |index: usize| {
        let unit = units.unit(index);
        // SAFETY: the outputs of this unit, which belong to this task.
        let part = unsafe { shared.part(unit.outputs.start, unit.outputs.len()) };
        fold_unit::<T, S>(x, geometry, &unit, 0..groups, shifts, part);
    };
    if serial {
        (0..units.count()).for_each(work)
    } else {
        spread(units.count(), 1, &work)
    }
    out
}

/// Outputs that are folded together.
pub(super) struct Unit {
    pub(super) outputs: Range<usize>,
}

/// All outputs, cut into units: blocks of rows, or tiles of at most [`order::TILE`] columns of one `o`.
pub(super) struct Units {
    outputs: usize,
    inner: usize,
    width: usize,
}

impl Units {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let (outputs, inner) = (geometry.outputs(), geometry.inner as usize);
        let width = if inner == 1 { rows_per_task(geometry.length as usize, outputs) } else { order::TILE.min(inner) };
        Self { outputs, inner, width }
    }

    /// Outputs of one `o`; rows have one each and are counted together.
    fn line(&self) -> usize {
        if self.inner == 1 { self.outputs } else { self.inner }
    }

    pub(super) fn count(&self) -> usize {
        self.outputs / self.line() * self.line().div_ceil(self.width)
    }

    pub(super) fn unit(&self, index: usize) -> Unit {
        let tiles = self.line().div_ceil(self.width);
        let (line, first) = (index / tiles * self.line(), index % tiles * self.width);
        Unit { outputs: line + first..line + self.line().min(first + self.width) }
    }
}

/// The part that the simdgroups `groups` do of a unit's outputs.
fn fold_unit<T: Float, S: Step>(x: &[T], geometry: &Geometry, unit: &Unit, groups: Range<usize>, shifts: Option<&[f32]>, out: &mut [f32]) {
    if geometry.inner == 1 {
        fold_rows::<T, S>(x, geometry, unit, groups, shifts, out);
    } else {
        let scratch = order::columns_scratch(out.len());
        with_scratch(scratch, |scratch| fold_tile::<T, S>(x, geometry, unit, groups, shifts, scratch, out));
    }
}

simd! {
    fn fold_rows<T: Float, S: Step>(x: &[T], geometry: &Geometry, unit: &Unit, groups: Range<usize>, shifts: Option<&[f32]>, out: &mut [f32]) {
        let (length, run) = (geometry.length as usize, geometry.run());
        let mut gathered = vec![T::zeroed(); if run < length { length } else { 0 }];
        let mut wide = vec![0.0; if T::DTYPE == DType::F16 { length } else { 0 }];
        for (o, out) in unit.outputs.clone().zip(out) {
            let start = geometry.kept(o);
            let row = if run < length {
                for (index, part) in gathered.chunks_exact_mut(run).enumerate() {
                    part.copy_from_slice(&x[start + geometry.reduced(index * run)..][..run]);
                }
                &gathered
            } else {
                &x[start..start + length]
            };
            let shift = shifts.map_or(0.0, |s| s[o]);
            *out = if T::DTYPE == DType::F16 {
                // Widened by the instruction for it, which loops over single elements do not use.
                T::widen_into(row, &mut wide);
                order::fold_groups(&wide[..], groups.clone(), S::IDENTITY, |a, x: f32| S::step(a, x, shift), S::combine)
            } else {
                order::fold_groups(row, groups.clone(), S::IDENTITY, |a, x: T| S::step(a, x.to_f32(), shift), S::combine)
            };
        }
    }
}

simd! {
    fn fold_tile<T: Float, S: Step>(
        x: &[T],
        geometry: &Geometry,
        unit: &Unit,
        groups: Range<usize>,
        shifts: Option<&[f32]>,
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let (width, inner, length) = (out.len(), geometry.inner as usize, geometry.length as usize);
        let start = geometry.kept(unit.outputs.start / inner) + unit.outputs.start % inner;
        let line = |k: usize| &x[start + geometry.reduced(k)..][..width];
        let none = [0.0; order::TILE];
        let shifts = shifts.map_or(&none[..width], |s| &s[unit.outputs.clone()]);
        let step = |a: f32, x: f32, column: usize| S::step(a, x, shifts[column]);
        let fold = Fold { identity: S::IDENTITY, step, combine: S::combine };
        order::fold_columns(line, length, groups, fold, scratch, out);
    }
}
