//! Memory shared with other libraries by DLPack (version 1.1, and capsules of versions before 1.0): <https://dmlc.github.io/dlpack/latest/>.

use std::{
    ffi::{CStr, c_void},
    ptr::{self, NonNull},
    sync::Arc,
};

use elinvar::{DType as Element, DeviceKind};
use pyo3::{
    Bound, IntoPyObject, Py, PyAny, PyErr, PyResult, Python,
    exceptions::{PyBufferError, PyTypeError, PyValueError},
    ffi, intern, pyclass,
    types::{PyAnyMethods, PyCapsule, PyCapsuleMethods, PyDict, PyDictMethods},
};

use crate::{
    context::Context,
    cuda,
    errors::raise,
    host::{self, Lent},
    tensor::Tensor,
};

const VERSIONED: &CStr = c"dltensor_versioned";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
const OLD: &CStr = c"dltensor";
const USED_OLD: &CStr = c"used_dltensor";

pub(crate) const CPU: i32 = 1;
pub(crate) const CUDA: i32 = 2;

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
const COPIED: u64 = 2;

/// `DLTensor`.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) data: *mut c_void,
    pub(crate) device_type: i32,
    pub(crate) device_id: i32,
    pub(crate) ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

impl Header {
    /// To be written.
    pub(crate) const EMPTY: Self = Self {
        data: ptr::null_mut(),
        device_type: 0,
        device_id: 0,
        ndim: 0,
        code: 0,
        bits: 0,
        lanes: 0,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
}

/// `DLManagedTensor`.
#[repr(C)]
struct Old {
    header: Header,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Old)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    header: Header,
}

/// What a consumer asks for.
pub(crate) struct Wish {
    pub(crate) stream: Option<i64>,
    pub(crate) max_version: Option<(u32, u32)>,
    pub(crate) device: Option<(i32, i32)>,
    pub(crate) copy: Option<bool>,
}

/// What `__dlpack_device__` says.
pub(crate) fn device(context: &Context) -> PyResult<(i32, i32)> {
    match context.kind() {
        Some(DeviceKind::Cpu) => Ok((CPU, 0)),
        Some(DeviceKind::Cuda) => {
            let ordinal = context.backend.strip_prefix("cuda:").map_or(Ok(0), str::parse);
            Ok((CUDA, ordinal.map_err(|_| PyBufferError::new_err(format!("{}: no number of a GPU", context.backend)))?))
        }
        Some(DeviceKind::Metal | DeviceKind::MetalSim | DeviceKind::Null) | None => {
            let message = format!("memory on {} is not shared by DLPack: move the tensor with to('cpu') first", context.backend);
            Err(PyBufferError::new_err(message))
        }
    }
}

/// DLPack's code and bits of a type.
fn code(dtype: Element) -> (u8, u8) {
    let code = match dtype {
        Element::I8 | Element::I16 | Element::I32 | Element::I64 => 0,
        Element::U8 | Element::U16 | Element::U32 | Element::U64 => 1,
        Element::F32 | Element::F16 | Element::F64 => 2,
        Element::BF16 => 4,
        Element::Bool => 6,
    };
    (code, 8 * dtype.size() as u8)
}

pub(crate) fn dtype(header: &Header) -> PyResult<Element> {
    let found = Element::PROGRAMS.iter().copied().find(|dtype| code(*dtype) == (header.code, header.bits) && header.lanes == 1);
    found.ok_or_else(|| {
        let what = format!("type code {} of {} bits in {} lanes", header.code, header.bits, header.lanes);
        PyTypeError::new_err(format!("a DLPack tensor of {what}: Elinvar has no such type"))
    })
}

/// What an exported tensor keeps until its consumer deletes it.
struct Kept {
    _tensor: elinvar::Tensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    used: Option<cuda::Used>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            used.follow();
        }
    }
}

impl Kept {
    fn of(tensor: &elinvar::Tensor, used: Option<cuda::Used>) -> Box<Self> {
        let shape = tensor.shape().iter().map(|&extent| extent as i64).collect();
        let strides = tensor.layout().strides().iter().map(|&stride| stride as i64).collect();
        Box::new(Self { _tensor: tensor.clone(), shape, strides, used })
    }

    fn header(&mut self, dtype: Element, (device_type, device_id): (i32, i32), address: usize) -> Header {
        let (code, bits) = code(dtype);
        let (shape, strides) = (self.shape.as_mut_ptr(), self.strides.as_mut_ptr());
        let data = ptr::with_exposed_provenance_mut(address);
        Header { data, device_type, device_id, ndim: self.shape.len() as i32, code, bits, lanes: 1, shape, strides, byte_offset: 0 }
    }
}

