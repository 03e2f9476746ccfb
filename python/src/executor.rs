//! Executors: devices, and tensors made on them.

use std::{num::NonZeroUsize, sync::Arc};

use elinvar::{BackendType, DType as Element, Error, Place, Precision, Storage, World};
use pyo3::{
    Bound, Py, PyAny, PyRef, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyclass, pymethods,
    types::{PyAnyMethods, PyBool, PyDict, PyFloat, PyInt, PyTuple},
};

use crate::{
    context::Context,
    cuda, dtype,
    errors::raise,
    host, ops,
    recording::Recorded,
    tensor::{Tensor, scalar},
};

/// A device with the choices that go with it.
///
/// `backend` is 'auto' (a GPU before the CPU, or what the environment variable ELINVAR_DEVICE names), 'cpu', 'cuda', 'cuda:1', 'metal' or 'metal-sim';
/// or several as one, which share models between them: 'cuda:0,cuda:1', or 'cpu,cpu' to try that without GPUs.
/// `precision` of matrix products and attention is 'strict' (the same bits on every device), 'invariant' (the same bits of a row on one device) or 'fast'; None
/// means fast.
/// `threads` limits those of the CPU.
///
/// Raises `DeviceError` where the device is not there, and `ValueError` for other names.
#[pyclass(frozen, module = "elinvar", weakref)]
pub(crate) struct Executor(pub(crate) Arc<Context>);

fn precision_named(name: &str) -> PyResult<Precision> {
    match name {
        "strict" => Ok(Precision::Strict),
        "invariant" => Ok(Precision::Invariant),
        "fast" => Ok(Precision::Fast),
        other => Err(PyValueError::new_err(format!("precision '{other}': 'strict', 'invariant' or 'fast' is expected"))),
    }
}

/// The extents that an argument says: a whole number or a sequence of them.
pub(crate) fn extents(shape: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let wrong = |_| PyTypeError::new_err(format!("shape {shape}: whole numbers from 0 on are expected"));
    match shape.extract::<usize>() {
        Ok(extent) => Ok(vec![extent]),
        Err(_) => shape.extract().map_err(wrong),
    }
}

fn element(dtype: Option<&Bound<'_, PyAny>>, default: Element) -> PyResult<Element> {
    dtype.map_or(Ok(default), dtype::parse)
}

impl Executor {
    fn made(&self, py: Python<'_>, make: impl FnOnce(&elinvar::Executor) -> elinvar::Result<elinvar::Tensor> + Send) -> PyResult<Tensor> {
        self.0.check()?;
        let executor = self.0.current();
        let made = py.detach(|| make(&executor)).map_err(raise)?;
        Ok(Tensor::new(&self.0, made))
    }
}

#[pymethods]
#[allow(clippy::wrong_self_convention, reason = "the array API's name")]
impl Executor {
    #[new]
    #[pyo3(signature = (backend = "auto", precision = None, threads = None))]
    fn py_new(py: Python<'_>, backend: &str, precision: Option<&str>, threads: Option<usize>) -> PyResult<Self> {
        let precision = precision.map(precision_named).transpose()?;
        let kinds: Vec<BackendType> = match backend {
            "auto" => BackendType::from_environment().map_err(raise)?.into_iter().collect(),
            names => BackendType::parse_list(names).map_err(raise)?,
        };
        let threads = match threads {
            Some(threads) if backend == "cpu" => {
                Some(NonZeroUsize::new(threads).ok_or_else(|| PyValueError::new_err("threads=0: at least one is expected"))?)
            }
            Some(_) => return Err(PyValueError::new_err(format!("threads= is for backend='cpu', not '{backend}'"))),
            None => None,
        };
        let open = || {
            let on_gpu = if threads.is_none() && kinds.len() < 2 { cuda::open(kinds.first().copied())? } else { None };
            Ok(match (on_gpu, &kinds[..], threads) {
                (Some((executor, streams)), _, _) => (executor, Some(streams)),
                (None, _, Some(threads)) => (elinvar::Executor::new_cpu(threads)?, None),
                (None, [], None) => (elinvar::Executor::new_auto()?, None),
                (None, &[kind], None) => (elinvar::Executor::new_with_backend(kind)?, None),
                (None, several, None) => (elinvar::Executor::group(several)?, None),
            })
        };
        let (executor, streams) = py.detach(open).map_err(raise)?;
        let executor = precision.map_or(executor.clone(), |precision| executor.with_precision(precision));
        let names: Vec<_> = kinds.iter().map(ToString::to_string).collect();
        let backend = if names.is_empty() { executor.properties().kind.to_string() } else { names.join(",") };
        Ok(Self(Context::new(executor, backend, streams)))
    }

