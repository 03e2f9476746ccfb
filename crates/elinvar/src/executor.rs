use std::{num::NonZeroUsize, sync::Arc};

use elinvar_core::{
    Binding, Completion, DType, Device, DeviceKind, DeviceProperties, Element, Error, HostMemory, Layout, ListBuilder, MemoryInfo, Pool, Result,
    Shape, Storage, format_bytes,
};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{Operator, Precision, TensorInfo, copy::Copy, encode, plan_for};

use crate::{
    BackendType, Recording, Tensor,
    graph::{Action, Shared},
    tensor::TensorMemory,
};

/// A device with the choices that go with it. Clones are the same device.
#[derive(Clone)]
pub struct Executor {
    pub(crate) device: Device,
    precision: Precision,
    /// What records its operators, in place of running them.
    pub(crate) recorder: Option<Arc<Shared>>,
}

impl Executor {
    /// The best device here, an Apple or NVIDIA GPU before the CPU, or the one named by the environment variable `ELINVAR_DEVICE`.
    ///
    /// [`devices`](crate::devices) says why a device cannot be used, and [`Executor::new_auto_for`] if one was passed over.
    ///
    /// ```
    /// # use elinvar::Executor;
    /// let executor = Executor::new_auto()?;
    /// println!("computing on the {}", executor.properties().name);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ELINVAR_DEVICE` names a device that is not available; the message says which are.
    pub fn new_auto() -> Result<Self> {
        Self::best().map(|(best, _)| best)
    }

    /// As [`Executor::new_auto`], but where a device that nobody named has not `bytes` of memory free, the CPU. And what is to be told the user: why that
    /// GPU, or one that is here and does not open, is not used.
    ///
    /// ```
    /// # use elinvar::Executor;
    /// let (executor, why) = Executor::new_auto_for(64 << 20)?;
    /// if let Some(why) = why {
    ///     eprintln!("{why}");
    /// }
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::new_auto`].
    pub fn new_auto_for(bytes: u64) -> Result<(Self, Option<String>)> {
        let (best, passed_over) = Self::best()?;
        let (kind, free) = (best.properties().kind, best.memory().available as u64);
        if kind == DeviceKind::Cpu || free >= bytes || BackendType::from_environment()?.is_some() {
            return Ok((best, passed_over));
        }
        let why = format!("{kind} has {} free, {} are needed: computing on the cpu", format_bytes(free), format_bytes(bytes));
        Ok((Self::new_with_backend(BackendType::Cpu)?, Some(why)))
    }

    /// The best device, and why a GPU that is here is not.
    fn best() -> Result<(Self, Option<String>)> {
        if let Some(backend) = BackendType::from_environment()? {
            return Ok((Self::new_with_backend(backend)?, None));
        }
        let (gpu, passed_over) = first_open(&[BackendType::Metal(0), BackendType::Cuda(0)], BackendType::is_expected, Self::new_with_backend)?;
        Ok((gpu.map_or_else(|| Self::new_with_backend(BackendType::Cpu), Ok)?, passed_over))
    }

    /// A device of this kind.
    ///
    /// ```
    /// # use elinvar::{BackendType, DeviceKind, Executor};
    /// let executor = Executor::new_with_backend(BackendType::Cpu)?;
    /// assert_eq!(executor.properties().kind, DeviceKind::Cpu);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is not available here.
    pub fn new_with_backend(backend: BackendType) -> Result<Self> {
        backend.open().map(Self::from_device)
    }

    /// The CPU with this many threads.
    ///
    /// ```
    /// # use elinvar::Executor;
    /// let executor = Executor::new_cpu(std::num::NonZero::<usize>::MIN)?;
    /// assert_eq!(executor.properties().compute_units, 1);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// The operating system refuses the threads.
    pub fn new_cpu(threads: NonZeroUsize) -> Result<Self> {
        Ok(Self::from_device(Device::new(CpuBackend::new(Some(threads))?)))
    }

