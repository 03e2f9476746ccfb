//! Users' Metal kernels on tensors.

use std::path::PathBuf;

use elinvar::{ConstantValue, KernelArgument, MetalSource, msl::ParameterKind};
use pyo3::{Bound, PyAny, PyRef, PyResult, Python, exceptions::PyTypeError, pyclass, pyfunction, pymethods, types::PyAnyMethods};

use crate::{context::settle, errors::raise, executor::Executor, tensor::Tensor};

/// A compiled kernel: the part of `elinvar.metal_kernel` that is no Python.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct CompiledKernel(elinvar::MetalKernel);

/// A Metal library that Apple's compiler has made: the part of `elinvar.MetalLibrary` that is no Python.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct LoadedLibrary(elinvar::MetalLibrary);

/// Whether the bytes of a file are a compiled Metal library, or may hold some.
#[pyfunction]
pub(crate) fn is_compiled_metal(file: &[u8]) -> bool {
    elinvar::metallib::is_compiled(file)
}

#[pymethods]
impl LoadedLibrary {
    /// Reads a file.
    #[new]
    fn py_new(py: Python<'_>, executor: PyRef<'_, Executor>, path: PathBuf) -> PyResult<Self> {
        executor.0.check()?;
        let opened = executor.0.executor.clone();
        py.detach(|| opened.load_metal_library(&path)).map(Self).map_err(raise)
    }

    /// The kernels' names, in the order of the file.
    fn kernels(&self) -> Vec<String> {
        self.0.kernels().names().into_iter().map(str::to_owned).collect()
    }

    /// Compiles a kernel with function constants, named or numbered, whose values are text.
    fn kernel(&self, py: Python<'_>, name: &str, constants: Vec<(String, String)>) -> PyResult<CompiledKernel> {
        let compile = || {
            let given = constants.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let read = elinvar_check::constants(self.0.kernels().constants(name)?, given)?;
            let constants: Vec<(&str, ConstantValue)> = read.into_iter().map(|(name, _, value)| (name, value)).collect();
            self.0.kernel(name, &constants)
        };
        py.detach(compile).map(CompiledKernel).map_err(raise)
    }
}

/// What a kernel's parameter is given.
enum Given {
    Tensor(elinvar::Tensor),
    Bytes(Vec<u8>),
    Memory(usize),
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

    /// The parameters that are given something: their names, their types, and what each is given: `buffer`, `constant` or `threadgroup`.
    fn parameters(&self) -> Vec<(String, String, &'static str)> {
        let given = |parameter: &elinvar::msl::Parameter| {
            let (element, what) = match &parameter.kind {
                ParameterKind::Buffer { element, reference: false, .. } => (element, "buffer"),
                ParameterKind::Buffer { element, reference: true, .. } => (element, "constant"),
                ParameterKind::Threadgroup { element, .. } => (element, "threadgroup"),
                ParameterKind::Position(_) => return None,
            };
            Some((parameter.name.clone(), element.clone(), what))
        };
        self.0.signature().parameters.iter().filter_map(given).collect()
    }

    /// Numbers as bytes of the type that a parameter has.
    fn encode(&self, parameter: &str, numbers: Vec<String>) -> PyResult<Vec<u8>> {
        let found = self.parameters().into_iter().find(|(name, ..)| name == parameter);
        let (kernel, element) = (&self.0.signature().name, found.map(|(_, element, _)| element).unwrap_or_default());
        let dtype = elinvar_check::scalar_type(&element)
            .ok_or_else(|| PyTypeError::new_err(format!("kernel {kernel}: '{parameter}' is a {element}: give its bytes or an array")))?;
        let encoded = numbers.iter().map(|number| elinvar_check::encode(dtype, number)).collect::<elinvar::Result<Vec<_>>>();
        encoded.map(|bytes| bytes.concat()).map_err(|error| raise(error.context(format_args!("kernel {kernel}: '{parameter}'"))))
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
            } else if let Ok(bytes) = value.extract() {
                Given::Memory(bytes)
            } else {
                let wrong = |_| {
                    PyTypeError::new_err(format!(
                        "kernel {}: '{name}' is {value}: a tensor, bytes, or a size of threadgroup memory are expected",
                        self.0.signature().name
                    ))
                };
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
                        Given::Memory(bytes) => KernelArgument::ThreadgroupMemory(*bytes),
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
