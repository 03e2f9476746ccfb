//! Tensors.

mod arithmetic;
mod gradient;
mod index;
mod methods;

pub(crate) use methods::{concat, stack};

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use elinvar::{DType as Element, Scalar};
use pyo3::{
    Bound, IntoPyObject, Py, PyAny, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyclass, pymethods,
    types::{PyAnyMethods, PyBool, PyBytes, PyFloat, PyInt, PyTuple},
};

use crate::{
    context::{Context, settle},
    dlpack,
    dtype::{self, DType},
    errors::raise,
    executor::Executor,
    host,
};

/// Elements of one type on a device, in a shape. Views share memory.
///
/// Make one with `Executor.tensor`, `Executor.zeros` and so on. Operators follow the Python array API standard; those of the library are in `elinvar.ops`.
#[pyclass(frozen, module = "elinvar", weakref)]
pub(crate) struct Tensor {
    pub(crate) context: Arc<Context>,
    made: elinvar::Tensor,
    /// Whether another library sees the memory, which is then used only while no call returns; of all views, since there is one.
    shared: OnceLock<Arc<AtomicBool>>,
    /// Since it requires a gradient.
    leaf: OnceLock<Arc<Leaf>>,
}

/// A tensor that requires a gradient.
pub(crate) struct Leaf {
    pub(crate) tensor: elinvar::Tensor,
    pub(crate) gradient: Mutex<Option<Arc<Tensor>>>,
}

/// The number of a Python object.
pub(crate) fn scalar(number: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    if let Ok(truth) = number.cast::<PyBool>() {
        return Ok(i64::from(truth.extract::<bool>()?).into());
    }
    if number.is_instance_of::<PyInt>() {
        return number.extract::<i128>().map(Scalar::Int).map_err(|_| PyValueError::new_err(format!("{number} is larger than any type holds")));
    }
    if number.is_instance_of::<PyFloat>() {
        return Ok(Scalar::Float(number.extract()?));
    }
    // NumPy's numbers, and others that can say what they are.
    if let Ok(whole) = number.call_method0("__index__") {
        return whole.extract().map(Scalar::Int);
    }
    number
        .extract::<f64>()
        .map(Scalar::Float)
        .map_err(|_| PyTypeError::new_err(format!("{} is no number: arrays and lists become tensors by executor.tensor", number.get_type())))
}

impl Tensor {
    pub(crate) fn new(context: &Arc<Context>, made: elinvar::Tensor) -> Self {
        Self { context: context.clone(), made, shared: OnceLock::new(), leaf: OnceLock::new() }
    }

    /// What may lie in this tensor's memory.
    pub(crate) fn view(&self, made: elinvar::Tensor) -> Self {
        Self { context: self.context.clone(), made, shared: self.sharing().clone().into(), leaf: OnceLock::new() }
    }

    /// The tensor as operators take it: on the tape since it requires a gradient.
    pub(crate) fn tensor(&self) -> &elinvar::Tensor {
        self.leaf.get().map_or(&self.made, |leaf| &leaf.tensor)
    }

    fn sharing(&self) -> &Arc<AtomicBool> {
        self.shared.get_or_init(Arc::default)
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.get().is_some_and(|shared| shared.load(Ordering::Acquire))
    }

    /// Another library sees its memory.
    pub(crate) fn share(&self) {
        self.sharing().store(true, Ordering::Release);
    }

    pub(crate) fn dtype(&self) -> Element {
        self.made.dtype()
    }

    /// The one element.
    fn only(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.made.shape().elements() != 1 {
            let shape = self.made.shape();
            return Err(PyValueError::new_err(format!("a tensor of shape {shape} has {} elements: one is expected", shape.elements())));
        }
        let bytes = self.bytes(py)?;
        macro_rules! number {
            ($type:ty) => {
                bytemuck::pod_read_unaligned::<$type>(&bytes).into_pyobject(py)?.into_any().unbind()
            };
        }
        Ok(match self.dtype() {
            Element::F32 => number!(f32),
            Element::F64 => number!(f64),
            Element::F16 => f32::from(bytemuck::pod_read_unaligned::<half::f16>(&bytes)).into_pyobject(py)?.into_any().unbind(),
            Element::BF16 => f32::from(bytemuck::pod_read_unaligned::<half::bf16>(&bytes)).into_pyobject(py)?.into_any().unbind(),
            Element::I8 => number!(i8),
            Element::I16 => number!(i16),
            Element::I32 => number!(i32),
            Element::I64 => number!(i64),
            Element::U8 => number!(u8),
            Element::U16 => number!(u16),
            Element::U32 => number!(u32),
            Element::U64 => number!(u64),
            Element::Bool => PyBool::new(py, bytes[0] != 0).to_owned().into_any().unbind(),
        })
    }

    /// Its elements in row-major order.
    pub(crate) fn bytes(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        self.context.wait(py)?;
        let tensor = self.tensor();
        py.detach(|| tensor.to_bytes()).map_err(raise)
    }
}

#[pymethods]
impl Tensor {
    /// The type of its elements.
    #[getter(dtype)]
    fn py_dtype(&self) -> DType {
        DType(self.dtype())
    }

