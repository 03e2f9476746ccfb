//! PyTorch's tensors, read and written where they lie: an operator, or its gradient, over them in the order of the caller's stream.

mod decoder;
mod recorded;
mod region;

use std::{
    collections::VecDeque,
    env,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elinvar::{
    BackendType, Completion, DType, Error, Executor, HostMemory, HostMemoryMut, Layout, Operator, Result, Shape, Tensor, Turns, Workspace,
    advise_huge_pages, kernels::registry,
};
use pyo3::{
    Bound, Py, PyAny, PyResult, Python, intern, pyclass, pyfunction, pymethods,
    sync::PyOnceLock,
    types::{PyAnyMethods, PyTuple, PyTupleMethods},
};

use crate::{errors::raise, fork};

pub(crate) use decoder::TorchDecoder;
use recorded::{Calls, Key};
pub(crate) use region::TorchRegion;

/// Where a call's tensors lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Cpu,
    /// A GPU, counted from 0, and a stream of its primary context.
    Cuda {
        ordinal: usize,
        stream: usize,
    },
}

/// What is known of a place.
#[derive(Clone)]
struct Known {
    turns: Turns,
    /// Memory that its recordings share.
    workspace: Arc<Mutex<Workspace>>,
    /// Calls that may reject values, and have not been looked at since.
    rejecting: Arc<Mutex<VecDeque<Completion>>>,
    /// Whether a call waits to see what it rejects: on a CPU, and where PyTorch's own calls wait.
    is_blocking: bool,
}

impl Known {
    fn new(place: Place) -> Result<Self> {
        let (executor, is_blocking) = match place {
            Place::Cpu => (Executor::new_with_backend(BackendType::Cpu)?, true),
            Place::Cuda { ordinal, stream } => (on_stream(ordinal, stream)?, env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1")),
        };
        Ok(Self { turns: Turns::new(executor), workspace: Arc::default(), rejecting: Arc::default(), is_blocking })
    }

    fn rejecting(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.rejecting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports what calls before have rejected: those that are done, or all.
    fn report(&self, waits: bool) -> Result<()> {
        while let Some(completion) = { self.rejecting().pop_front_if(|completion| waits || completion.is_complete()) } {
            completion.wait().map_err(|error| error.context("a call before this one"))?;
        }
        Ok(())
    }
}

/// All places that each process has used.
static KNOWN: Mutex<Vec<(u32, Place, Known)>> = Mutex::new(Vec::new());

/// What is known of a place. What a process that this one was forked from knew is left as it is.
fn known(place: Place) -> Result<Known> {
    let process = fork::generation();
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((.., known)) = all.iter().find(|(made, where_, _)| (*made, *where_) == (process, place)) {
        return Ok(known.clone());
    }
    let known = Known::new(place)?;
    all.push((process, place, known.clone()));
    Ok(known)
}

/// Waits for the calls on GPUs that may reject values, and reports the first that did.
#[pyfunction]
pub(crate) fn torch_synchronize(py: Python<'_>) -> PyResult<()> {
    let process = fork::generation();
    let all: Vec<_> = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|(made, ..)| *made == process).cloned().collect();
    py.detach(|| all.iter().try_for_each(|(.., known)| known.report(true))).map_err(raise)
}

#[cfg(not(target_vendor = "apple"))]
fn on_stream(ordinal: usize, stream: usize) -> Result<Executor> {
    // SAFETY: PyTorch's streams live as long as the process, and none of them stands for another one in each thread.
    let backend = unsafe { elinvar_cuda::CudaBackend::on_stream(ordinal, stream as *mut _, Arc::new(())) }?;
    Ok(Executor::from_device(elinvar::Device::new(backend)))
}

#[cfg(target_vendor = "apple")]
fn on_stream(_: usize, _: usize) -> Result<Executor> {
    Err(Error::device_unavailable("tensors on NVIDIA's GPUs: this system has none"))
}

/// A tensor of PyTorch's, as it describes itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Described {
    address: usize,
    dtype: DType,
    layout: Layout,
}

