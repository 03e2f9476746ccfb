//! PyTorch's tensors, read and written where they lie: an operator, or its gradient, over them in the order of the caller's stream.

mod decoder;
mod described;
mod function;
mod recorded;
mod region;

use std::{
    collections::VecDeque,
    env,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use elinvar::{
    BackendType, Completion, DType, Error, Executor, FastMap, Layout, Operator, Result, Tensor, Turns, Workspace,
    kernels::{TensorInfo, registry},
};
use pyo3::{Bound, Py, PyAny, PyResult, Python, pyclass, pyfunction, pymethods, types::PyTuple};

use crate::{errors::raise, fork, work::lock};

pub(crate) use decoder::TorchDecoder;
use described::Call;
pub(crate) use function::TorchFunction;
use recorded::Calls;
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
struct Known {
    turns: Turns,
    /// Memory that its recordings share.
    workspace: Mutex<Workspace>,
    /// Calls that may reject values, and have not been looked at since.
    rejecting: Mutex<VecDeque<Completion>>,
    /// Whether a call waits to see what it rejects: on a CPU, and where PyTorch's own calls wait.
    is_blocking: bool,
}

impl Known {
    fn new(place: Place) -> Result<Self> {
        let (executor, is_blocking) = match place {
            Place::Cpu => (Executor::new_with_backend(BackendType::Cpu)?, true),
            Place::Cuda { ordinal, stream } => (on_stream(ordinal, stream)?, env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1")),
        };
        Ok(Self { turns: Turns::new(executor), workspace: Mutex::default(), rejecting: Mutex::default(), is_blocking })
    }

    /// Of a place. What a process that this one was forked from knew is left as it is.
    fn of(place: Place) -> Result<Arc<Self>> {
        let process = fork::generation();
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., known)) = all.iter().find(|(made, where_, _)| (*made, *where_) == (process, place)) {
            return Ok(known.clone());
        }
        let known = Arc::new(Self::new(place)?);
        all.push((process, place, known.clone()));
        Ok(known)
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
static KNOWN: Mutex<Vec<(u32, Place, Arc<Known>)>> = Mutex::new(Vec::new());

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
    Err(elinvar::Error::device_unavailable("tensors on NVIDIA's GPUs: this system has none"))
}

/// Makes a call whose last tensors are written, so many, while other threads of Python's run: as it was recorded, or by `body`, which is given what it reads and
/// what it writes.
fn perform(
    py: Python<'_>,
    called: &str,
    mut call: Call,
    written: usize,
    (calls, may_reject): (&Calls, bool),
    body: impl FnOnce(&Executor, &[Option<Tensor>], &[Tensor]) -> Result<()> + Send,
) -> PyResult<()> {
    let place = call.place(py)?;
    let [ordinal, stream] = match place {
        Place::Cpu => [usize::MAX, 0],
        Place::Cuda { ordinal, stream } => [ordinal, stream],
    };
    call.mark(&[call.count(), written, fork::generation() as usize, ordinal, stream]);
    let short = calls.make_short(place, &call, may_reject);
    let done = short.unwrap_or_else(|| py.detach(|| calls.make(place, &call, written, may_reject, body)));
    done.map_err(|error| raise(under(called, error)))
}

/// An error under the name that PyTorch's user knows the operator by.
fn under(called: &str, error: Error) -> Error {
    if error.to_string().starts_with(&format!("{called}: ")) { error } else { error.context(called) }
}

/// What memory calls ask for, by their tensors.
#[derive(Default)]
struct Memory(Mutex<FastMap<Vec<u8>, Arc<[Wanted]>>>);

impl Memory {
    /// For tensors of a call of this key; `infos` says what they are of a new one.
    fn of(&self, py: Python<'_>, key: &[u8], infos: impl FnOnce() -> Result<Vec<TensorInfo>>) -> PyResult<Arc<[Wanted]>> {
        if let Some(known) = lock(&self.0).get(key) {
            return Ok(known.clone());
        }
        let infos = infos().map_err(raise)?;
        let wanted: Arc<[_]> = infos.iter().map(|info| Wanted::new(py, info)).collect::<PyResult<_>>()?;
        let mut known = lock(&self.0);
        if known.len() >= recorded::MOST {
            known.clear();
        }
        known.insert(key.to_vec(), wanted.clone());
        Ok(wanted)
    }
}

/// An operator with its attributes, for tensors of PyTorch's.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchOperator {
    operator: Arc<dyn Operator>,
    may_reject: bool,
    calls: Calls,
    gradients: Calls,
    results: Memory,
    /// For gradients.
    like_inputs: Memory,
}

/// What memory for a tensor is asked of PyTorch with.
struct Wanted {
    shape: Py<PyTuple>,
    strides: Py<PyTuple>,
    dtype: Py<PyAny>,
}