    /// Its extents.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.made.shape().iter())
    }

    /// The number of its axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.made.shape().rank()
    }

    /// The number of its elements.
    #[getter]
    fn size(&self) -> usize {
        self.made.shape().elements()
    }

    /// Bytes of its elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.made.shape().elements() * self.dtype().size()
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.dtype().size()
    }

    /// The device's name: 'cpu', 'cuda', 'metal-sim', …
    #[getter]
    fn device(&self) -> &str {
        &self.context.backend
    }

    /// The executor that it lives on.
    #[getter]
    fn executor(&self) -> Executor {
        Executor(self.context.clone())
    }

    /// Its elements as a NumPy array: in the same memory on the CPU, unless `copy=True`; a copy from other devices.
    ///
    /// The array keeps the memory alive. It is read-only where the tensor is, or requires a gradient.
    /// Raises `TypeError` for bfloat16 where `ml_dtypes` is not installed.
    #[pyo3(signature = (*, copy = None))]
    fn numpy(&self, py: Python<'_>, copy: Option<bool>) -> PyResult<Py<PyAny>> {
        host::numpy(py, self, copy).map(Bound::unbind)
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__(&self, py: Python<'_>, dtype: Option<&Bound<'_, PyAny>>, copy: Option<bool>) -> PyResult<Py<PyAny>> {
        let array = host::numpy(py, self, copy)?;
        let Some(dtype) = dtype.filter(|dtype| !dtype.is_none()) else { return Ok(array.unbind()) };
        if array.getattr("dtype")?.eq(py.import("numpy")?.getattr("dtype")?.call1((dtype,))?)? {
            return Ok(array.unbind());
        }
        if copy == Some(false) {
            return Err(PyValueError::new_err(format!("a tensor of {} as {dtype} needs a copy, and copy=False", dtype::name(self.dtype()))));
        }
        array.call_method1("astype", (dtype,)).map(Bound::unbind)
    }

    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack::export(py, self, dlpack::Wish { stream: stream.map(|stream| stream.extract()).transpose()?, max_version, device: dl_device, copy })
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        dlpack::device(&self.context)
    }

    /// Its element as a Python number. Raises `ValueError` unless there is exactly one.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.only(py)
    }

    /// Its elements as nested lists of Python numbers.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.dtype() == Element::BF16 {
            let wide = self.context.call(py, [self], |[x]| x.cast(Element::F32))?;
            return self.view(wide).tolist(py);
        }
        host::numpy(py, self, Some(true))?.call_method0("tolist").map(Bound::unbind)
    }

    /// Its elements in row-major order.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.bytes(py)?))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.only(py)?.bind(py).is_truthy()
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.only(py)?.bind(py).call_method0("__int__").map(Bound::unbind)
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.only(py)?.extract(py)
    }

    fn __complex__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pyo3::types::PyComplex::from_doubles(py, self.__float__(py)?, 0.0).into_any())
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if !self.dtype().is_integer() || self.ndim() > 0 {
            return Err(PyTypeError::new_err("only a tensor of one whole number without axes is an index"));
        }
        self.only(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        self.made.shape().first().copied().ok_or_else(|| PyTypeError::new_err("a tensor without axes has no length"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (dtype, device) = (dtype::name(self.dtype()), &self.context.backend);
        let tail = if self.tensor().is_tracked() { ", requires_grad=True" } else { "" };
        if self.context.check().is_err() || self.made.binding().is_err() {
            return Ok(format!("<elinvar.Tensor {dtype}{} on {device}, without elements>", self.made.shape()));
        }
        let tensor = self.tensor().detach();
        let text = py.detach(|| tensor.to_string());
        Ok(format!("Tensor({}, dtype={dtype}, device='{device}'{tail})", text.replace('\n', "\n       ")))
    }

    /// The same tensor on another executor, or on a device named as `Executor` names it: copied through the host where that is another device.
    #[pyo3(signature = (executor, *, stream = None))]
    fn to(&self, py: Python<'_>, executor: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let _ = stream;
        let context = host::context(py, executor)?;
        self.context.check()?;
        context.check()?;
        let tensor = self.tensor();
        let moved = py.detach(|| tensor.to(&context.executor)).map_err(raise)?;
        let is_same = context.executor.device().same(self.context.executor.device());
        let shared = if is_same { self.sharing().clone().into() } else { OnceLock::new() };
        Ok(Self { context, shared, made: moved, leaf: OnceLock::new() })
    }

    /// As `to`: the array API standard's name.
    #[pyo3(signature = (device, /, *, stream = None))]
    fn to_device(&self, py: Python<'_>, device: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        if device.extract::<&str>().is_ok_and(|name| name == self.context.backend) {
            return Ok(self.view(self.tensor().clone()));
        }
        self.to(py, device, stream)
    }

    /// Waits until its elements are computed, and reports what failed.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.context.wait(py)?;
        let tensor = self.tensor();
        py.detach(|| settle(tensor)).map_err(raise)
    }

    #[pyo3(signature = (*, api_version = None))]
    fn __array_namespace__<'py>(&self, py: Python<'py>, api_version: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(version) = api_version.filter(|version| !["2021.12", "2022.12", "2023.12", "2024.12"].contains(version)) {
            return Err(PyValueError::new_err(format!("array API {version}: 2024.12 and before are known")));
        }
        Ok(py.import("elinvar.array_api")?.into_any())
    }

    /// A copy in memory of its own.
    fn __copy__(&self, py: Python<'_>) -> PyResult<Self> {
        let copied = self.context.call(py, [self], |[x]| x.detach().copy())?;
        Ok(Self::new(&self.context, copied))
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        let copied = self.__copy__(py)?;
        if self.leaf.get().is_some() {
            copied.become_leaf()?;
        }
        Ok(copied)
    }

    /// On load it is on the device of the name it had, or on the CPU where that is not there.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let state = (self.tobytes(py)?, dtype::name(self.dtype()), self.shape(py)?, self.context.backend.as_str(), self.leaf.get().is_some());
        Ok((py.import("elinvar._pickle")?.getattr("load")?, state.into_pyobject(py)?))
    }
}