    /// Any device behind the backend interface.
    ///
    /// ```
    /// # use elinvar::Executor;
    /// # let executor = Executor::new_auto()?;
    /// let same = Executor::from_device(executor.device().clone());
    /// assert!(same.tensor(&[1], &[1f32])?.add(&executor.tensor(&[1], &[1f32])?).is_ok());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn from_device(device: Device) -> Self {
        Self { device, precision: Self::DEFAULT_PRECISION, recorder: None }
    }

    /// The device behind the backend interface.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// executor.device().start_profile().or_else(|error| if error.is_unsupported() { Ok(()) } else { Err(error) })?;
    /// println!("{} commands", executor.device().end_profile()?.len());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The precision of an executor that was given none: fast. (Strict prefill costs several times as much.)
    pub const DEFAULT_PRECISION: Precision = Precision::Fast;

    /// The same device with a precision for every matrix product and attention, whatever their shapes.
    ///
    /// ```
    /// # use elinvar::{Executor, Precision};
    /// # let executor = Executor::new_auto()?;
    /// let strict = executor.with_precision(Precision::Strict);
    /// let x = strict.tensor(&[1, 2], &[1f32, 2.0])?;
    /// assert_eq!(x.linear(&x, None)?.item::<f32>()?, 5.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn with_precision(&self, precision: Precision) -> Self {
        Self { precision, ..self.clone() }
    }

    /// The precision of matrix products and attention.
    ///
    /// ```
    /// # use elinvar::Executor;
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.precision(), Executor::DEFAULT_PRECISION);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// What the device is.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let properties = executor.properties();
    /// println!("{} ({}), {} units", properties.name, properties.kind, properties.compute_units);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn properties(&self) -> &DeviceProperties {
        self.device.properties()
    }

    /// Its memory now.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let memory = executor.memory();
    /// assert!(memory.available <= memory.total);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn memory(&self) -> MemoryInfo {
        self.device.memory()
    }

    /// Its buffer pool: statistics, cap, clearing.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[1000], &[0f32; 1000])?;
    /// assert!(executor.pool().statistics().live_bytes >= 4000);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn pool(&self) -> &Pool {
        self.device.pool()
    }

    /// A row-major tensor of `values`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.i((0, 1))?.item::<f32>()?, 2.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of values than the shape holds, or out of memory.
    pub fn tensor<T: Element>(&self, dims: &[usize], values: &[T]) -> Result<Tensor> {
        self.tensor_from_bytes(T::DTYPE, dims, bytemuck::cast_slice(values))
    }

    /// A row-major tensor of native-endian bytes.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.tensor_from_bytes(DType::U16, &[1], &258u16.to_ne_bytes())?;
    /// assert_eq!(x.item::<u16>()?, 258);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of bytes than the shape holds, or out of memory.
    pub fn tensor_from_bytes(&self, dtype: DType, dims: &[usize], bytes: &[u8]) -> Result<Tensor> {
        let shape = checked_shape(dtype, dims, bytes.len())?;
        let buffer = self.device.allocate(bytes.len())?;
        self.device.write(&buffer, 0, bytes)?;
        Ok(Tensor::new(self, TensorMemory::new(buffer), dtype, Layout::contiguous(shape)))
    }

    /// Host memory as a read-only tensor, without a copy where memory is unified.
    ///
    /// ```
    /// # use elinvar::{DType, Executor, HostMemory};
    /// # let executor = Executor::new_auto()?;
    /// let weights = executor.adopt(DType::U8, &[3], HostMemory::new(std::sync::Arc::new(vec![1u8, 2, 3])))?;
    /// assert_eq!(weights.to_vec::<u8>()?, [1, 2, 3]);
    /// assert!(weights.write(&[0u8; 3]).is_err());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of bytes than the shape holds, memory not aligned for the type, or out of memory.
    pub fn adopt(&self, dtype: DType, dims: &[usize], memory: HostMemory) -> Result<Tensor> {
        let shape = checked_shape(dtype, dims, memory.bytes().len())?;
        if !memory.bytes().as_ptr().addr().is_multiple_of(dtype.size()) {
            return Err(Error::invalid_argument(format!("memory is not aligned for {dtype}: copy it with tensor_from_bytes")));
        }
        Ok(Tensor::new(self, TensorMemory::new(self.device.adopt(memory)?), dtype, Layout::contiguous(shape)))
    }

    /// A zeroed tensor in memory of its own, outside the pool: for caches and other long-lived state.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.zeros(DType::I32, &[2])?.to_vec::<i32>()?, [0, 0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape beyond the limits, or out of memory.
    pub fn zeros(&self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        let buffer = self.device.allocate_dedicated(byte_size(dtype, &shape)?)?;
        let mut list = ListBuilder::new();
        list.fill(buffer.bind(0, buffer.bytes())?, 0)?;
        self.device.submit(&list.finish())?;
        Ok(Tensor::new(self, TensorMemory::new(buffer), dtype, Layout::contiguous(shape)))
    }

    /// A tensor whose elements nobody has set yet, in memory that host and device share, or that is the device's alone, where the device has a choice;
    /// [`Tensor::is_shared`] says which it became. Every other tensor lies where [`Storage::Automatic`] says.
    ///
    /// ```
    /// use elinvar::{DType, Executor, Storage};
    ///
    /// let executor = Executor::new_auto()?;
    /// let x = executor.empty(DType::F32, &[3], Storage::Shared)?;
    /// x.write(&[1.0f32, 2.0, 3.0])?;
    /// assert_eq!(x.with_values(|values: &[f32]| values.iter().sum::<f32>())?, 6.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape beyond the limits, or out of memory.
    pub fn empty(&self, dtype: DType, dims: &[usize], storage: Storage) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        let buffer = self.device.allocate_in(byte_size(dtype, &shape)?, storage)?;
        Ok(Tensor::new(self, TensorMemory::new(buffer), dtype, Layout::contiguous(shape)))
    }

    /// Runs an operator, or records it where this executor, or one of the tensors, belongs to a [`Recorder`](crate::Recorder). Inputs it cannot take with
    /// strides are made row-major first.
    ///
    /// ```
    /// # use elinvar::{Executor, kernels::top_k::TopK};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[3], &[5i32, 1, 3])?;
    /// let smallest = TopK { k: 2, axis: 0, largest: false, sorted: true };
    /// let outputs = executor.apply(std::sync::Arc::new(smallest), &[Some(&x)])?;
    /// assert_eq!(outputs[0].to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the operator refuses, tensors of another device or another recorder, or out of memory.
    pub fn apply(&self, operator: Arc<dyn Operator>, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>> {
        self.launch(operator, inputs, None)
    }

    /// The same with results that go to tensors that exist: row-major, of the results' types and shapes, in memory that no input has.
    ///
    /// ```
    /// # use elinvar::{DType, Executor, kernels::softmax::Softmax};
    /// # let executor = Executor::new_auto()?;
    /// let (x, y) = (executor.tensor(&[2], &[0f32, 0.0])?, executor.zeros(DType::F32, &[2])?);
    /// executor.apply_into(std::sync::Arc::new(Softmax { axis: 0, log: false }), &[Some(&x)], &[&y])?;
    /// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::apply`]; tensors of other types or shapes, views with gaps, memory in common with an input, or read-only memory.
    pub fn apply_into(&self, operator: Arc<dyn Operator>, inputs: &[Option<&Tensor>], outputs: &[&Tensor]) -> Result<()> {
        self.launch(operator, inputs, Some(outputs)).map(drop)
    }

    /// The row-major copy of a tensor with any strides.
    pub(crate) fn copy(&self, tensor: &Tensor) -> Result<Tensor> {
        only(self.apply(Arc::new(Copy), &[Some(tensor)])?)
    }

    fn launch(&self, operator: Arc<dyn Operator>, inputs: &[Option<&Tensor>], into: Option<&[&Tensor]>) -> Result<Vec<Tensor>> {
        let recorder = self.recorder_of(inputs.iter().copied().flatten().chain(into.unwrap_or_default().iter().copied()))?;
        let adjust = |(index, tensor): (usize, &Option<&Tensor>)| match tensor {
            Some(tensor) if !tensor.layout().is_contiguous() && !operator.accepts_strides(index) => {
                if operator.updates(index) {
                    return Err(Error::invalid_argument(format!("input {index} is updated in place and must be row-major: pass it without a view")));
                }
                self.copy(tensor).map(Some)
            }
            tensor => Ok(tensor.cloned()),
        };
        let inputs = inputs.iter().enumerate().map(adjust).collect::<Result<Vec<_>>>()?;
        if let Some(targets) = into {
            check_targets(&checked_types(&*operator, &inputs)?, &inputs, targets)?;
        }
        match recorder {
            Some(recorder) => recorder.operator(self, operator, &inputs, into),
            None => self.run(&*operator, &inputs, into),
        }
    }

    /// Plans and submits one operator.
    fn run(&self, operator: &dyn Operator, inputs: &[Option<Tensor>], into: Option<&[&Tensor]>) -> Result<Vec<Tensor>> {
        let types = checked_types(operator, inputs)?;
        let infos: Vec<_> = inputs.iter().map(|t| t.as_ref().map(Tensor::info)).collect();
        let plan = plan_for(operator, &infos, &types, &self.device)?;
        let bindings = inputs.iter().map(|t| t.as_ref().map(Tensor::binding).transpose()).collect::<Result<Vec<_>>>()?;
        let targets = match into {
            Some(targets) => targets.iter().map(|target| target.binding()).collect::<Result<Vec<_>>>()?,
            None => {
                let target = |info: &TensorInfo| -> Result<Binding> {
                    let bytes = byte_size(info.dtype, info.shape())?;
                    self.device.allocate(bytes)?.bind(0, bytes)
                };
                types.iter().map(target).collect::<Result<_>>()?
            }
        };
        let mut list = ListBuilder::new();
        encode(&plan, &bindings, &targets, &self.device, &mut list, |bytes| self.device.allocate(bytes))?;
        if !list.is_empty() {
            self.device.submit(&list.finish())?;
        }
        if into.is_some() {
            return Ok(Vec::new());
        }
        let output = |(info, target): (&TensorInfo, &Binding)| Tensor::new(self, TensorMemory::new(target.buffer().clone()), info.dtype, info.layout);
        Ok(types.iter().zip(&targets).map(output).collect())
    }

    /// What records work on these tensors.
    ///
    /// # Errors
    /// Tensors of another device, or of different recorders.
    pub(crate) fn recorder_of<'a>(&'a self, tensors: impl Iterator<Item = &'a Tensor>) -> Result<Option<&'a Arc<Shared>>> {
        let tensors: Vec<_> = tensors.collect();
        let mut recorder = self.recorder.as_ref();
        if let Some(ended) = recorder.filter(|recorder| !recorder.is_open()) {
            // What was moved to a recorder stays a tensor when that has ended.
            if !tensors.iter().any(|tensor| tensor.executor.recorder.as_ref().is_some_and(|other| Arc::ptr_eq(ended, other))) {
                return Err(Error::invalid_argument("the recorder of this executor ended: use the executor that it was made for"));
            }
            recorder = None;
        }
        for tensor in tensors {
            self.check_same_device(tensor.executor())?;
            match (recorder, tensor.recorder()) {
                (Some(known), Some(other)) if !Arc::ptr_eq(known, other) => {
                    return Err(Error::invalid_argument("tensors of different recorders: finish one and use its results in the other's recording"));
                }
                (known, other) => recorder = known.or(other),
            }
        }
        Ok(recorder)
    }

    /// This executor, for what was made for `other`.
    pub(crate) fn take_over(&self, other: &Executor) -> Result<Executor> {
        self.check_same_device(other)?;
        self.recorder.iter().for_each(|recorder| recorder.move_to());
        Ok(self.clone())
    }

    fn check_same_device(&self, other: &Executor) -> Result<()> {
        if self.device.same(&other.device) {
            Ok(())
        } else {
            Err(Error::invalid_argument("tensors or kernels of different devices: copy one through the host first"))
        }
    }

    /// The same device and choices with a recorder or none.
    pub(crate) fn with_recorder(&self, recorder: Option<Arc<Shared>>) -> Executor {
        Executor { recorder, ..self.clone() }
    }

    /// Runs a dispatch over these buffers, or records it.
    pub(crate) fn dispatch(&self, inputs: &[Option<Tensor>], action: Action) -> Result<()> {
        if let Some(recorder) = self.recorder_of(inputs.iter().flatten())? {
            return recorder.dispatch(inputs, action);
        }
        let Action::Dispatch { make, .. } = action else { return Err(Error::internal("an operator is dispatched as a kernel")) };
        let bindings = inputs.iter().map(|tensor| tensor.as_ref().map(Tensor::binding).transpose()).collect::<Result<Vec<_>>>()?;
        let Some(dispatch) = make(bindings)? else { return Ok(()) };
        let mut list = ListBuilder::new();
        list.dispatch(dispatch, self.properties())?;
        self.device.submit(&list.finish()).map(drop)
    }

    /// Starts a recording; its errors are reported by the completion, and by the next read.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1i32, 2])?;
    /// let (double, ()) = executor.record(|recorded| x.on(recorded)?.add_(&x))?;
    /// executor.replay(&double)?;
    /// executor.replay(&double)?.wait()?;
    /// assert_eq!(x.to_vec::<i32>()?, [4, 8]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// It was recorded on another device, or the device is lost.
    pub fn replay(&self, recording: &Recording) -> Result<Completion> {
        self.device.submit(&recording.list)
    }
}

