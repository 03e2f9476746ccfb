use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use elinvar_core::{Binding, Buffer, DType, Element, Error, Layout, Reading, Result, Shape};
use elinvar_kernels::TensorInfo;

use crate::{
    Executor,
    fusion::{self, Node},
    recording,
};

/// The memory of a tensor and its views, or what its elements will be computed from. Its address is the identity a recording watches.
#[derive(Default)]
pub(crate) struct TensorMemory {
    buffer: OnceLock<Buffer>,
    node: Mutex<Option<Arc<Node>>>,
}

impl TensorMemory {
    pub(crate) fn new(buffer: Buffer) -> Arc<Self> {
        let memory = Self::default();
        memory.set(buffer);
        Arc::new(memory)
    }

    /// What is yet to get its buffer.
    pub(crate) fn empty() -> Arc<Self> {
        Arc::default()
    }

    /// What gets its elements when they are needed.
    pub(crate) fn pending(node: &Arc<Node>) -> Arc<Self> {
        let memory = Arc::new(Self { buffer: OnceLock::new(), node: Mutex::new(Some(node.clone())) });
        node.remember(&memory);
        memory
    }

    /// Gives it its buffer, for good.
    pub(crate) fn set(&self, buffer: Buffer) {
        let _ = self.buffer.set(buffer);
        self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn has_buffer(&self) -> bool {
        self.buffer.get().is_some()
    }

    /// What its elements will be computed from.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Elements of one type on a device, in a shape with strides. Clones and views share memory.
#[derive(Clone)]
pub struct Tensor {
    executor: Executor,
    memory: Arc<TensorMemory>,
    dtype: DType,
    layout: Layout,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{} on {})", self.dtype, self.shape(), self.executor.properties().kind)
    }
}

impl Tensor {
    pub(crate) fn new(executor: &Executor, memory: Arc<TensorMemory>, dtype: DType, layout: Layout) -> Self {
        Self { executor: executor.clone(), memory, dtype, layout }
    }

    /// The executor it lives on.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its extents.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Where its elements lie in its memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What an operator sees of it.
    pub fn info(&self) -> TensorInfo {
        TensorInfo { dtype: self.dtype, layout: self.layout.rebased() }
    }

    /// The bytes it touches.
    pub(crate) fn binding(&self) -> Result<Binding> {
        let (span, size) = (self.layout.span(), self.dtype.size());
        fusion::force(&self.memory)?;
        let buffer = self.memory.buffer.get().ok_or_else(|| Error::invalid_argument("the tensor's operator failed before: it has no elements"))?;
        // A view without elements may begin beyond the end.
        let start = if span.is_empty() { 0 } else { span.start * size };
        buffer.bind(start, span.len() * size)
    }

    /// What its elements will be computed from, where they are not yet.
    pub(crate) fn pending_node(&self) -> Option<Arc<Node>> {
        self.memory.node().filter(|node| self.layout == node.layout())
    }

    /// Whether both are the same elements of the same memory.
    pub(crate) fn same_elements(&self, other: &Tensor) -> bool {
        self.same_memory(other) && self.dtype == other.dtype && self.layout == other.layout
    }

