//! Recordings: what was asked of an executor once, to be replayed.

use std::sync::{Arc, OnceLock};

use pyo3::{Bound, Py, PyAny, PyRef, PyResult, Python, exceptions::PyRuntimeError, pyclass, pymethods, types::PyAnyMethods};

use crate::{context::Context, errors::raise, program::AtlasProgram};

/// What was recorded in a `with executor.record()` block. Write its inputs, replay it, read its outputs: tensors that outlive the block keep their memory.
#[pyclass(frozen, module = "elinvar", name = "Recording")]
pub(crate) struct Recorded {
    context: Arc<Context>,
    recording: OnceLock<elinvar::Recording>,
}

impl Recorded {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, recording: OnceLock::new() }
    }

    fn recording(&self) -> PyResult<&elinvar::Recording> {
        self.recording.get().ok_or_else(|| PyRuntimeError::new_err("nothing is recorded yet: use it in a 'with' block, and replay it after that"))
    }
}

#[pymethods]
impl Recorded {
    fn __enter__(slf: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        if slf.recording.get().is_some() {
            return Err(PyRuntimeError::new_err("it is recorded already: make another with executor.record()"));
        }
        slf.context.check()?;
        slf.context.start_recording()?;
        Ok(slf)
    }

    #[pyo3(signature = (kind, _error, _traceback))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyAny>, _traceback: &Bound<'_, PyAny>) -> PyResult<bool> {
        let recorder = self.context.end_recording()?;
        if kind.is_none() {
            let recording = py.detach(|| recorder.finish()).map_err(raise)?;
            // A block is entered once.
            let _ = self.recording.set(recording);
        }
        Ok(false)
    }

    /// Does all of it again, and waits for it unless `wait=False`.
    #[pyo3(signature = (wait = true))]
    fn replay(&self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.context.check()?;
        let recording = self.recording()?;
        py.detach(|| {
            let completion = self.context.executor.replay(recording)?;
            if wait { completion.wait() } else { Ok(()) }
        })
        .map_err(raise)
    }

    /// The programs that operators on elements became, in the order in which they run.
    fn _programs(&self, py: Python<'_>) -> PyResult<Vec<Py<AtlasProgram>>> {
        self.recording()?.programs().map(|program| Py::new(py, AtlasProgram::from(program.clone()))).collect()
    }

    /// The number of commands for the device.
    fn __len__(&self) -> PyResult<usize> {
        self.recording().map(elinvar::Recording::len)
    }

    fn __repr__(&self) -> String {
        match self.recording.get() {
            Some(recording) => format!("<elinvar.Recording of {} commands on {}>", recording.len(), self.context.backend),
            None => format!("<elinvar.Recording on {}, not recorded yet>", self.context.backend),
        }
    }
}
