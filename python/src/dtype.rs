//! Types of elements, under NumPy's names.

use elinvar::DType as Element;
use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyclass, pymethods,
    types::{PyAnyMethods, PyBool, PyFloat, PyInt, PyModule, PyModuleMethods, PyString, PyStringMethods, PyType},
};

/// The type of a tensor's elements: `elinvar.float32`, `elinvar.bfloat16`, `elinvar.int64`, `elinvar.bool`, …
#[pyclass(frozen, eq, hash, module = "elinvar", name = "DType")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DType(pub(crate) Element);

#[pymethods]
impl DType {
    /// NumPy's name: `float32`.
    #[getter]
    fn name(&self) -> &'static str {
        name(self.0)
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    /// The same type as a `numpy.dtype`; that of bfloat16 is `ml_dtypes`'.
    ///
    /// Raises `TypeError` for bfloat16 where `ml_dtypes` is not installed.
    #[getter]
    fn numpy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        numpy(py, self.0).map(Bound::unbind)
    }

    fn __repr__(&self) -> String {
        format!("elinvar.{}", name(self.0))
    }

    fn __str__(&self) -> &'static str {
        name(self.0)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&'static str,))> {
        Ok((py.import("elinvar")?.getattr("dtype")?, (name(self.0),)))
    }
}

/// The data type of a name, a `numpy.dtype` or a Python type.
#[pyo3::pyfunction]
pub(crate) fn dtype(of: &Bound<'_, PyAny>) -> PyResult<DType> {
    parse(of).map(DType)
}

/// NumPy's name of it.
pub(crate) fn name(dtype: Element) -> &'static str {
    match dtype {
        Element::F32 => "float32",
        Element::F16 => "float16",
        Element::BF16 => "bfloat16",
        Element::F64 => "float64",
        Element::I8 => "int8",
        Element::I16 => "int16",
        Element::I32 => "int32",
        Element::I64 => "int64",
        Element::U8 => "uint8",
        Element::U16 => "uint16",
        Element::U32 => "uint32",
        Element::U64 => "uint64",
        Element::Bool => "bool",
    }
}

/// As a `numpy.dtype`.
pub(crate) fn numpy(py: Python<'_>, dtype: Element) -> PyResult<Bound<'_, PyAny>> {
    let of = if dtype == Element::BF16 {
        let module = py.import("ml_dtypes").map_err(|_| {
            PyTypeError::new_err("NumPy has no bfloat16 of its own: install the package ml_dtypes, or use astype(elinvar.float32) first")
        })?;
        module.getattr("bfloat16")?
    } else {
        PyString::new(py, name(dtype)).into_any()
    };
    py.import("numpy")?.getattr("dtype")?.call1((of,))
}

/// The type of that name, NumPy's or Elinvar's.
pub(crate) fn named(text: &str) -> Option<Element> {
    Element::PROGRAMS.iter().copied().find(|dtype| name(*dtype) == text || dtype.name() == text)
}

/// The type that an argument `dtype=` says.
pub(crate) fn parse(of: &Bound<'_, PyAny>) -> PyResult<Element> {
    if let Ok(dtype) = of.cast::<DType>() {
        return Ok(dtype.get().0);
    }
    let unknown = |name: &str| {
        let known: Vec<_> = Element::PROGRAMS.iter().map(|dtype| self::name(*dtype)).collect();
        PyValueError::new_err(format!("dtype '{name}': Elinvar has {}", known.join(", ")))
    };
    if let Ok(text) = of.cast::<PyString>() {
        let text = text.to_cow()?;
        return named(&text).ok_or_else(|| unknown(&text));
    }
    let py = of.py();
    if let Ok(class) = of.cast::<PyType>() {
        if class.is(py.get_type::<PyBool>()) {
            return Ok(Element::Bool);
        }
        if class.is(py.get_type::<PyFloat>()) {
            return Ok(Element::F32);
        }
        if class.is(py.get_type::<PyInt>()) {
            return Ok(Element::I64);
        }
    }
    let numpy = py.import("numpy")?.getattr("dtype")?;
    let text = numpy.call1((of,)).map_err(|_| PyTypeError::new_err(format!("dtype {of}: a name, elinvar.DType or numpy.dtype is expected")))?;
    let text: String = text.getattr("name")?.extract()?;
    named(&text).ok_or_else(|| unknown(&text))
}

/// Adds each type to the module, by its name.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    Element::PROGRAMS.iter().try_for_each(|dtype| module.add(name(*dtype), DType(*dtype)))
}
