//! NumPy's arrays as tensors, and tensors as NumPy's arrays.

use std::{ptr::NonNull, sync::Arc};

use elinvar::{DType as Element, DeviceKind, HostMemory, HostMemoryMut, Layout, Shape};
use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    intern, pyclass, pymethods,
    sync::PyOnceLock,
    types::{PyAnyMethods, PyDict, PyDictMethods, PyString, PyStringMethods, PyType},
};

use crate::{
    context::{Context, settle},
    dtype,
    errors::raise,
    executor::Executor,
    tensor::Tensor,
};

/// An executor, or the one that stands for a device's name.
pub(crate) fn context(py: Python<'_>, of: &Bound<'_, PyAny>) -> PyResult<Arc<Context>> {
    if let Ok(executor) = of.cast::<Executor>() {
        return Ok(executor.get().0.clone());
    }
    if !of.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!("{of} is no elinvar.Executor, nor the name of a device")));
    }
    let executor = py.import("elinvar._devices")?.getattr("executor")?.call1((of,))?;
    Ok(executor.cast::<Executor>()?.get().0.clone())
}

/// Memory of another library's, in the host's reach.
pub(crate) struct Lent {
    pub(crate) address: usize,
    pub(crate) dtype: Element,
    pub(crate) shape: Vec<usize>,
    /// In elements; row-major if there are none.
    pub(crate) strides: Option<Vec<isize>>,
    pub(crate) is_read_only: bool,
    /// Keeps the memory.
    pub(crate) owner: Py<PyAny>,
}

/// Bytes that a Python object keeps.
struct Kept {
    address: usize,
    bytes: usize,
    _owner: Py<PyAny>,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the owner keeps these bytes, and what is shared with other libraries is read only while a call of Python's waits.
        unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.address), self.bytes) }
    }
}

impl Lent {
    /// As a tensor of an executor: in the same memory where the device's kernels reach it, and `copy` allows it.
    ///
    /// # Errors
    /// A copy is needed and not allowed.
    pub(crate) fn into_tensor(self, py: Python<'_>, context: &Arc<Context>, copy: Option<bool>) -> PyResult<Tensor> {
        let shape = Shape::new(&self.shape).map_err(raise)?;
        let executor = &context.executor;
        if shape.elements() == 0 {
            return executor.tensor_from_bytes(self.dtype, &self.shape, &[]).map(|made| Tensor::new(context, made)).map_err(raise);
        }
        let strides = self.strides.unwrap_or_else(|| shape.contiguous_strides()[..shape.rank()].to_vec());
        // Elements before the first, where strides are negative.
        let before: isize = self.shape.iter().zip(&strides).map(|(extent, stride)| (*extent as isize - 1) * (-stride).max(0)).sum();
        let layout = Layout::strided(shape, &strides, before.unsigned_abs()).map_err(raise)?;
        let address = self.address.wrapping_sub(before.unsigned_abs() * self.dtype.size());
        let bytes = layout.span().end * self.dtype.size();
        let reached = context.kind() == Some(DeviceKind::Cpu) && address.is_multiple_of(self.dtype.size());
        if !reached || copy == Some(true) {
            if copy == Some(false) {
                return Err(PyValueError::new_err(format!("the array cannot be used where it lies by {}, and copy=False", context.backend)));
            }
            let owner = self.owner.clone_ref(py);
            let copied = py.detach(|| {
                let kept = Kept { address, bytes, _owner: owner };
                if layout.is_contiguous() {
                    return executor.tensor_from_bytes(self.dtype, &self.shape, kept.as_ref());
                }
                let copied = executor.adopt_strided(self.dtype, &layout, HostMemory::new(Arc::new(kept)))?.copy()?;
                settle(&copied).map(|()| copied)
            });
            return copied.map(|made| Tensor::new(context, made)).map_err(raise);
        }
        let made = if self.is_read_only {
            executor.adopt_strided(self.dtype, &layout, HostMemory::new(Arc::new(Kept { address, bytes, _owner: self.owner })))
        } else {
            let pointer = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
            let pointer = pointer.ok_or_else(|| PyValueError::new_err("the array has no memory"))?;
            // SAFETY: as in `Kept`; the array may be written.
            executor.adopt_strided_mut(self.dtype, &layout, unsafe { HostMemoryMut::new(pointer, bytes, Arc::new(self.owner)) })
        };
        let made = Tensor::new(context, made.map_err(raise)?);
        made.share();
        Ok(made)
    }
}

