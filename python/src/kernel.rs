//! Users' Metal kernels on tensors.

use elinvar::{KernelArgument, MetalSource};
use pyo3::{Bound, PyAny, PyRef, PyResult, Python, exceptions::PyTypeError, pyclass, pymethods, types::PyAnyMethods};

use crate::{context::settle, errors::raise, executor::Executor, tensor::Tensor};

/// A compiled kernel: the part of `elinvar.metal_kernel` that is no Python.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct CompiledKernel(elinvar::MetalKernel);

/// What a kernel's parameter is given.
enum Given {
    Tensor(elinvar::Tensor),
    Bytes(Vec<u8>),
}

#[pymethods]
impl CompiledKernel {
    /// Compiles the kernel of that name.
    #[new]
    fn py_new(py: Python<'_>, executor: PyRef<'_, Executor>, name: &str, text: &str, kernel: &str) -> PyResult<Self> {
        executor.0.check()?;
        let opened = executor.0.executor.clone();
        py.detach(|| opened.compile_metal(&MetalSource::new(name, text))?.kernel(kernel, &[])).map(Self).map_err(raise)
    }

    /// Launches it over exactly `threads` threads, or `grid` threadgroups. Without a `threadgroup` the device chooses one.
    #[pyo3(signature = (executor, arguments, threads, grid, threadgroup))]
    fn launch(
        &self,
        py: Python<'_>,
        executor: PyRef<'_, Executor>,
        arguments: Vec<(String, Bound<'_, PyAny>)>,
        threads: Option<[u32; 3]>,
        grid: Option<[u32; 3]>,
        threadgroup: Option<[u32; 3]>,
    ) -> PyResult<()> {
        let context = &executor.0;
        context.check()?;
        let (mut given, mut shared) = (Vec::new(), None);
        for (name, value) in &arguments {
            let argument = if let Ok(tensor) = value.cast::<Tensor>() {
                let tensor = tensor.get();
                if tensor.is_shared() {
                    shared = Some(tensor.tensor().clone());
                }
                Given::Tensor(context.take(tensor)?)
            } else {
                let wrong =
                    |_| PyTypeError::new_err(format!("kernel {}: '{name}' is {value}: a tensor or bytes are expected", self.0.signature().name));
                Given::Bytes(value.extract().map_err(wrong)?)
            };
            given.push((name.as_str(), argument));
        }
        let current = context.current();
        py.detach(|| {
            let arguments: Vec<_> = given
                .iter()
                .map(|(name, given)| {
                    let argument = match given {
                        Given::Tensor(tensor) => KernelArgument::Tensor(tensor),
                        Given::Bytes(bytes) => KernelArgument::Bytes(bytes),
                    };
                    (*name, argument)
                })
                .collect();
            let kernel = self.0.on(&current)?;
            match (threads, grid) {
                (Some(threads), _) => kernel.launch_threads(threads, threadgroup.unwrap_or_else(|| kernel.threadgroup_for(threads)), &arguments)?,
                (None, grid) => {
                    kernel.launch(grid.unwrap_or([1; 3]), threadgroup.unwrap_or([kernel.info().execution_width as u32, 1, 1]), &arguments)?
                }
            }
            shared.as_ref().map_or(Ok(()), settle)
        })
        .map_err(raise)
    }
}
