//! Types that operators take and give.

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::{Operator, TensorInfo};

use crate::tensor::Tensor;

/// What an operator sees of its inputs.
pub(super) fn infos(inputs: &[Option<&Tensor>]) -> Vec<Option<TensorInfo>> {
    inputs.iter().map(|tensor| tensor.map(Tensor::info)).collect()
}

/// The outputs' types of an operator on these inputs.
pub(super) fn checked_types(operator: &dyn Operator, infos: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
    let types = operator.infer(infos)?;
    match infos.iter().flatten().chain(&types).map(|info| info.dtype).find(|dtype| !DType::ALL.contains(dtype)) {
        Some(dtype) => Err(Error::unsupported(format!("{dtype} is for programs (Executor::compile_program): no operator takes or gives it"))),
        None => Ok(types),
    }
}
