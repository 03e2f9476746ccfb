//! Which type two operands have in common, by the array API standard.

use elinvar::{DType, Scalar};
use pyo3::{Bound, PyAny, PyResult, exceptions::PyTypeError, pyfunction};

use crate::dtype::{self, name};

/// The type that elements of both become.
///
/// # Errors
/// None holds them.
pub(crate) fn types(a: DType, b: DType) -> PyResult<DType> {
    if a == b || b == DType::Bool {
        return Ok(a);
    }
    if a == DType::Bool {
        return Ok(b);
    }
    if a == DType::F64 || b == DType::F64 {
        return Ok(DType::F64);
    }
    match (a.is_float(), b.is_float()) {
        // f16 and bf16 too: neither holds the other.
        (true, true) => return Ok(DType::F32),
        (true, false) => return Ok(a),
        (false, true) => return Ok(b),
        (false, false) => {}
    }
    let (wide, narrow) = if a.size() >= b.size() { (a, b) } else { (b, a) };
    if is_signed(a) == is_signed(b) || is_signed(wide) && wide.size() > narrow.size() {
        return Ok(wide);
    }
    match wide.size() {
        1 => Ok(DType::I16),
        2 => Ok(DType::I32),
        4 => Ok(DType::I64),
        _ => Err(PyTypeError::new_err(format!("no integer holds both {} and {}: convert one with astype", name(a), name(b)))),
    }
}

pub(crate) fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// The type of elements beside a number of Python's: theirs, unless the number is of another kind.
pub(crate) fn with_scalar(dtype: DType, scalar: Scalar, is_bool: bool) -> DType {
    match scalar {
        Scalar::Float(_) if !dtype.is_float() && dtype != DType::F64 => DType::F32,
        Scalar::Int(_) if dtype == DType::Bool && !is_bool => DType::I64,
        Scalar::Float(_) | Scalar::Int(_) => dtype,
    }
}

/// The type that elements of two types become together. Raises `TypeError` where none holds both.
#[pyfunction]
pub(crate) fn _promoted(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<dtype::DType> {
    types(dtype::parse(a)?, dtype::parse(b)?).map(dtype::DType)
}