impl Described {
    /// Bytes from its first element to behind its last.
    fn bytes(&self) -> usize {
        self.layout.span().end * self.dtype.size()
    }

    fn pointer(&self) -> NonNull<u8> {
        NonNull::new(self.address as *mut u8).unwrap_or(NonNull::<u64>::dangling().cast())
    }

    /// A tensor of its memory.
    ///
    /// # Safety
    /// Whenever the tensor is used, the memory is there, nothing else writes to it, and nothing else reads it unless it is read-only.
    unsafe fn adopt(&self, executor: &Executor, place: Place, is_read_only: bool) -> Result<Tensor> {
        let Self { address, dtype, layout } = *self;
        match place {
            Place::Cpu if is_read_only => {
                // SAFETY: as the caller promises.
                let bytes: &'static [u8] = if address == 0 { &[] } else { unsafe { slice::from_raw_parts(address as *const u8, self.bytes()) } };
                executor.adopt_strided(dtype, &layout, HostMemory::new(Arc::new(bytes)))
            }
            Place::Cpu => {
                // SAFETY: as the caller promises.
                executor.adopt_mut(dtype, layout.shape(), unsafe { HostMemoryMut::new(self.pointer(), self.bytes(), Arc::new(())) })
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

/// A call's tensors: what they say of themselves, and where all of them are.
struct Call {
    place: Option<i64>,
    stream: usize,
}

impl Call {
    fn describe(&mut self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<Described> {
        let ordinal: i64 = tensor.call_method0(intern!(py, "get_device"))?.extract()?;
        match self.place {
            Some(place) if place != ordinal => {
                let name = |ordinal: i64| if ordinal < 0 { "the CPU".to_owned() } else { format!("GPU {ordinal}") };
                let message = format!("tensors on {} and on {}: move them to one device", name(place), name(ordinal));
                return Err(raise(Error::invalid_argument(message)));
            }
            Some(_) => {}
            None => self.place = Some(ordinal),
        }
        let dtype = dtype_of(py, &tensor.getattr(intern!(py, "dtype"))?)?;
        let shape = tensor.getattr(intern!(py, "shape"))?;
        let shape = shape.cast::<PyTuple>()?.iter_borrowed().map(|extent| extent.extract()).collect::<PyResult<Vec<usize>>>()?;
        let strides = tensor.call_method0(intern!(py, "stride"))?;
        let strides = strides.cast::<PyTuple>()?.iter_borrowed().map(|stride| stride.extract()).collect::<PyResult<Vec<isize>>>()?;
        let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let layout = Shape::new(&shape).and_then(|shape| Layout::strided(shape, &strides, 0)).map_err(raise)?;
        Ok(Described { address, dtype, layout })
    }

    fn all(&mut self, py: Python<'_>, tensors: &[Option<Bound<'_, PyAny>>]) -> PyResult<Vec<Option<Described>>> {
        tensors.iter().map(|tensor| tensor.as_ref().map(|tensor| self.describe(py, tensor)).transpose()).collect()
    }

    fn given(&mut self, py: Python<'_>, tensors: &[Bound<'_, PyAny>]) -> PyResult<Vec<Described>> {
        tensors.iter().map(|tensor| self.describe(py, tensor)).collect()
    }

    fn place(&self) -> Place {
        match self.place.map(usize::try_from) {
            Some(Ok(ordinal)) => Place::Cuda { ordinal, stream: self.stream },
            Some(Err(_)) | None => Place::Cpu,
        }
    }
}

/// Makes a call, while other threads of Python's run: as it was recorded, or by `body`, which is given what it reads and what it writes.
fn perform(
    py: Python<'_>,
    call: &Call,
    calls: &Calls,
    may_reject: bool,
    (reads, writes, wanted): (Vec<Option<Described>>, Vec<Described>, Vec<bool>),
    body: impl Fn(&Executor, &[Option<Tensor>], &[Tensor]) -> Result<()> + Send + Sync,
) -> PyResult<()> {
    let key = Key { place: call.place(), process: fork::generation(), reads, writes, wanted };
    let work = || {
        if key.place == Place::Cpu {
            // PyTorch hands out large memory unwritten.
            key.writes.iter().for_each(|tensor| advise_huge_pages(tensor.pointer(), tensor.bytes()));
        }
        let known = known(key.place)?;
        known.report(false)?;
        known.turns.take(|executor| calls.make(executor, &known, &key, may_reject, body))
    };
    py.detach(work).map_err(raise)
}

/// An operator with its attributes, for tensors of PyTorch's.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchOperator {
    operator: Arc<dyn Operator>,
    may_reject: bool,
    calls: Calls,
    gradients: Calls,
}

#[pymethods]
impl TorchOperator {
    /// Writes the results of the operator on `inputs` to `outputs`, contiguous tensors of their shapes that nothing else uses. All are on the CPU or on one
    /// GPU of NVIDIA's, where the work follows in the order of `stream`.
    #[pyo3(signature = (inputs, outputs, stream=0))]
    fn apply(&self, py: Python<'_>, inputs: Vec<Option<Bound<'_, PyAny>>>, outputs: Vec<Bound<'_, PyAny>>, stream: usize) -> PyResult<()> {
        let mut call = Call { place: None, stream };
        let tensors = (call.all(py, &inputs)?, call.given(py, &outputs)?, Vec::new());
        perform(py, &call, &self.calls, self.may_reject, tensors, |executor, reads, writes| {
            let taken: Vec<_> = reads.iter().map(Option::as_ref).collect();
            // Its error has no place in a recording, for there is but one operator.
            self.operator.infer(&taken.iter().map(|tensor| tensor.map(Tensor::info)).collect::<Vec<_>>())?;
            executor.apply_into(self.operator.clone(), &taken, &writes.iter().collect::<Vec<_>>())
        })
    }

    /// Writes the gradients of the wanted inputs to `into`, in their order, from the operator's inputs and outputs and the gradients of those.
    #[pyo3(signature = (inputs, outputs, upstream, wanted, into, stream=0))]
    #[allow(clippy::too_many_arguments, reason = "what a gradient is of")]
    fn gradient(
        &self,
        py: Python<'_>,
        inputs: Vec<Option<Bound<'_, PyAny>>>,
        outputs: Vec<Bound<'_, PyAny>>,
        upstream: Vec<Option<Bound<'_, PyAny>>>,
        wanted: Vec<bool>,
        into: Vec<Bound<'_, PyAny>>,
        stream: usize,
    ) -> PyResult<()> {
        let mut call = Call { place: None, stream };
        let mut reads = call.all(py, &inputs)?;
        reads.extend(call.given(py, &outputs)?.into_iter().map(Some));
        reads.extend(call.all(py, &upstream)?);
        let (first, last) = (inputs.len(), inputs.len() + outputs.len());
        let tensors = (reads, call.given(py, &into)?, wanted.clone());
        perform(py, &call, &self.gradients, false, tensors, |executor, reads, writes| {
            let taken: Vec<_> = reads.iter().map(Option::as_ref).collect();
            let (outputs, into): (Vec<_>, Vec<_>) = (reads[first..last].iter().flatten().collect(), writes.iter().collect());
            executor.gradient(&*self.operator, &taken[..first], &outputs, &taken[last..], &wanted, &into).map(drop)
        })
    }

    fn __repr__(&self) -> String {
        format!("<elinvar operator {}>", self.operator.name())
    }
}

/// The operator of this name with attributes as `elinvar op` takes them.
#[pyfunction]
#[pyo3(signature = (name, attributes, may_reject=false))]
pub(crate) fn torch_operator(name: &str, attributes: Vec<(String, String)>, may_reject: bool) -> PyResult<TorchOperator> {
    let operator = registry::find(name).and_then(|description| description.operator(attributes)).map_err(raise)?;
    Ok(TorchOperator { operator: operator.into(), may_reject, calls: Calls::default(), gradients: Calls::default() })
}
