use std::{
    num::NonZeroUsize,
    sync::{Arc, Weak},
};

use elinvar_core::{
    Binding, Buffer, Completion, DType, Device, DeviceKind, DeviceProperties, Element, Error, HostMemory, Layout, ListBuilder, MemoryInfo, Pool,
    Result, Shape, Storage, format_bytes,
};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{Operator, Precision, TensorInfo, copy::Copy, encode, plan_for};

use crate::{BackendType, Recording, Tensor, fusion, recording, tensor::TensorMemory};

/// A device with the choices that go with it. Clones are the same device.
#[derive(Clone)]
pub struct Executor {
    pub(crate) device: Device,
    precision: Option<Precision>,
}

impl Executor {
    /// The best device here, an Apple or NVIDIA GPU before the CPU, or the one named by the environment variable `ELINVAR_DEVICE`.
    ///
    /// [`devices`](crate::devices) says why a device cannot be used, and [`Executor::new_auto_for`] if one was passed over.
    ///
    /// # Errors
    /// `ELINVAR_DEVICE` names a device that is not available; the message says which are.
    pub fn new_auto() -> Result<Self> {
        Self::best().map(|(best, _)| best)
    }

    /// As [`Executor::new_auto`], but where a device that nobody named has not `bytes` of memory free, the CPU. And what is to be told the user: why that
    /// GPU, or one that is here and does not open, is not used.
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
    /// # Errors
    /// It is not available here.
    pub fn new_with_backend(backend: BackendType) -> Result<Self> {
        backend.open().map(Self::from_device)
    }

    /// The CPU with this many threads.
    ///
    /// # Errors
    /// The operating system refuses the threads.
    pub fn new_cpu(threads: NonZeroUsize) -> Result<Self> {
        Ok(Self::from_device(Device::new(CpuBackend::new(Some(threads))?)))
    }

    /// Any device behind the backend interface.
    pub fn from_device(device: Device) -> Self {
        Self { device, precision: None }
    }

    /// The device behind the backend interface.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same device with a precision for every matrix product and attention; `None` (the default) means strict for a few rows and fast for many.
    pub fn with_precision(&self, precision: Option<Precision>) -> Self {
        Self { precision, ..self.clone() }
    }

    /// The precision of matrix products and attention.
    pub fn precision(&self) -> Option<Precision> {
        self.precision
    }

    /// The precision of a matrix product, or of attention, with this many rows: what was chosen, or strict for up to eight rows and fast for more.
    pub fn matmul_precision(&self, rows: usize) -> Precision {
        const FEW_ROWS: usize = 8;
        self.precision.unwrap_or(if rows <= FEW_ROWS { Precision::Strict } else { Precision::Fast })
    }

    /// What the device is.
    pub fn properties(&self) -> &DeviceProperties {
        self.device.properties()
    }

    /// Its memory now.
    pub fn memory(&self) -> MemoryInfo {
        self.device.memory()
    }

    /// Its buffer pool: statistics, cap, clearing.
    pub fn pool(&self) -> &Pool {
        self.device.pool()
    }

    /// A row-major tensor of `values`.
    ///
    /// # Errors
    /// Another number of values than the shape holds, or out of memory.
    pub fn tensor<T: Element>(&self, dims: &[usize], values: &[T]) -> Result<Tensor> {
        self.tensor_from_bytes(T::DTYPE, dims, bytemuck::cast_slice(values))
    }

    /// A row-major tensor of native-endian bytes.
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

