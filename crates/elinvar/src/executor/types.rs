//! Types that operators take and give.

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::{Operator, TensorInfo};

use crate::tensor::Tensor;

/// The outputs' types of an operator on these inputs.
pub(crate) fn checked_types(operator: &dyn Operator, inputs: &[Option<Tensor>]) -> Result<Vec<TensorInfo>> {
    let infos: Vec<_> = inputs.iter().map(|t| t.as_ref().map(Tensor::info)).collect();
    let types = operator.infer(&infos)?;
    match infos.iter().flatten().chain(&types).map(|info| info.dtype).find(|dtype| !DType::ALL.contains(dtype)) {
        Some(dtype) => Err(Error::unsupported(format!("{dtype} is for programs (Executor::compile_program): no operator takes or gives it"))),
        None => Ok(types),
    }
}
