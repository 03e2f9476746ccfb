//! What a tensor of PyTorch's is: through the table of functions that it has for other libraries (DLPack's exchange API, of PyTorch 2.10 and later), else by
//! its attributes, which takes many times as long.

use std::{
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
    slice,
};

use elinvar::{DType, Error, Layout, Result, Shape};
use pyo3::{
    Bound, Py, PyAny, PyErr, PyResult, Python, ffi, intern,
    sync::PyOnceLock,
    types::{PyAnyMethods, PyCapsule, PyCapsuleMethods, PyString, PyTuple, PyTupleMethods},
};

use super::Place;
use crate::{dlpack, errors::raise};

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

/// A tensor: where it is, its first element's address, and what it is.
struct Described<'a> {
    ordinal: i64,
    address: usize,
    dtype: DType,
    shape: &'a [i64],
    strides: &'a [i64],
}

/// Has `see` see what the table's function says of a tensor; nothing where it does not say, or what is not known here.
fn exchanged<R>(tensor: &Bound<'_, PyAny>, see: impl FnOnce(Described<'_>) -> R) -> Option<R> {
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
    let dtype = dlpack::dtype(&header).ok().filter(|dtype| DType::ALL.contains(dtype))?;
    let rank = usize::try_from(header.ndim).ok()?;
    let numbers = |first: *mut i64| -> Option<&[i64]> {
        // SAFETY: as many numbers as the tensor has axes, while nothing else is asked of it.
        if rank == 0 { Some(&[]) } else { NonNull::new(first).map(|first| unsafe { slice::from_raw_parts(first.as_ptr(), rank) }) }
    };
    let (shape, strides) = (numbers(header.shape)?, numbers(header.strides)?);
    Some(see(Described { ordinal, address: header.data.addr() + header.byte_offset as usize, dtype, shape, strides }))
}

/// The same by a tensor's attributes.
fn attributes<R>(tensor: &Bound<'_, PyAny>, see: impl FnOnce(Described<'_>) -> R) -> PyResult<R> {
    let py = tensor.py();
    let is = |name: &Bound<'_, PyString>| tensor.getattr(name)?.is_truthy();
    if !is(intern!(py, "is_cpu"))? && !is(intern!(py, "is_cuda"))? {
        let device = tensor.getattr(intern!(py, "device"))?;
        return Err(raise(Error::invalid_argument(format!("a tensor on {device}: move it to the CPU or to a GPU of NVIDIA's"))));
    }
    let numbers = |object: Bound<'_, PyAny>| object.cast::<PyTuple>()?.iter_borrowed().map(|number| number.extract()).collect::<PyResult<Vec<i64>>>();
    let ordinal = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
    let dtype = dtype_of(py, &tensor.getattr(intern!(py, "dtype"))?)?;
    let (shape, strides) = (numbers(tensor.getattr(intern!(py, "shape"))?)?, numbers(tensor.call_method0(intern!(py, "stride"))?)?);
    let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
    Ok(see(Described { ordinal, address, dtype, shape: &shape, strides: &strides }))
}

