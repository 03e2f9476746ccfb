//! What a tensor of PyTorch's is: through the table of functions that it has for other libraries (DLPack's exchange API, of PyTorch 2.10 and later), else by
//! its attributes, which takes many times as long.

use std::{
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

use elinvar::{DType, Error, Executor, HostMemory, HostMemoryMut, Layout, MAX_RANK, Result, Shape, Tensor, kernels::TensorInfo};
use pyo3::{
    Bound, Py, PyAny, PyErr, PyResult, Python, ffi, intern,
    sync::PyOnceLock,
    types::{PyAnyMethods, PyCapsule, PyCapsuleMethods, PyString, PyTuple, PyTupleMethods},
};

use super::Place;
use crate::{dlpack, errors::raise};

/// A tensor of PyTorch's, as it describes itself.
#[derive(Clone, Copy)]
pub(super) struct Described {
    pub(super) address: usize,
    pub(super) dtype: DType,
    pub(super) layout: Layout,
}

impl Described {
    pub(super) fn info(&self) -> TensorInfo {
        TensorInfo { dtype: self.dtype, layout: self.layout }
    }

    /// Bytes from its first element to behind its last.
    pub(super) fn bytes(&self) -> usize {
        self.layout.span().end * self.dtype.size()
    }

    /// A tensor of its memory.
    ///
    /// # Safety
    /// Whenever the tensor is used, the memory is there, nothing else writes to it, and nothing else reads it unless it is read-only.
    pub(super) unsafe fn adopt(&self, executor: &Executor, place: Place, is_read_only: bool) -> Result<Tensor> {
        let Self { address, dtype, layout } = *self;
        match place {
            Place::Cpu if is_read_only => {
                // SAFETY: as the caller promises.
                let bytes: &'static [u8] = if address == 0 { &[] } else { unsafe { slice::from_raw_parts(address as *const u8, self.bytes()) } };
                executor.adopt_strided(dtype, &layout, HostMemory::new(Arc::new(bytes)))
            }
            Place::Cpu => {
                let pointer = NonNull::new(address as *mut u8).unwrap_or(NonNull::dangling());
                // SAFETY: as the caller promises.
                executor.adopt_mut(dtype, layout.shape(), unsafe { HostMemoryMut::new(pointer, self.bytes(), Arc::new(())) })
            }
            Place::Cuda { .. } => self.adopt_on_gpu(executor, is_read_only),
        }
    }

    #[cfg(not(target_vendor = "apple"))]
    fn adopt_on_gpu(&self, executor: &Executor, is_read_only: bool) -> Result<Tensor> {
        // SAFETY: as in `adopt`.
        let memory = unsafe { elinvar_cuda::CudaBackend::lend(self.address as u64, self.bytes(), is_read_only, Arc::new(())) };
        executor.adopt_raw(self.dtype, &self.layout, memory)
    }

    #[cfg(target_vendor = "apple")]
    fn adopt_on_gpu(&self, _: &Executor, _: bool) -> Result<Tensor> {
        Err(Error::internal("a tensor of a device that is not there"))
    }
}

/// `DLPackExchangeAPI`.
#[repr(C)]
struct Exchange {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocate: *const c_void,
    from_object: *const c_void,
    to_object: *const c_void,
    describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut dlpack::Header) -> c_int>,
    stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: the table is constant.
unsafe impl Send for Exchange {}
// SAFETY: as above.
unsafe impl Sync for Exchange {}

/// A type of tensors and its table.
struct Exchanged {
    tensors: Py<PyAny>,
    table: &'static Exchange,
}

/// The table of PyTorch's tensors, if they have one of a version that is known.
fn exchange(py: Python<'_>) -> Option<&'static Exchanged> {
    static TABLE: PyOnceLock<Option<Exchanged>> = PyOnceLock::new();
    let find = || -> PyResult<Exchanged> {
        let tensors = py.import("torch")?.getattr("Tensor")?;
        let capsule = tensors.getattr("__dlpack_c_exchange_api__")?;
        let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(c"dlpack_exchange_api"))?;
        // SAFETY: a capsule of this name holds such a table, which lives as long as the process.
        Ok(Exchanged { tensors: tensors.unbind(), table: unsafe { pointer.cast::<Exchange>().as_ref() } })
    };
    TABLE.get_or_init(py, || find().ok().filter(|found| found.table.major == 1)).as_ref()
}

/// What the table's function says of a tensor: where it is, and what; nothing where it does not say, or what is not known here.
fn exchanged(tensor: &Bound<'_, PyAny>) -> Option<(i64, Described)> {
    let py = tensor.py();
    let Exchanged { tensors, table } = exchange(py)?;
    let describe = table.describe.filter(|_| tensor.is_instance(tensors.bind(py)).unwrap_or(false))?;
    let mut header = dlpack::Header::EMPTY;
    // SAFETY: the table is that of the tensor's type; the header is written.
    if unsafe { describe(tensor.as_ptr(), &mut header) } != 0 {
        drop(PyErr::take(py));
        return None;
    }
    let ordinal = match header.device_type {
        dlpack::CPU => -1,
        dlpack::CUDA => i64::from(header.device_id),
        _ => return None,
    };
    let dtype = dlpack::dtype(&header).ok()?;
    let rank = usize::try_from(header.ndim).ok().filter(|rank| *rank <= MAX_RANK)?;
    let (mut shape, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
    if rank > 0 {
        let (extents, steps) = (NonNull::new(header.shape)?, NonNull::new(header.strides)?);
        for axis in 0..rank {
            // SAFETY: both have as many numbers as the tensor has axes, while nothing else is asked of it.
            let (extent, step) = unsafe { (extents.add(axis).read(), steps.add(axis).read()) };
            (shape[axis], strides[axis]) = (usize::try_from(extent).ok()?, step as isize);
        }
    }
    let layout = Shape::new(&shape[..rank]).and_then(|shape| Layout::strided(shape, &strides[..rank], 0)).ok()?;
    Some((ordinal, Described { address: header.data.addr() + header.byte_offset as usize, dtype, layout }))
}

/// What a tensor's attributes say.
fn attributes(tensor: &Bound<'_, PyAny>) -> PyResult<(i64, Described)> {
    let py = tensor.py();
    let is = |name: &Bound<'_, PyString>| tensor.getattr(name)?.is_truthy();
    if !is(intern!(py, "is_cpu"))? && !is(intern!(py, "is_cuda"))? {
        let device = tensor.getattr(intern!(py, "device"))?;
        return Err(raise(Error::invalid_argument(format!("a tensor on {device}: move it to the CPU or to a GPU of NVIDIA's"))));
    }
    let ordinal: i64 = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
    let dtype = dtype_of(py, &tensor.getattr(intern!(py, "dtype"))?)?;
    let shape = tensor.getattr(intern!(py, "shape"))?;
    let shape = shape.cast::<PyTuple>()?.iter_borrowed().map(|extent| extent.extract()).collect::<PyResult<Vec<usize>>>()?;
    let strides = tensor.call_method0(intern!(py, "stride"))?;
    let strides = strides.cast::<PyTuple>()?.iter_borrowed().map(|stride| stride.extract()).collect::<PyResult<Vec<isize>>>()?;
    let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
    let layout = Shape::new(&shape).and_then(|shape| Layout::strided(shape, &strides, 0)).map_err(raise)?;
    Ok((ordinal, Described { address, dtype, layout }))
}

/// PyTorch's types by the address of their only object.
fn dtype_of(py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    static TYPES: PyOnceLock<Vec<(Py<PyAny>, DType)>> = PyOnceLock::new();
    let types = TYPES.get_or_try_init(py, || {
        let torch = py.import("torch")?;
        let name = |dtype: DType| match dtype {
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F64 => "float64",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::U8 => "uint8",
            DType::U16 => "uint16",
            DType::U32 => "uint32",
            DType::U64 => "uint64",
            DType::Bool => "bool",
        };
        let all = DType::ALL.iter().filter_map(|&dtype| torch.getattr(name(dtype)).ok().map(|object| Ok((object.unbind(), dtype))));
        all.collect::<PyResult<Vec<_>>>()
    })?;
    let found = types.iter().find(|(object, _)| object.is(dtype)).map(|(_, dtype)| *dtype);
    found.ok_or_else(|| raise(Error::invalid_argument(format!("a tensor of {dtype}: cast it to float32, float16 or bfloat16 first"))))
}

/// Where a call's tensors are, all of them.
#[derive(Default)]
pub(super) struct Call {
    place: Option<i64>,
}

impl Call {
    pub(super) fn describe(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<Described> {
        let (ordinal, described) = match exchanged(tensor) {
            Some(found) if DType::ALL.contains(&found.1.dtype) => found,
            _ => attributes(tensor)?,
        };
        match self.place {
            Some(place) if place != ordinal => {
                let name = |ordinal: i64| if ordinal < 0 { "the CPU".to_owned() } else { format!("GPU {ordinal}") };
                let message = format!("tensors on {} and on {}: move them to one device", name(place), name(ordinal));
                return Err(raise(Error::invalid_argument(message)));
            }
            Some(_) => {}
            None => self.place = Some(ordinal),
        }
        Ok(described)
    }

    pub(super) fn all(&mut self, tensors: &[Option<Bound<'_, PyAny>>]) -> PyResult<Vec<Option<Described>>> {
        tensors.iter().map(|tensor| tensor.as_ref().map(|tensor| self.describe(tensor)).transpose()).collect()
    }

    pub(super) fn given(&mut self, tensors: &[Bound<'_, PyAny>]) -> PyResult<Vec<Described>> {
        tensors.iter().map(|tensor| self.describe(tensor)).collect()
    }

    /// Where they are, and the stream on which PyTorch's own work goes on there.
    pub(super) fn place(&self, py: Python<'_>) -> PyResult<Place> {
        let Some(Ok(ordinal)) = self.place.map(usize::try_from) else { return Ok(Place::Cpu) };
        let mut stream = ptr::null_mut();
        let stream = match exchange(py).and_then(|found| found.table.stream) {
            // SAFETY: a GPU that PyTorch has a tensor on; the stream is written.
            Some(ask) if unsafe { ask(dlpack::CUDA, ordinal as i32, &mut stream) } == 0 => stream.addr(),
            Some(_) => return Err(PyErr::fetch(py)),
            None => py.import("torch")?.getattr("_C")?.call_method1("_cuda_getCurrentRawStream", (ordinal,))?.extract()?,
        };
        Ok(Place::Cuda { ordinal, stream })
    }
}
