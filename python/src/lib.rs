//! Elinvar's Python package. The module `elinvar` in `python/elinvar` imports what this library defines.

mod devices;
mod errors;
mod torch;

/// What the Python package is made of.
#[pyo3::pymodule(gil_used = false)]
mod _elinvar {
    #[pymodule_export]
    use crate::devices::{DeviceInfo, devices};
    #[pymodule_export]
    use crate::errors::{CompileError, DeviceError, InternalError};
    #[pymodule_export]
    use crate::torch::{TorchDecoder, TorchOperator, TorchRegion, torch_operator};
}
