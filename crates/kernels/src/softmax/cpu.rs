//! The CPU twin: one row at a time in cache. Reads and writes memory once; the row is re-read from L1 and L2.

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};
use half::{bf16, f16};

use crate::{
    float::Float,
    math, order,
    rows::{Rows, for_each_row},
    simd,
};

pub(super) fn twin(dtype: DType, log: bool) -> Result<HostKernel> {
    Ok(match (dtype, log) {
        (DType::F32, false) => run::<f32, false>,
        (DType::F16, false) => run::<f16, false>,
        (DType::BF16, false) => run::<bf16, false>,
        (DType::F32, true) => run::<f32, true>,
        (DType::F16, true) => run::<f16, true>,
        (DType::BF16, true) => run::<bf16, true>,
        _ => return Err(Error::unsupported(format!("softmax of {dtype}"))),
    })
}

fn run<T: Float + Default, const LOG: bool>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let rows: Rows = arguments.params()?;
    let (x, y) = (arguments.input::<T>(0)?, arguments.output::<T>(1)?);
    for_each_row(rows, x, y, if LOG { log_softmax::<T> } else { softmax::<T> });
    Ok(())
}

simd! {
    fn softmax<T: Float>(x: &[T], y: &mut [T]) {
        let n = x.len();
        let max = order::fold(n, f32::NEG_INFINITY, |k| x[k].to_f32(), order::max);
        let sum = order::fold(n, 0.0, |k| math::exp(x[k].to_f32() - max), order::add);
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::from_f32(math::exp(x.to_f32() - max) / sum);
        }
    }
}

simd! {
    fn log_softmax<T: Float>(x: &[T], y: &mut [T]) {
        let n = x.len();
        let max = order::fold(n, f32::NEG_INFINITY, |k| x[k].to_f32(), order::max);
        let log = math::log(order::fold(n, 0.0, |k| math::exp(x[k].to_f32() - max), order::add));
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::from_f32((x.to_f32() - max) - log);
        }
    }
}
