//! Atlas programs.

use std::sync::{Mutex, PoisonError};

use elinvar::{
    ProgramArgument, ProgramKernel,
    atlas::{self, Constant, LaunchConfig, Limits},
};
use pyo3::{
    Bound, PyAny, PyRef, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyclass, pymethods,
    types::{PyAnyMethods, PyBool, PyBytes, PyFloat, PyInt},
};

use crate::{context::settle, errors::raise, executor::Executor, tensor::Tensor};

/// An Atlas program: the part of `elinvar.Program` that is no Python.
#[pyclass(frozen, module = "elinvar._elinvar", name = "AtlasProgram")]
pub(crate) struct AtlasProgram {
    program: atlas::Program,
    /// Prepared for devices, with what was granted: steps, and whether bounds may go unchecked.
    prepared: Mutex<Vec<(Granted, ProgramKernel)>>,
}

/// Steps that a thread may take, the default if it is none, and whether bounds may go unchecked.
type Granted = (Option<u32>, bool);

/// Blocks, threads of a block, and bytes of the shared array without a length.
type Launch = ([u32; 3], [u32; 3], u32);

impl From<atlas::Program> for AtlasProgram {
    fn from(program: atlas::Program) -> Self {
        Self { program, prepared: Mutex::default() }
    }
}

impl AtlasProgram {
    /// Its kernel for the device, prepared now or before.
    fn kernel(&self, executor: &elinvar::Executor, granted: Granted) -> elinvar::Result<ProgramKernel> {
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = prepared.iter().find_map(|(known, kernel)| kernel.on(executor).ok().filter(|_| *known == granted)) {
            return Ok(known);
        }
        let ((steps, unchecked), defaults) = (granted, Limits::default());
        let kernel = executor.compile_program_within(self.program.clone(), &Limits { steps: steps.or(defaults.steps), unchecked, ..defaults })?;
        prepared.push((granted, kernel.clone()));
        kernel.on(executor)
    }
}

/// What a parameter is given.
enum Given {
    Tensor(elinvar::Tensor),
    Scalar(Constant),
}

#[pymethods]
impl AtlasProgram {
    #[staticmethod]
    fn from_text(text: &str) -> PyResult<Self> {
        atlas::parse(text).map(Self::from).map_err(raise)
    }

    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        atlas::decode(bytes).map(Self::from).map_err(raise)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.program.name
    }

    #[getter]
    fn text(&self) -> String {
        atlas::format(&self.program)
    }

    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &atlas::encode(&self.program))
    }

    #[getter]
    fn msl(&self) -> PyResult<String> {
        elinvar::program_metal(&self.program).map_err(raise)
    }

    #[getter]
    fn cuda(&self) -> PyResult<String> {
        elinvar::program_cuda(&self.program).map_err(raise)
    }

    /// Threads of a block, if it demands that.
    #[getter]
    fn block(&self) -> Option<[u32; 3]> {
        self.program.block
    }

    /// Names, types and whether it is read and written; neither of scalars.
    #[getter]
    fn parameters(&self) -> Vec<(String, &'static str, bool, bool)> {
        let parameter = |p: &atlas::Parameter| {
            let (reads, writes) = p.access.map_or((false, false), |access| (access != elinvar::Access::Write, access.writes()));
            (p.name.clone(), p.dtype.name(), reads, writes)
        };
        self.program.parameters.iter().map(parameter).collect()
    }

    /// Launches it.
    fn launch(
        &self,
        py: Python<'_>,
        executor: PyRef<'_, Executor>,
        arguments: Vec<(String, Bound<'_, PyAny>)>,
        launch: Launch,
        granted: Granted,
    ) -> PyResult<()> {
        let context = &executor.0;
        context.check()?;
        let (mut given, mut shared) = (Vec::new(), None);
        for (name, value) in &arguments {
            given.push((name.as_str(), self.argument(&executor, name, value, &mut shared)?));
        }
        let current = context.current();
        let (grid, block, shared_memory) = launch;
        let launch = LaunchConfig::new(grid, block).with_shared_memory(shared_memory);
        py.detach(|| {
            let arguments: Vec<_> = given
                .iter()
                .map(|(name, given)| {
                    let argument = match given {
                        Given::Tensor(tensor) => ProgramArgument::Tensor(tensor),
                        Given::Scalar(value) => ProgramArgument::Scalar(*value),
                    };
                    (*name, argument)
                })
                .collect();
            self.kernel(&current, granted)?.launch(&launch, &arguments)?;
            shared.as_ref().map_or(Ok(()), settle)
        })
        .map_err(raise)
    }
}

impl AtlasProgram {
    fn argument(&self, executor: &Executor, name: &str, value: &Bound<'_, PyAny>, shared: &mut Option<elinvar::Tensor>) -> PyResult<Given> {
        if let Ok(tensor) = value.cast::<Tensor>() {
            let tensor = tensor.get();
            if tensor.is_shared() {
                *shared = Some(tensor.tensor().clone());
            }
            return executor.0.take(tensor).map(Given::Tensor);
        }
        let parameter = self.program.parameters.iter().find(|parameter| parameter.name == name);
        let Some(parameter) = parameter else {
            let names: Vec<_> = self.program.parameters.iter().map(|p| p.name.as_str()).collect();
            return Err(PyValueError::new_err(format!(
                "program {}: there is no parameter '{name}': it takes {}",
                self.program.name,
                names.join(", ")
            )));
        };
        let text = if value.is_instance_of::<PyBool>() {
            value.extract::<bool>()?.to_string()
        } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
            value.str()?.to_string()
        } else {
            return Err(PyTypeError::new_err(format!(
                "program {}: '{name}' is {value}: a tensor, an array or a number is expected",
                self.program.name
            )));
        };
        Constant::parse(parameter.dtype, &text).map(Given::Scalar).map_err(|error| raise(error.context(format_args!("'{name}'"))))
    }
}