/// The first device that opens, and why those before it do not that are expected to.
///
/// # Errors
/// One is there, but something else that was asked of it cannot be done: a capture.
fn first_open<T>(
    backends: &[BackendType],
    is_expected: impl Fn(BackendType) -> bool,
    open: impl Fn(BackendType) -> Result<T>,
) -> Result<(Option<T>, Option<String>)> {
    let mut reasons = Vec::new();
    for &backend in backends {
        match open(backend) {
            Ok(device) => return Ok((Some(device), passed_over(backend, &reasons))),
            Err(error) if error.is_invalid_argument() => return Err(error),
            Err(error) if is_expected(backend) => reasons.push(format!("{backend} is not available: {error}")),
            Err(_) => {}
        }
    }
    Ok((None, passed_over(BackendType::Cpu, &reasons)))
}

/// Why the work is done on this device.
fn passed_over(chosen: BackendType, reasons: &[String]) -> Option<String> {
    (!reasons.is_empty()).then(|| format!("computing on the {chosen}, as {}", reasons.join("; ")))
}

/// The single output of an operator that has one.
pub(crate) fn only(mut outputs: Vec<Tensor>) -> Result<Tensor> {
    match (outputs.pop(), outputs.is_empty()) {
        (Some(output), true) => Ok(output),
        _ => Err(Error::invalid_argument("the operator does not have exactly one output")),
    }
}