/// Lends a tensor's memory in a capsule.
pub(crate) fn export<'py>(py: Python<'py>, tensor: &Tensor, wish: Wish) -> PyResult<Bound<'py, PyAny>> {
    let context = &tensor.context;
    context.check()?;
    let on_host = wish.device == Some((CPU, 0)) && context.kind() != Some(DeviceKind::Cpu);
    let here = if on_host { (CPU, 0) } else { device(context)? };
    if let Some(wanted) = wish.device.filter(|wanted| *wanted != here) {
        return Err(PyBufferError::new_err(format!("the tensor is on DLPack's device {here:?}, {wanted:?} was asked for: move it first")));
    }
    if on_host && wish.copy == Some(false) {
        return Err(PyValueError::new_err(format!("a tensor on {} in the host's memory needs a copy, and copy=False", context.backend)));
    }
    if here.0 == CPU && wish.stream.is_some() {
        return Err(PyBufferError::new_err("a tensor on the CPU has no stream: pass none"));
    }
    let is_copied = on_host || wish.copy == Some(true);
    let lent = if on_host {
        let cpu = host::context(py, &"cpu".into_pyobject(py)?.into_any())?;
        let source = tensor.tensor();
        py.detach(|| source.to(&cpu.executor)).map_err(raise)?
    } else if is_copied {
        context.call(py, [tensor], |[x]| x.detach().copy())?
    } else {
        tensor.tensor().clone()
    };
    let is_empty = lent.shape().elements() == 0;
    let (address, is_read_only) = if is_empty {
        (0, false)
    } else if here.0 == CPU {
        context.wait(py)?;
        py.detach(|| host::address(&lent)).map_err(raise)?
    } else {
        cuda::address(context, &lent, wish.stream)?
    };
    if !is_copied {
        tensor.share();
    }
    let mut kept = Kept::of(&lent, if here.0 == CUDA { cuda::Used::of(context) } else { None });
    let header = kept.header(lent.dtype(), here, address);
    if wish.max_version.is_some_and(|(major, _)| major >= 1) {
        let flags = if is_read_only { READ_ONLY } else { 0 } | if is_copied { COPIED } else { 0 };
        let context = Box::into_raw(kept).cast();
        let managed = Versioned { major: 1, minor: 1, context, deleter: Some(delete_versioned), flags, header };
        return capsule(py, Box::into_raw(Box::new(managed)).cast(), VERSIONED, drop_versioned);
    }
    if is_read_only {
        let why = "the memory may only be read, which DLPack before version 1.0 cannot say: ask for max_version=(1, 0), or for a copy";
        return Err(PyBufferError::new_err(why));
    }
    let managed = Old { header, context: Box::into_raw(kept).cast(), deleter: Some(delete_old) };
    capsule(py, Box::into_raw(Box::new(managed)).cast(), OLD, drop_old)
}

fn capsule<'py>(py: Python<'py>, managed: *mut c_void, name: &'static CStr, destructor: ffi::PyCapsule_Destructor) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the pointer and the name are valid; the destructor takes exactly such capsules.
    let object = unsafe { ffi::PyCapsule_New(managed, name.as_ptr(), Some(destructor)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, object) }
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: made by `export` of two boxes; the consumer calls this once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Kept>()));
    }
}

unsafe extern "C" fn delete_old(managed: *mut Old) {
    // SAFETY: as in `delete_versioned`.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Kept>()));
    }
}

/// Nobody took what the capsule holds.
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule; a consumer renames what it takes.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn drop_old(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `drop_versioned`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) == 1 {
            delete_old(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        }
    }
}

/// Another library's tensor, deleted with this object: its drop may wait for the interpreter, which deleters may need.
#[pyclass(frozen, module = "elinvar")]
struct Taken {
    used: Option<cuda::Used>,
    #[allow(dead_code, reason = "dropped with it")]
    managed: Managed,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(used) = &self.used {
            used.finish();
        }
    }
}

enum Managed {
    Versioned(NonNull<Versioned>),
    Old(NonNull<Old>),
}

// SAFETY: a deleter may be called on any thread; nothing else is done with the pointers after the import.
unsafe impl Send for Managed {}
// SAFETY: as above.
unsafe impl Sync for Managed {}