/// PyTorch's types, those that it has.
fn types(py: Python<'_>) -> PyResult<&'static [(Py<PyAny>, DType)]> {
    static TYPES: PyOnceLock<Vec<(Py<PyAny>, DType)>> = PyOnceLock::new();
    let found = TYPES.get_or_try_init(py, || {
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
    });
    found.map(Vec::as_slice)
}

/// The type of this object of PyTorch's, which is the only one for it.
fn dtype_of(py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<DType> {
    let found = types(py)?.iter().find(|(object, _)| object.is(dtype)).map(|(_, dtype)| *dtype);
    found.ok_or_else(|| raise(Error::invalid_argument(format!("a tensor of {dtype}: cast it to float32, float16 or bfloat16 first"))))
}

/// PyTorch's object for a type.
pub(super) fn torch_type(py: Python<'_>, dtype: DType) -> PyResult<&Bound<'_, PyAny>> {
    let found = types(py)?.iter().find(|(_, known)| *known == dtype).map(|(object, _)| object.bind(py));
    found.ok_or_else(|| raise(Error::unsupported(format!("this PyTorch has no {dtype}"))))
}

/// A call's tensors.
pub(super) struct Call {
    /// Where all of them are.
    place: Option<i64>,
    /// All but their addresses: what identifies the call.
    key: Vec<u8>,
    /// How many there are, those that are absent included.
    count: usize,
    /// Of those that are there.
    addresses: Vec<usize>,
}

impl Default for Call {
    fn default() -> Self {
        Self { place: None, key: Vec::with_capacity(256), count: 0, addresses: Vec::with_capacity(8) }
    }
}

impl Call {
    /// Adds a tensor.
    ///
    /// # Errors
    /// It is elsewhere than those before, or of a type that no operator takes.
    fn add(&mut self, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        match exchanged(tensor, |described| self.append(&described)) {
            Some(added) => added,
            None => attributes(tensor, |described| self.append(&described))?,
        }
    }

    fn append(&mut self, tensor: &Described<'_>) -> PyResult<()> {
        match self.place {
            Some(place) if place != tensor.ordinal => {
                let name = |ordinal: i64| if ordinal < 0 { "the CPU".to_owned() } else { format!("GPU {ordinal}") };
                let message = format!("tensors on {} and on {}: move them to one device", name(place), name(tensor.ordinal));
                return Err(raise(Error::invalid_argument(message)));
            }
            Some(_) => {}
            None => self.place = Some(tensor.ordinal),
        }
        let Some(dtype) = DType::ALL.iter().position(|dtype| *dtype == tensor.dtype) else { return Err(raise(Error::internal("a type of none"))) };
        self.key.extend_from_slice(&[1, dtype as u8, tensor.shape.len() as u8]);
        self.key.extend_from_slice(bytemuck::cast_slice(tensor.shape));
        self.key.extend_from_slice(bytemuck::cast_slice(tensor.strides));
        self.count += 1;
        self.addresses.push(tensor.address);
        Ok(())
    }

    /// Adds an argument that is absent.
    pub(super) fn add_absent(&mut self) {
        self.key.push(0);
        self.count += 1;
    }

    /// Adds tensors of which some are absent.
    pub(super) fn add_all<'a, 'py: 'a>(&mut self, tensors: impl IntoIterator<Item = Option<&'a Bound<'py, PyAny>>>) -> PyResult<()> {
        for tensor in tensors {
            match tensor.filter(|tensor| !tensor.is_none()) {
                Some(tensor) => self.add(tensor)?,
                None => self.add_absent(),
            };
        }
        Ok(())
    }

    /// Distinguishes calls on the same tensors.
    pub(super) fn mark(&mut self, marks: &[usize]) {
        self.key.extend_from_slice(bytemuck::cast_slice(marks));
    }

    /// Whether all of them are on the CPU.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.place.is_none_or(|ordinal| ordinal < 0)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Type and layout of each tensor, as the key has them.
    ///
    /// # Errors
    /// A shape beyond the library's limits.
    pub(super) fn operands(&self) -> Result<Vec<Option<(DType, Layout)>>> {
        let short = || Error::internal("a call's key ends early");
        let mut rest = &*self.key;
        let mut take = |count: usize| rest.split_off(..count).ok_or_else(short);
        let mut operand = || -> Result<Option<(DType, Layout)>> {
            if take(1)? == [0] {
                return Ok(None);
            }
            let (dtype, rank) = (usize::from(take(1)?[0]), usize::from(take(1)?[0]));
            let mut numbers =
                || -> Result<Vec<isize>> { Ok(take(8 * rank)?.as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes) as isize).collect()) };
            let shape: Vec<_> = numbers()?.into_iter().map(|extent| extent as usize).collect();
            Ok(Some((DType::ALL[dtype], Layout::strided(Shape::new(&shape)?, &numbers()?, 0)?)))
        };
        (0..self.count).map(|_| operand()).collect()
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