/// The outputs' types of an operator on these inputs.
pub(crate) fn checked_types(operator: &dyn Operator, inputs: &[Option<Tensor>]) -> Result<Vec<TensorInfo>> {
    let infos: Vec<_> = inputs.iter().map(|t| t.as_ref().map(Tensor::info)).collect();
    let types = operator.infer(&infos)?;
    match infos.iter().flatten().chain(&types).map(|info| info.dtype).find(|dtype| !DType::ALL.contains(dtype)) {
        Some(dtype) => Err(Error::unsupported(format!("{dtype} is for programs (Executor::compile_program): no operator takes or gives it"))),
        None => Ok(types),
    }
}

/// Whether results of these types can go to these tensors.
fn check_targets(types: &[TensorInfo], inputs: &[Option<Tensor>], targets: &[&Tensor]) -> Result<()> {
    if types.len() != targets.len() {
        return Err(Error::invalid_argument(format!("{} tensors are given for {} results", targets.len(), types.len())));
    }
    for (info, target) in types.iter().zip(targets) {
        if (info.dtype, info.shape()) != (target.dtype(), target.shape()) || !target.layout().is_contiguous() {
            let found = format!("{target:?}{}", if target.layout().is_contiguous() { "" } else { ", a view with gaps," });
            return Err(Error::invalid_argument(format!("the result is {}{}: {found} cannot take it", info.dtype, info.shape())));
        }
        if inputs.iter().flatten().any(|input| input.same_memory(target)) || targets.iter().filter(|other| other.same_memory(target)).count() > 1 {
            return Err(Error::invalid_argument(format!("{target:?} shares memory with another operand: results need memory of their own")));
        }
    }
    Ok(())
}

