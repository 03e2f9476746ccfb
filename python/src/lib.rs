//! Elinvar's Python package. The module `elinvar` in `python/elinvar` imports what this library defines.

#[cfg(target_os = "linux")]
mod check;
mod context;
mod cuda;
mod custom;
mod devices;
mod display;
mod dlpack;
mod dtype;
mod errors;
mod executor;
mod fork;
mod host;
mod kernel;
mod llm;
mod ops;
mod program;
mod promote;
mod recording;
mod tensor;
mod torch;
mod work;

/// What the Python package is made of.
#[pyo3::pymodule(gil_used = false)]
mod _elinvar {
    use pyo3::{Bound, PyResult, types::PyModule};

    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::check::serve_check;
    #[pymodule_export]
    use crate::context::{_enter_no_grad, _leave_no_grad};
    #[pymodule_export]
    use crate::custom::with_gradient;
    #[pymodule_export]
    use crate::devices::{DeviceInfo, devices};
    #[pymodule_export]
    use crate::dtype::{DType, dtype};
    #[pymodule_export]
    use crate::errors::{CompileError, DeviceError, InternalError};
    #[pymodule_export]
    use crate::executor::Executor;
    #[pymodule_export]
    use crate::kernel::{CompiledKernel, LoadedLibrary, is_compiled_metal};
    #[pymodule_export]
    use crate::llm::{_train, NativeEncoder, NativeModel, NativeStream, NativeTokenizer};
    #[pymodule_export]
    use crate::ops::{_call, _descriptions, Function};
    #[pymodule_export]
    use crate::program::AtlasProgram;
    #[pymodule_export]
    use crate::promote::_promoted;
    #[pymodule_export]
    use crate::recording::Recorded;
    #[pymodule_export]
    use crate::tensor::{Tensor, concat, stack};
    #[pymodule_export]
    use crate::torch::{TorchDecoder, TorchFunction, TorchOperator, TorchRegion, torch_operator, torch_synchronize};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::dtype::add_to(module)
    }
}