/// What `Executor.tensor` makes of an object.
pub(crate) fn tensor(context: &Arc<Context>, object: &Bound<'_, PyAny>, dtype: Option<Element>, copy: Option<bool>) -> PyResult<Tensor> {
    let py = object.py();
    if let Ok(tensor) = object.cast::<Tensor>() {
        return of_tensor(py, context, tensor.get(), dtype, copy);
    }
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let is_array = object.is_instance(NDARRAY.import(py, "numpy", "ndarray")?)?;
    if is_array {
        // The type's text is read faster than its name.
        let interface = object.getattr(intern!(py, "__array_interface__"))?;
        if let Some(found) = found(&interface)?
            && dtype.is_none_or(|wanted| wanted == found)
            && (found != Element::F64 || dtype.is_some())
        {
            return lent(object, &interface, found)?.into_tensor(py, context, copy);
        }
    } else if object.hasattr(intern!(py, "__dlpack__"))? {
        let made = crate::dlpack::import(context, object, copy)?;
        return match dtype.filter(|dtype| *dtype != made.dtype()) {
            Some(_) if copy == Some(false) => Err(needs_copy(made.dtype(), dtype)),
            Some(dtype) => made.context.call(py, [&made], |[x]| x.cast(dtype)).map(|cast| Tensor::new(context, cast)),
            None => Ok(made),
        };
    }
    converted(context, object, is_array, dtype, copy)
}

/// What `Executor.tensor` makes of lists, numbers and arrays of other types.
fn converted(context: &Arc<Context>, object: &Bound<'_, PyAny>, is_array: bool, dtype: Option<Element>, copy: Option<bool>) -> PyResult<Tensor> {
    let py = object.py();
    let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (object,))?;
    let found = array.getattr(intern!(py, "dtype"))?;
    let name: String = found.getattr(intern!(py, "name"))?.extract()?;
    let known = dtype::named(&name);
    // NumPy's own precision is that of few devices.
    let wanted = dtype.or(if known == Some(Element::F64) { Some(Element::F32) } else { known });
    let Some(wanted) = wanted else {
        return Err(PyTypeError::new_err(format!("an array of {name}: Elinvar has no such type; convert it with astype first, or give dtype=")));
    };
    let interface = |array: &Bound<'_, PyAny>, dtype| lent(array, &array.getattr(intern!(py, "__array_interface__"))?, dtype);
    if known == Some(wanted) && found.getattr(intern!(py, "isnative"))?.extract::<bool>()? {
        if copy == Some(false) && !is_array {
            return Err(PyValueError::new_err(format!("{} as a tensor needs a copy, and copy=False", object.get_type())));
        }
        return interface(&array, wanted)?.into_tensor(py, context, copy);
    }
    if copy == Some(false) {
        return Err(PyValueError::new_err(format!("an array of {name} as {} needs a copy, and copy=False", dtype::name(wanted))));
    }
    let through = if wanted == Element::BF16 { Element::F32 } else { wanted };
    let converted = array.call_method1(intern!(py, "astype"), (dtype::numpy(py, through)?,))?;
    let made = interface(&converted, through)?.into_tensor(py, context, None)?;
    if through == wanted { Ok(made) } else { context.call(py, [&made], |[x]| x.cast(wanted)).map(|cast| Tensor::new(context, cast)) }
}

/// The type that `__array_interface__` says, if that is one of Elinvar's: bfloat16 has no letter of its own.
fn found(interface: &Bound<'_, PyAny>) -> PyResult<Option<Element>> {
    let py = interface.py();
    let text = interface.cast::<PyDict>()?.get_item(intern!(py, "typestr"))?;
    let Some(text) = text else { return Ok(None) };
    let text = text.cast::<PyString>()?.to_cow()?;
    Ok(Element::PROGRAMS.iter().copied().find(|dtype| *dtype != Element::BF16 && kind(*dtype) == text))
}

fn needs_copy(found: Element, wanted: Option<Element>) -> pyo3::PyErr {
    let wanted = wanted.map_or("a copy", dtype::name);
    PyValueError::new_err(format!("a tensor of {} as {wanted} needs a copy, and copy=False", dtype::name(found)))
}

fn of_tensor(py: Python<'_>, context: &Arc<Context>, tensor: &Tensor, dtype: Option<Element>, copy: Option<bool>) -> PyResult<Tensor> {
    context.check()?;
    let is_here = context.executor.device().same(tensor.context.executor.device());
    let cast = dtype.filter(|dtype| *dtype != tensor.dtype());
    if copy == Some(false) && (!is_here || cast.is_some()) {
        return Err(needs_copy(tensor.dtype(), cast));
    }
    if is_here && cast.is_none() && copy != Some(true) {
        return Ok(tensor.view(tensor.tensor().clone()));
    }
    let made = tensor.context.call(py, [tensor], |[x]| match cast {
        Some(dtype) => x.cast(dtype),
        None if is_here => x.copy(),
        None => Ok(x.clone()),
    })?;
    let moved = if is_here { made } else { py.detach(|| made.to(&context.executor)).map_err(raise)? };
    Ok(Tensor::new(context, moved))
}

