//! The devices of this machine.

use pyo3::{pyclass, pyfunction, pymethods};

/// A device that this build knows, and whether it can be used here.
#[pyclass(frozen, get_all, module = "elinvar")]
pub(crate) struct DeviceInfo {
    /// The name by which an executor opens it: `cpu`, `cuda`, `cuda:1`, `metal`, `metal-sim`.
    backend: String,
    /// The hardware's name; `None` where the device cannot be used.
    name: Option<String>,
    /// Why it cannot be used; `None` where it can.
    reason: Option<String>,
}

#[pymethods]
impl DeviceInfo {
    /// Whether it can be used here.
    #[getter]
    fn available(&self) -> bool {
        self.reason.is_none()
    }

    fn __repr__(&self) -> String {
        match (&self.name, &self.reason) {
            (Some(name), _) => format!("<elinvar device {}: {name}>", self.backend),
            (None, reason) => format!("<elinvar device {}, not available: {}>", self.backend, reason.as_deref().unwrap_or("no reason is known")),
        }
    }
}

/// Every device of this build, in the order in which the automatic choice prefers them.
#[pyfunction]
pub(crate) fn devices() -> Vec<DeviceInfo> {
    let info = |report: elinvar::DeviceReport| {
        let (name, reason) = match report.state {
            Ok(state) => (Some(state.properties.name), None),
            Err(error) => (None, Some(error.to_string())),
        };
        DeviceInfo { backend: report.backend.to_string(), name, reason }
    };
    elinvar::devices().into_iter().map(info).collect()
}