impl Managed {
    fn header(&self) -> &Header {
        // SAFETY: the producer keeps it until the deleter is called, on drop.
        unsafe {
            match self {
                Managed::Versioned(managed) => &managed.as_ref().header,
                Managed::Old(managed) => &managed.as_ref().header,
            }
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            // SAFETY: as in `header`.
            Managed::Versioned(managed) => unsafe { managed.as_ref() }.flags & READ_ONLY != 0,
            Managed::Old(_) => false,
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: called once, with what the producer gave.
        unsafe {
            match self {
                Managed::Versioned(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
                Managed::Old(managed) => {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// A tensor in the memory of an object that has `__dlpack__`.
pub(crate) fn import(context: &Arc<Context>, object: &Bound<'_, PyAny>, copy: Option<bool>) -> PyResult<Tensor> {
    let py = object.py();
    let Ok(device_of) = object.getattr(intern!(py, "__dlpack_device__")) else {
        return Err(PyTypeError::new_err(format!("{} has no __dlpack__", object.get_type())));
    };
    let found: (i32, i32) = device_of.call0()?.extract()?;
    if found.0 == CUDA && context.kind() == Some(DeviceKind::Cuda) && device(context)? != found {
        return Err(PyValueError::new_err(format!("the array is on GPU {}, the executor on {}: open the other one", found.1, context.backend)));
    }
    let is_here = found.0 == CPU || found.0 == CUDA && context.kind() == Some(DeviceKind::Cuda);
    if !is_here {
        let what = format!("an array on DLPack's device {found:?} cannot be taken by {}", context.backend);
        return Err(PyValueError::new_err(format!("{what}: move it to the CPU, or open an executor of its device")));
    }
    let stream = if found.0 == CUDA { Some(cuda::stream(context)) } else { None };
    let managed = take(&ask(object, stream)?)?;
    let header = managed.header();
    let dtype = dtype(header)?;
    let rank = usize::try_from(header.ndim).map_err(|_| PyValueError::new_err("a DLPack tensor with a negative number of axes"))?;
    let list = |pointer: *const i64| -> &[i64] {
        // SAFETY: the producer gives as many as there are axes; without axes the pointer may be null.
        if rank == 0 { &[] } else { unsafe { std::slice::from_raw_parts(pointer, rank) } }
    };
    let negative = |_| PyValueError::new_err("a DLPack tensor with a negative extent");
    let shape = list(header.shape).iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>().map_err(negative)?;
    let strides = (!header.strides.is_null()).then(|| list(header.strides).iter().map(|&stride| stride as isize).collect());
    let address = header.data.expose_provenance().wrapping_add(header.byte_offset as usize);
    let is_read_only = managed.is_read_only();
    let used = if found.0 == CUDA { cuda::Used::of(context) } else { None };
    let owner = Py::new(py, Taken { used, managed })?.into_any();
    let lent = Lent { address, dtype, shape, strides, is_read_only, owner };
    if found.0 == CPU { lent.into_tensor(py, context, copy) } else { cuda::adopt(py, context, lent, copy) }
}

/// The producer's capsule: of version 1 where it knows that.
fn ask<'py>(object: &Bound<'py, PyAny>, stream: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let arguments = PyDict::new(py);
    if let Some(stream) = stream {
        arguments.set_item(intern!(py, "stream"), stream)?;
    }
    let versioned = arguments.copy()?;
    versioned.set_item(intern!(py, "max_version"), (1, 1))?;
    match object.call_method(intern!(py, "__dlpack__"), (), Some(&versioned)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method(intern!(py, "__dlpack__"), (), Some(&arguments)),
        answer => answer,
    }
}

/// Takes what a capsule holds.
fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Managed> {
    let wrong = || PyTypeError::new_err("__dlpack__ gave no capsule of DLPack, or one that was taken before");
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| wrong())?;
    let rename = |name: &'static CStr| {
        // SAFETY: the capsule is valid, and the name lives as long as the program.
        if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } == 0 { Ok(()) } else { Err(PyErr::fetch(capsule.py())) }
    };
    if let Ok(managed) = capsule.pointer_checked(Some(VERSIONED)) {
        let managed = managed.cast::<Versioned>();
        // SAFETY: a capsule of that name holds one; the first fields are the same in every version.
        let major = unsafe { managed.as_ref() }.major;
        if major != 1 {
            return Err(PyBufferError::new_err(format!("a DLPack tensor of version {major}: Elinvar knows 1 and before")));
        }
        rename(USED_VERSIONED)?;
        return Ok(Managed::Versioned(managed));
    }
    let managed = capsule.pointer_checked(Some(OLD)).map_err(|_| wrong())?;
    rename(USED_OLD)?;
    Ok(Managed::Old(managed.cast()))
}