    pub(crate) fn same_memory(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    fn view(&self, layout: Layout) -> Tensor {
        Tensor { executor: self.executor.clone(), memory: self.memory.clone(), dtype: self.dtype, layout }
    }

    /// The same tensor for an executor of the same device with other choices (precision).
    ///
    /// # Errors
    /// Another device.
    pub fn on(&self, executor: &Executor) -> Result<Tensor> {
        if !executor.device.same(&self.executor.device) {
            return Err(Error::invalid_argument("the tensor lives on another device: copy it through the host"));
        }
        Ok(Tensor { executor: executor.clone(), ..self.clone() })
    }

    /// Its elements in row-major order, as native-endian bytes.
    ///
    /// # Errors
    /// A recording is in progress, or the device failed, now or in work submitted before.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.shape().elements() * self.dtype.size()];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Its elements in row-major order. Truth values are read as `u8`.
    ///
    /// # Errors
    /// Another element type, and those of [`Tensor::to_bytes`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let matches = T::DTYPE == self.dtype || (T::DTYPE == DType::U8 && self.dtype == DType::Bool);
        if !matches {
            return Err(Error::invalid_argument(format!("the tensor holds {}, {} was asked for: cast it first", self.dtype, T::DTYPE)));
        }
        let mut values = vec![T::zeroed(); self.shape().elements()];
        self.read(bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Starts to read its elements in row-major order, as native-endian bytes: what they are after everything submitted before, whatever is submitted
    /// after. A loop can start its next step before it looks at the results of the last, whose errors its completion reports.
    ///
    /// # Errors
    /// As [`Tensor::to_bytes`].
    pub fn read_later(&self) -> Result<Reading> {
        let binding = self.readable()?;
        self.executor.device.read_later(binding.buffer(), binding.offset(), binding.bytes())
    }

    /// Its elements as a row-major range, for reading.
    fn readable(&self) -> Result<Binding> {
        if recording::is_recording(&self.executor.device) {
            return Err(Error::invalid_argument("a tensor cannot be read while recording: replay the recording first"));
        }
        self.contiguous()?.binding()
    }

    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        let binding = self.readable()?;
        self.executor.device.read(binding.buffer(), binding.offset(), bytes)
    }

    /// Overwrites all elements, after everything submitted before: new inputs for a recording.
    ///
    /// # Errors
    /// Another type or number of values, a view with gaps, read-only memory, or a failed device.
    pub fn write<T: Element>(&self, values: &[T]) -> Result<()> {
        if T::DTYPE != self.dtype || values.len() != self.shape().elements() || !self.layout.is_contiguous() {
            let found = format!("{} values of {}", values.len(), T::DTYPE);
            return Err(Error::invalid_argument(format!("cannot write {found} to {self:?}: type, count and a row-major layout must match")));
        }
        fusion::flush()?;
        let binding = self.binding()?;
        self.executor.device.write(binding.buffer(), binding.offset(), bytemuck::cast_slice(values))
    }

    /// Overwrites all elements with those of another row-major tensor of the same type and number of elements, by the device's own copy.
    /// Recorded inside [`Executor::record`].
    ///
    /// # Errors
    /// Another type, number of elements or device; a view with gaps; memory in common; or read-only memory.
    pub fn copy_from(&self, source: &Tensor) -> Result<()> {
        let fits = source.dtype == self.dtype && source.shape().elements() == self.shape().elements();
        if !fits || !source.layout.is_contiguous() || !self.layout.is_contiguous() {
            return Err(Error::invalid_argument(format!("cannot copy {source:?} to {self:?}: type, count and row-major layouts must match")));
        }
        if !source.executor.device.same(&self.executor.device) {
            return Err(Error::invalid_argument("tensors of different devices: copy one through the host"));
        }
        let (from, to) = (source.binding()?, self.binding()?);
        self.executor.enqueue_after_all(|list| list.copy(from, to))
    }

    /// Itself if it is row-major, else a row-major copy.
    ///
    /// # Errors
    /// Out of memory.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.layout.is_contiguous() { Ok(self.clone()) } else { self.executor.copy(self) }
    }

    /// The same elements in another shape; a copy only if they are not row-major.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&self, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        match self.layout.reshape(shape)? {
            Some(layout) => Ok(self.view(layout)),
            None => self.executor.copy(self)?.reshape(dims),
        }
    }

    /// A view with the axes in another order.
    ///
    /// # Errors
    /// `axes` is no permutation.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        Ok(self.view(self.layout.permute(axes)?))
    }

    /// A view with two axes exchanged; negative axes count from the end.
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let (a, b) = (self.shape().axis(a)?, self.shape().axis(b)?);
        let mut axes: Vec<_> = (0..self.shape().rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// A view of `count` elements of one axis from `start`, `step` apart (negative walks backwards).
    ///
    /// # Errors
    /// Elements outside the shape.
    pub fn slice(&self, axis: isize, start: usize, count: usize, step: isize) -> Result<Tensor> {
        Ok(self.view(self.layout.slice(self.shape().axis(axis)?, start, count, step)?))
    }

    /// A view that repeats axes of extent one, by NumPy's rule.
    ///
    /// # Errors
    /// A shape it does not broadcast to.
    pub fn broadcast_to(&self, dims: &[usize]) -> Result<Tensor> {
        Ok(self.view(self.layout.broadcast_to(Shape::new(dims)?)?))
    }
}