impl Wanted {
    fn new(py: Python<'_>, info: &TensorInfo) -> PyResult<Self> {
        let (shape, strides) = (PyTuple::new(py, &info.shape()[..])?.unbind(), PyTuple::new(py, info.layout.strides())?.unbind());
        Ok(Self { shape, strides, dtype: described::torch_type(py, info.dtype)?.clone().unbind() })
    }
}

impl TorchOperator {
    /// Writes the results of the operator to the call's last tensors, so many.
    fn compute(&self, py: Python<'_>, called: &str, call: Call, written: usize) -> PyResult<()> {
        perform(py, called, call, written, (&self.calls, self.may_reject), |executor, reads, writes| {
            let taken: Vec<_> = reads.iter().map(Option::as_ref).collect();
            // Its error has no place in a recording, for there is but one operator.
            self.operator.infer(&taken.iter().map(|tensor| tensor.map(Tensor::info)).collect::<Vec<_>>())?;
            executor.apply_into(self.operator.clone(), &taken, &writes.iter().collect::<Vec<_>>())
        })
    }

    /// Memory for the results of a call's tensors.
    fn memory(&self, py: Python<'_>, called: &str, call: &Call) -> PyResult<Arc<[Wanted]>> {
        let info = |operand: Option<(DType, Layout)>| operand.map(|(dtype, layout)| TensorInfo { dtype, layout });
        self.results.of(py, call.key(), || {
            let results = call.operands().and_then(|operands| self.operator.infer(&operands.into_iter().map(info).collect::<Vec<_>>()));
            results.map_err(|error| under(called, error))
        })
    }

    /// Memory for the gradients of the wanted ones of a call's tensors.
    fn gradient_memory(&self, py: Python<'_>, call: &Call, wanted: &[bool]) -> PyResult<Arc<[Wanted]>> {
        let key = [call.key(), bytemuck::cast_slice(wanted)].concat();
        self.like_inputs.of(py, &key, || {
            let wanted = call.operands()?.into_iter().zip(wanted).filter_map(|(operand, wanted)| operand.filter(|_| *wanted));
            Ok(wanted.map(|(dtype, layout)| TensorInfo::of(dtype, *layout.shape())).collect())
        })
    }

    /// Writes the gradients of the wanted inputs to the call's last tensors: before them are so many inputs and outputs, and the gradients of those.
    fn differentiate(
        &self,
        py: Python<'_>,
        called: &str,
        mut call: Call,
        (inputs, outputs): (usize, usize),
        written: usize,
        wanted: &[bool],
    ) -> PyResult<()> {
        call.mark(&[wanted.iter().fold(0, |bits, wanted| bits << 1 | usize::from(*wanted))]);
        perform(py, called, call, written, (&self.gradients, false), |executor, reads, writes| {
            let taken: Vec<_> = reads.iter().map(Option::as_ref).collect();
            let (results, into): (Vec<_>, Vec<_>) = (reads[inputs..inputs + outputs].iter().flatten().collect(), writes.iter().collect());
            executor.gradient(&*self.operator, &taken[..inputs], &results, &taken[inputs + outputs..], wanted, &into).map(drop)
        })
    }
}

#[pymethods]
impl TorchOperator {
    /// Writes the results of the operator on `inputs` to `outputs`, contiguous tensors of their shapes that nothing else uses. All are on the CPU or on one
    /// GPU of NVIDIA's, where the work follows in the order of PyTorch's current stream.
    fn apply(&self, py: Python<'_>, inputs: Vec<Option<Bound<'_, PyAny>>>, outputs: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let mut call = Call::default();
        call.add_all(inputs.iter().map(Option::as_ref).chain(outputs.iter().map(Some)))?;
        self.compute(py, self.operator.name(), call, outputs.len())
    }

    /// Writes the gradients of the wanted inputs to `into`, in their order, from the operator's inputs and outputs and the gradients of those.
    fn gradient(
        &self,
        py: Python<'_>,
        inputs: Vec<Option<Bound<'_, PyAny>>>,
        outputs: Vec<Bound<'_, PyAny>>,
        upstream: Vec<Option<Bound<'_, PyAny>>>,
        wanted: Vec<bool>,
        into: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut call = Call::default();
        let read = inputs.iter().map(Option::as_ref).chain(outputs.iter().map(Some)).chain(upstream.iter().map(Option::as_ref));
        call.add_all(read.chain(into.iter().map(Some)))?;
        self.differentiate(py, self.operator.name(), call, (inputs.len(), outputs.len()), into.len(), &wanted)
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
    Ok(TorchOperator {
        operator: operator.into(),
        may_reject,
        calls: Calls::default(),
        gradients: Calls::default(),
        results: Memory::default(),
        like_inputs: Memory::default(),
    })
}