    /// The device of each of several processes, which `torchrun` started, as one: matrices are shared by their rows, and each process runs the same program on
    /// the same input. `backend` is as for `--devices`: one GPU named is the first process's. The processes meet at MASTER_ADDR and MASTER_PORT.
    #[staticmethod]
    #[pyo3(signature = (backend = "auto", precision = None))]
    fn join(py: Python<'_>, backend: &str, precision: Option<&str>) -> PyResult<Self> {
        let precision = precision.map(precision_named).transpose()?;
        let named = match backend {
            "auto" => BackendType::from_environment().map_err(raise)?.into_iter().collect(),
            names => BackendType::parse_list(names).map_err(raise)?,
        };
        let open = || {
            let missing = || Error::invalid_argument("WORLD_SIZE is not set, or 1: start the program with torchrun");
            let place = Place::from_environment()?.ok_or_else(missing)?;
            let backends = BackendType::of_process(&named, &place)?;
            Ok((elinvar::Executor::among(World::join(place)?, &backends)?, backends))
        };
        let (executor, backends) = py.detach(open).map_err(raise)?;
        let executor = precision.map_or(executor.clone(), |precision| executor.with_precision(precision));
        let names: Vec<_> = backends.iter().map(ToString::to_string).collect();
        Ok(Self(Context::new(executor, names.join(","), None)))
    }

    /// The number of this process among those that `join` met: 0 for one alone.
    #[getter]
    fn process(&self) -> usize {
        self.0.executor.world().map_or(0, |world| world.place().rank)
    }

    /// The device's name: 'cpu', 'cuda', 'cuda:1', 'metal', 'metal-sim'; of several 'cuda,cuda:1'.
    #[getter]
    fn backend(&self) -> &str {
        &self.0.backend
    }

    /// How many devices it is: more than one only of a group.
    #[getter]
    fn ranks(&self) -> usize {
        self.0.executor.ranks()
    }

