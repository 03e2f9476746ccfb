//! What operators take, and what they launch on devices of every kind.

mod attention;
mod decoding;
mod elements;
mod misfits;
mod movement;
mod products;
mod rows;

use elinvar_core::DType;
use elinvar_kernels::TensorInfo;

fn info(dtype: DType, dims: &[usize]) -> Option<TensorInfo> {
    Some(TensorInfo::new(dtype, dims).unwrap())
}

fn f32(dims: &[usize]) -> Option<TensorInfo> {
    info(DType::F32, dims)
}