pub(crate) fn byte_size(dtype: DType, shape: &Shape) -> Result<usize> {
    dtype.bytes(shape.elements()).ok_or_else(|| Error::invalid_argument(format!("a {dtype} tensor of shape {shape} is too large to address")))
}

fn checked_shape(dtype: DType, dims: &[usize], bytes: usize) -> Result<Shape> {
    let shape = Shape::new(dims)?;
    let expected = byte_size(dtype, &shape)?;
    if bytes != expected {
        return Err(Error::invalid_argument(format!("a {dtype} tensor of shape {shape} takes {expected} bytes, {bytes} were given")));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_here_and_does_not_open_is_named_with_the_reason() {
        const GPUS: &[BackendType] = &[BackendType::Metal(0), BackendType::Cuda(0)];
        let refused = |backend| Err(Error::device_unavailable(format!("no {backend} today")));
        let only_cuda = |backend| if backend == BackendType::Cuda(0) { Ok(()) } else { refused(backend) };
        let is_metal = |backend| backend == BackendType::Metal(0);
        let told = |opened: Result<(Option<()>, Option<String>)>| opened.unwrap().1.unwrap_or_default();
        assert_eq!(told(first_open(GPUS, is_metal, refused)), "computing on the cpu, as metal is not available: no metal today");
        assert_eq!(told(first_open(GPUS, is_metal, only_cuda)), "computing on the cuda, as metal is not available: no metal today");
        let both = "computing on the cpu, as metal is not available: no metal today; cuda is not available: no cuda today";
        assert_eq!(told(first_open(GPUS, |_| true, refused)), both);
        assert_eq!(first_open(GPUS, |_| false, refused).unwrap(), (None, None));
        assert_eq!(first_open(GPUS, |_| false, only_cuda).unwrap(), (Some(()), None));
        let no_capture = |_| Err::<(), _>(Error::invalid_argument("no capture"));
        assert!(first_open(GPUS, |_| true, no_capture).unwrap_err().is_invalid_argument());
    }
}