    /// The hardware's name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.executor.properties().name
    }

    /// 'strict', 'invariant' or 'fast'.
    #[getter]
    fn precision(&self) -> String {
        self.0.executor.precision().to_string()
    }

    /// The same device with another precision; tensors of both may be mixed.
    fn with_precision(&self, precision: &str) -> PyResult<Self> {
        let executor = self.0.executor.with_precision(precision_named(precision)?);
        Ok(Self(Context::new(executor, self.0.backend.clone(), self.0.streams.clone())))
    }

    /// Waits until all that was asked of the device is done, and reports what failed.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        self.0.wait(py)?;
        let executor = self.0.executor.clone();
        py.detach(|| executor.empty(Element::U8, &[1], Storage::Automatic).and_then(|mark| mark.to_bytes())).map(drop).map_err(raise)
    }

    fn __repr__(&self) -> String {
        format!("<elinvar.Executor {}: {}, {}>", self.0.backend, self.0.executor.properties().name, self.0.executor.precision())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Executor>().is_ok_and(|other| Arc::ptr_eq(&self.0, &other.get().0))
    }

    fn __hash__(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// A tensor of an array, a number or nested lists.
    ///
    /// `copy=None` shares the memory of NumPy's arrays and of what has `__dlpack__` where the device reaches it and no conversion is needed;
    /// `True` always copies, `False` raises `ValueError` where it would have to. float64 becomes float32 unless `dtype` says float64.
    #[pyo3(signature = (array, dtype = None, copy = None, requires_grad = false))]
    fn tensor(&self, array: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>, copy: Option<bool>, requires_grad: bool) -> PyResult<Tensor> {
        self.0.check()?;
        let made = host::tensor(&self.0, array, dtype.map(dtype::parse).transpose()?, copy)?;
        if requires_grad {
            made.become_leaf()?;
        }
        Ok(made)
    }

    /// A tensor in the memory of an object that has `__dlpack__`, such as a PyTorch tensor: without a copy on the CPU, unless `copy=True`.
    #[pyo3(signature = (array, copy = None))]
    #[allow(clippy::wrong_self_convention, reason = "DLPack's name for it")]
    fn from_dlpack(&self, array: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
        self.0.check()?;
        crate::dlpack::import(&self.0, array, copy)
    }

    /// Zeros.
    #[pyo3(signature = (shape, dtype = None))]
    fn zeros(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Tensor> {
        let (dims, dtype) = (extents(shape)?, element(dtype, Element::F32)?);
        self.made(py, |executor| executor.full(dtype, &dims, 0))
    }

    /// Ones.
    #[pyo3(signature = (shape, dtype = None))]
    fn ones(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Tensor> {
        let (dims, dtype) = (extents(shape)?, element(dtype, Element::F32)?);
        self.made(py, |executor| executor.ones(dtype, &dims))
    }

    /// Elements of one value; their type is that of the value (bool, int64 or float32) unless `dtype` says another.
    #[pyo3(signature = (shape, value, dtype = None))]
    fn full(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Tensor> {
        let default = if value.is_instance_of::<PyBool>() {
            Element::Bool
        } else if value.is_instance_of::<PyInt>() {
            Element::I64
        } else {
            Element::F32
        };
        let (dims, dtype, value) = (extents(shape)?, element(dtype, default)?, scalar(value)?);
        self.made(py, |executor| executor.full(dtype, &dims, value))
    }

    /// Elements that are not set yet.
    #[pyo3(signature = (shape, dtype = None))]
    fn empty(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Tensor> {
        let (dims, dtype) = (extents(shape)?, element(dtype, Element::F32)?);
        self.made(py, |executor| executor.empty(dtype, &dims, Storage::Automatic))
    }

    /// `start`, `start + step`, … before `stop`: with one argument from 0 to it. Whole numbers give int64, others float32.
    #[pyo3(signature = (start, stop = None, step = None, dtype = None))]
    fn arange(
        &self,
        py: Python<'_>,
        start: &Bound<'_, PyAny>,
        stop: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tensor> {
        let given = [Some(start), stop, step];
        let is_real = given.iter().flatten().any(|number| number.is_instance_of::<PyFloat>());
        let dtype = element(dtype, if is_real { Element::F32 } else { Element::I64 })?;
        let step = step.map_or(Ok(1.into()), scalar)?;
        let (start, stop) = match stop {
            Some(stop) => (scalar(start)?, scalar(stop)?),
            None => (0.into(), scalar(start)?),
        };
        self.made(py, |executor| executor.arange(dtype, start, stop, step))
    }

    /// The matrix `[n, m]` with ones on a diagonal, `k` to the right of the main one; `m` is `n` unless given.
    #[pyo3(signature = (n, m = None, k = 0, dtype = None))]
    fn eye(&self, py: Python<'_>, n: usize, m: Option<usize>, k: i64, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Tensor> {
        let dtype = element(dtype, Element::F32)?;
        let columns = m.unwrap_or(n) as i64;
        self.made(py, |executor| {
            let rows = executor.arange(Element::I64, k, k.saturating_add_unsigned(n as u64), 1)?.unsqueeze(1)?;
            rows.eq(&executor.arange(Element::I64, 0, columns, 1)?)?.cast(dtype)
        })
    }

    /// Numbers in [0, 1) as float32, the same for a seed on every device.
    #[pyo3(signature = (shape, seed))]
    fn rand(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, seed: u64) -> PyResult<Tensor> {
        let dims = extents(shape)?;
        self.made(py, |executor| executor.rand(&dims, seed))
    }

    /// Numbers of the normal distribution with mean 0 and deviation 1 as float32, the same for a seed on every device.
    #[pyo3(signature = (shape, seed))]
    fn randn(&self, py: Python<'_>, shape: &Bound<'_, PyAny>, seed: u64) -> PyResult<Tensor> {
        let dims = extents(shape)?;
        self.made(py, |executor| executor.randn(&dims, seed))
    }

    /// Runs an operator of the library by its name: `executor.apply("rms_norm", [x, weight], epsilon=1e-6)`.
    ///
    /// `inputs` are tensors in the operator's order, None for an absent one, or a dictionary by name. An operator of one result gives that, others a tuple;
    /// what is updated in place is no result. `elinvar.ops` has a function for each.
    #[pyo3(signature = (name, inputs, **attributes))]
    fn apply<'py>(&self, py: Python<'py>, name: &str, inputs: &Bound<'py, PyAny>, attributes: Option<&Bound<'py, PyDict>>) -> PyResult<Py<PyAny>> {
        ops::apply(py, &self.0, name, inputs, attributes)
    }

    /// Records what this thread asks of this executor's tensors in a `with` block, to be replayed: `with executor.record() as recording: y = x.exp()`.
    fn record(slf: PyRef<'_, Self>) -> Recorded {
        Recorded::new(slf.0.clone())
    }

    #[pyo3(signature = (data, dtype, shape, requires_grad))]
    fn _from_bytes(&self, py: Python<'_>, data: &[u8], dtype: &Bound<'_, PyAny>, shape: Vec<usize>, requires_grad: bool) -> PyResult<Tensor> {
        let dtype = dtype::parse(dtype)?;
        let made = self.made(py, |executor| executor.tensor_from_bytes(dtype, &shape, data))?;
        if requires_grad {
            made.become_leaf()?;
        }
        Ok(made)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let arguments = (self.0.backend.as_str(), self.precision());
        Ok((py.import("elinvar")?.getattr("Executor")?, pyo3::IntoPyObject::into_pyobject(arguments, py)?))
    }
}