    /// Runs an operator, or records it inside [`Executor::record`]. Inputs it cannot take with strides are made row-major first.
    ///
    /// # Errors
    /// What the operator refuses, tensors of another device, or out of memory.
    pub fn apply(&self, operator: &dyn Operator, inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>> {
        if inputs.iter().flatten().any(|t| !t.executor().device.same(&self.device)) {
            return Err(Error::invalid_argument("tensors of different devices: copy one through the host first"));
        }
        let adjust = |(index, tensor): (usize, &Option<&Tensor>)| match tensor {
            Some(tensor) if !operator.accepts_strides(index) => tensor.contiguous().map(Some),
            tensor => Ok(tensor.cloned()),
        };
        let adjusted = inputs.iter().enumerate().map(adjust).collect::<Result<Vec<_>>>()?;
        let copied = |index: usize| matches!((inputs[index], &adjusted[index]), (Some(a), Some(b)) if !a.same_memory(b));
        self.launch(operator, &adjusted, copied, None)
    }

    /// The row-major copy of a tensor with any strides.
    pub(crate) fn copy(&self, tensor: &Tensor) -> Result<Tensor> {
        only(self.launch(&Copy, &[Some(tensor.clone())], |_| false, None)?)
    }

    /// Launches an operator; its outputs go to `targets`, memory that has no buffer yet, if there are such.
    pub(crate) fn launch(
        &self,
        operator: &dyn Operator,
        inputs: &[Option<Tensor>],
        copied: impl Fn(usize) -> bool,
        targets: Option<Vec<Arc<TensorMemory>>>,
    ) -> Result<Vec<Tensor>> {
        let infos: Vec<_> = inputs.iter().map(|t| t.as_ref().map(Tensor::info)).collect();
        let types = operator.infer(&infos)?;
        let dtypes = infos.iter().flatten().chain(&types).map(|info| info.dtype);
        if let Some(dtype) = dtypes.into_iter().find(|dtype| !DType::ALL.contains(dtype)) {
            return Err(Error::unsupported(format!("{dtype} is for programs (Executor::compile_program): no operator takes or gives it")));
        }
        let plan = plan_for(operator, &infos, &types, &self.device)?;
        if let Some(index) = plan.updated_inputs().find(|&index| copied(index)) {
            return Err(Error::invalid_argument(format!("input {index} is updated in place and must be row-major: pass it without a view")));
        }
        if plan.updated_inputs().next().is_some() {
            fusion::flush()?;
        }
        let bindings = inputs.iter().map(|t| t.as_ref().map(Tensor::binding).transpose()).collect::<Result<Vec<_>>>()?;
        let recording = recording::is_recording(&self.device);
        let memories = targets.unwrap_or_else(|| types.iter().map(|_| TensorMemory::empty()).collect());
        let target = |(info, memory): (&TensorInfo, &Arc<TensorMemory>)| {
            let bytes = byte_size(info.dtype, info.shape())?;
            self.allocate_for(memory, bytes)?.bind(0, bytes)
        };
        let targets = types.iter().zip(&memories).map(target).collect::<Result<Vec<_>>>()?;
        if recording {
            let mut temporaries = Vec::new();
            for &bytes in &plan.scratch {
                temporaries.push(recording::allocate(&self.device, bytes)?);
            }
            let mut ready = temporaries.iter().cloned();
            let next = |bytes: usize| ready.next().map_or_else(|| self.device.allocate(bytes), Ok);
            recording::append(|list| encode(&plan, &bindings, &targets, &self.device, list, next))?;
            temporaries.iter().for_each(|t| recording::lend(t, Weak::new()));
        } else {
            let mut list = ListBuilder::new();
            encode(&plan, &bindings, &targets, &self.device, &mut list, |bytes| self.device.allocate(bytes))?;
            if !list.is_empty() {
                self.device.submit(&list.finish())?;
            }
        }
        let output = |((info, memory), target): ((&TensorInfo, Arc<TensorMemory>), &Binding)| {
            memory.set(target.buffer().clone());
            Tensor::new(self, memory, info.dtype, info.layout)
        };
        Ok(types.iter().zip(memories).zip(&targets).map(output).collect())
    }

    /// Records what `body` does on this device from this thread, without executing it.
    ///
    /// # Errors
    /// Those of `body`; recordings do not nest.
    pub fn record<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<(Recording, T)> {
        recording::record(&self.device, body)
    }

    /// A buffer for memory, which gets it when what fills it is on its way.
    pub(crate) fn allocate_for(&self, memory: &Arc<TensorMemory>, bytes: usize) -> Result<Buffer> {
        if !recording::is_recording(&self.device) {
            return self.device.allocate(bytes);
        }
        let buffer = recording::allocate(&self.device, bytes)?;
        recording::lend(&buffer, Arc::downgrade(memory));
        Ok(buffer)
    }

    /// As [`Executor::enqueue`], for a command that may change what was deferred reads.
    pub(crate) fn enqueue_after_all(&self, add: impl FnOnce(&mut ListBuilder) -> Result<()>) -> Result<()> {
        fusion::flush()?;
        self.enqueue(add)
    }

    /// Records a command, or submits it where this thread is not recording.
    pub(crate) fn enqueue(&self, add: impl FnOnce(&mut ListBuilder) -> Result<()>) -> Result<()> {
        if recording::is_recording(&self.device) {
            return recording::append(add);
        }
        let mut list = ListBuilder::new();
        add(&mut list)?;
        self.device.submit(&list.finish()).map(drop)
    }

    /// Starts a recording; its errors are reported by the completion, and by the next read.
    ///
    /// # Errors
    /// It was recorded on another device, or the device is lost.
    pub fn replay(&self, recording: &Recording) -> Result<Completion> {
        if !recording.device.same(&self.device) {
            return Err(Error::invalid_argument("the recording belongs to another device: record it again on this one"));
        }
        fusion::flush()?;
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

fn byte_size(dtype: DType, shape: &Shape) -> Result<usize> {
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