/// What `__array_interface__` says of an array whose elements have this type.
fn lent(array: &Bound<'_, PyAny>, interface: &Bound<'_, PyAny>, dtype: Element) -> PyResult<Lent> {
    let py = array.py();
    let interface = interface.cast::<PyDict>()?;
    let missing = || PyTypeError::new_err("__array_interface__ is incomplete: data and shape are expected");
    let (address, is_read_only): (usize, bool) = interface.get_item(intern!(py, "data"))?.ok_or_else(missing)?.extract()?;
    let shape: Vec<usize> = interface.get_item(intern!(py, "shape"))?.ok_or_else(missing)?.extract()?;
    let strides = interface.get_item(intern!(py, "strides"))?.filter(|strides| !strides.is_none());
    let strides = strides.map(|strides| strides.extract::<Vec<isize>>()).transpose()?;
    let size = dtype.size() as isize;
    let Some(strides) = strides else {
        return Ok(Lent { address, dtype, shape, strides: None, is_read_only, owner: array.clone().unbind() });
    };
    if strides.iter().all(|stride| stride % size == 0) {
        let strides = Some(strides.iter().map(|stride| stride / size).collect());
        return Ok(Lent { address, dtype, shape, strides, is_read_only, owner: array.clone().unbind() });
    }
    // A field of records lies at strides that are no whole elements.
    let whole = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "ascontiguousarray"), (array,))?;
    lent(&whole, &whole.getattr(intern!(py, "__array_interface__"))?, dtype)
}

/// A tensor's memory, as NumPy sees it.
#[pyclass(frozen, module = "elinvar")]
struct Memory {
    address: usize,
    is_read_only: bool,
    kind: &'static str,
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// Keeps the memory.
    _tensor: elinvar::Tensor,
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", self.kind)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("strides", pyo3::types::PyTuple::new(py, &self.strides)?)?;
        interface.set_item("data", (self.address, self.is_read_only))?;
        Ok(interface)
    }
}

/// How `__array_interface__` names a type; bfloat16 as the bits that it has.
fn kind(dtype: Element) -> &'static str {
    const LITTLE: bool = cfg!(target_endian = "little");
    let (little, big) = match dtype {
        Element::F32 => ("<f4", ">f4"),
        Element::F16 => ("<f2", ">f2"),
        Element::F64 => ("<f8", ">f8"),
        Element::BF16 | Element::U16 => ("<u2", ">u2"),
        Element::I8 => ("|i1", "|i1"),
        Element::I16 => ("<i2", ">i2"),
        Element::I32 => ("<i4", ">i4"),
        Element::I64 => ("<i8", ">i8"),
        Element::U8 => ("|u1", "|u1"),
        Element::U32 => ("<u4", ">u4"),
        Element::U64 => ("<u8", ">u8"),
        Element::Bool => ("|b1", "|b1"),
    };
    if LITTLE { little } else { big }
}

/// The address of a tensor's first element in the host's memory, after all that was asked of its device, and whether it may only be read. Only for the CPU.
///
/// # Errors
/// Its elements could not be computed.
pub(crate) fn address(tensor: &elinvar::Tensor) -> elinvar::Result<(usize, bool)> {
    let (binding, mut address) = (tensor.binding()?, 0);
    tensor
        .executor()
        .device()
        .view(binding.buffer(), binding.offset(), binding.bytes(), &mut |bytes| address = bytes.as_ptr().expose_provenance())?;
    let first = tensor.layout().origin() * tensor.dtype().size();
    Ok((address + first, binding.buffer().raw().is_read_only() || tensor.is_tracked()))
}

/// A tensor as a NumPy array.
pub(crate) fn numpy<'py>(py: Python<'py>, tensor: &Tensor, copy: Option<bool>) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import(intern!(py, "numpy"))?;
    let dtype = tensor.dtype();
    // Before anything is computed for it.
    let numpy_type = if dtype == Element::BF16 { Some(dtype::numpy(py, dtype)?) } else { None };
    tensor.context.check()?;
    let shape = tensor.tensor().shape().to_vec();
    let is_here = tensor.context.kind() == Some(DeviceKind::Cpu) && tensor.tensor().shape().elements() > 0;
    let whole = if is_here && copy != Some(true) {
        let source = tensor.tensor().clone();
        tensor.context.wait(py)?;
        let (address, is_read_only) = py.detach(|| address(&source)).map_err(raise)?;
        tensor.share();
        let strides = source.layout().strides().iter().map(|stride| stride * dtype.size() as isize).collect();
        let memory = Memory { address, is_read_only, kind: kind(dtype), shape, strides, _tensor: source };
        module.call_method1(intern!(py, "asarray"), (Py::new(py, memory)?,))?
    } else {
        let is_empty = tensor.tensor().shape().elements() == 0;
        if copy == Some(false) && !is_empty {
            return Err(PyValueError::new_err(format!("a tensor on {} as a NumPy array needs a copy, and copy=False", tensor.context.backend)));
        }
        if is_empty {
            module.call_method1(intern!(py, "empty"), (shape, kind(dtype)))?
        } else {
            let bytes = pyo3::types::PyByteArray::new(py, &tensor.bytes(py)?);
            module.call_method1(intern!(py, "frombuffer"), (bytes, kind(dtype)))?.call_method1(intern!(py, "reshape"), (shape,))?
        }
    };
    match numpy_type {
        Some(dtype) => whole.call_method1(intern!(py, "view"), (dtype,)),
        None => Ok(whole),
    }
}
