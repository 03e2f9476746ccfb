//! The CPU kernel for integers and bools: exact, so lines are simply folded in the order they lie in memory.

use elinvar_core::{DType, Element, HostArguments, HostKernel, Result};

use super::{geometry::Geometry, operands::AT, reduction::Reduction};
use crate::{
    elementwise::{
        dispatch::{Truth, for_integers},
        number::Number,
    },
    parallel::{Shared, for_each},
    signature::no_kernel,
};

pub(super) fn kernel(reduction: Reduction, dtype: DType) -> Result<HostKernel> {
    let found = match (reduction, dtype) {
        // Bools are bytes 0 and 1; of none of them, any is false and all is true.
        (Reduction::Max, DType::Bool) => Some(any as HostKernel),
        (Reduction::Min, DType::Bool) => Some(all as HostKernel),
        (Reduction::Sum, _) => for_integers!(dtype, T => (|a| run::<T>(a, 0, Number::add)) as HostKernel),
        (Reduction::Prod, _) => for_integers!(dtype, T => (|a| run::<T>(a, 1, Number::mul)) as HostKernel),
        (Reduction::Max, _) => for_integers!(dtype, T => (|a| run::<T>(a, T::MIN, Number::max)) as HostKernel),
        (Reduction::Min, _) => for_integers!(dtype, T => (|a| run::<T>(a, T::MAX, Number::min)) as HostKernel),
        _ => None,
    };
    found.ok_or_else(|| no_kernel(dtype))
}

fn any(arguments: &mut HostArguments<'_>) -> Result<()> {
    run::<Truth>(arguments, Truth::new(false), |a, b| Truth::new(a.get() | b.get()))
}

fn all(arguments: &mut HostArguments<'_>) -> Result<()> {
    run::<Truth>(arguments, Truth::new(true), |a, b| Truth::new(a.get() & b.get()))
}

#[inline(always)]
fn run<T: Element>(arguments: &mut HostArguments<'_>, identity: T, op: impl Fn(T, T) -> T + Copy + Send + Sync) -> Result<()> {
    let geometry: Geometry = arguments.params()?;
    let (x, y) = (arguments.input::<T>(AT.x)?, arguments.output::<T>(AT.y)?);
    y.fill(identity);
    if x.is_empty() {
        return Ok(());
    }
    let (inner, y) = (geometry.inner as usize, Shared::new(y));
    for_each(geometry.outputs() / inner, geometry.length as usize * inner, |o| {
        // SAFETY: the outputs of `o`, which belong to this task.
        fold(x, &geometry, o, unsafe { y.part(o * inner, inner) }, op);
    });
    Ok(())
}

/// The outputs `(o, ·)`.
#[inline(always)]
fn fold<T: Element>(x: &[T], geometry: &Geometry, o: usize, out: &mut [T], op: impl Fn(T, T) -> T + Copy) {
    let (start, length) = (geometry.kept(o), geometry.length as usize);
    if let [out] = out {
        for first in (0..length).step_by(geometry.run()) {
            *out = x[start + geometry.reduced(first)..][..geometry.run()].iter().fold(*out, |a, &x| op(a, x));
        }
        return;
    }
    for k in 0..length {
        for (out, &x) in out.iter_mut().zip(&x[start + geometry.reduced(k)..]) {
            *out = op(*out, x);
        }
    }
}
