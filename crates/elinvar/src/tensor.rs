use std::{fmt, ptr, sync::Arc};

use elinvar_core::{Binding, DType, Error, Layout, Result, Shape};
use elinvar_kernels::{
    Operator, TensorInfo,
    copy::{Expand, Reshape, Slice, Transpose},
};

use crate::{
    creation::check_aligned,
    executor::Executor,
    gradient::{Origin, write_down},
    graph::{Shared, TensorMemory, binding},
};

/// Elements of one type on a device, in a shape with strides. Clones and views share memory.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) executor: Executor,
    memory: Arc<TensorMemory>,
    dtype: DType,
    layout: Layout,
    origin: Option<Origin>,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{} on {})", self.dtype, self.shape(), self.executor.properties().kind)
    }
}

impl Tensor {
    pub(crate) fn new(executor: &Executor, memory: Arc<TensorMemory>, dtype: DType, layout: Layout) -> Self {
        Self { executor: executor.tracking(), memory, dtype, layout, origin: None }
    }

    /// Its place on the tape, if it has one.
    pub(crate) fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    pub(crate) fn set_origin(&mut self, origin: Origin) {
        self.origin = Some(origin);
    }

    pub(crate) fn forget_origin(&mut self) {
        self.origin = None;
    }

    /// The executor it lives on.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[1], &[2.5f32])?;
    /// assert_eq!(x.executor().properties().kind, executor.properties().kind);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Type of its elements.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.tensor(&[1], &[2.5f32])?.dtype(), DType::F32);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its extents.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 3], &[0i32; 6])?;
    /// assert_eq!((x.shape()[1], x.shape().elements(), x.shape().to_string()), (3, 6, "[2, 3]".to_owned()));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Where its elements lie in its memory.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 3], &[0i32; 6])?;
    /// assert_eq!(x.transpose(0, 1)?.layout().strides(), [1, 3]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What an operator sees of it.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let rows = executor.tensor(&[2, 3], &[0i32; 6])?.i(1..)?;
    /// assert_eq!((rows.layout().offset(), rows.info().layout.offset()), (3, 0));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn info(&self) -> TensorInfo {
        TensorInfo { dtype: self.dtype, layout: self.layout.rebased() }
    }

    /// The bytes it touches where its device keeps them, for callers that share memory with other libraries. They may still be computed.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let rows = executor.tensor(&[2, 3], &[0f32; 6])?.i(1..)?;
    /// let binding = rows.binding()?;
    /// assert_eq!((binding.offset(), binding.bytes()), (12, 12));
    /// executor.device().view(binding.buffer(), binding.offset(), binding.bytes(), &mut |bytes| assert_eq!(bytes, [0; 12]))?;
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A result of a recorder that has not ended, or failed.
    pub fn binding(&self) -> Result<Binding> {
        match (self.memory.buffer(), self.memory.pending()) {
            (Some(buffer), _) => binding(buffer, self.dtype, &self.layout),
            (None, Some(pending)) => Err(pending.error()),
            (None, None) => Err(Error::internal("a tensor has no memory")),
        }
    }

    /// Has what stands for tensors ([`Executor::stand_in`]) be the memory at an address, for replays from now on.
    ///
    /// # Safety
    /// Until what was submitted is done, the bytes that its layout shows are there where the device reaches them, initialised, and nothing else writes them,
    /// nor reads them unless they are read-only.
    ///
    /// # Errors
    /// An address that is not aligned for the type, or a tensor that has memory.
    pub unsafe fn place(&self, address: usize) -> Result<()> {
        check_aligned(self.dtype, ptr::without_provenance(address))?;
        match self.memory.buffer() {
            // SAFETY: as the caller promises.
            Some(buffer) => unsafe { buffer.place(address) },
            None => self.binding().map(drop),
        }
    }

    pub(crate) fn memory(&self) -> &Arc<TensorMemory> {
        &self.memory
    }

    /// What records operators of this tensor.
    pub(crate) fn recorder(&self) -> Option<&Arc<Shared>> {
        let moved = || self.executor.recorder.as_ref().filter(|recorder| recorder.is_open());
        self.memory.pending().map(|pending| &pending.recorder).or_else(moved)
    }

    pub(crate) fn same_memory(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// Its memory through another layout.
    pub(crate) fn view(&self, layout: Layout) -> Tensor {
        Tensor { executor: self.executor.clone(), memory: self.memory.clone(), dtype: self.dtype, layout, origin: None }
    }

    /// The same for what an operator shows, which has the gradient.
    pub(crate) fn view_by<O: Operator>(&self, layout: Layout, operator: impl FnOnce() -> O) -> Tensor {
        let mut views = [self.view(layout)];
        if self.executor.tracks(&[Some(self)]) {
            write_down(&(Arc::new(operator()) as Arc<dyn Operator>), &[Some(self)], &mut views);
        }
        let [view] = views;
        view
    }

    /// The same tensor for an executor of the same device with other choices: of precision, or of a recorder.
    ///
    /// ```
    /// # use elinvar::{Executor, Precision};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[1], &[2.5f32])?;
    /// let strict = x.on(&executor.with_precision(Precision::Strict))?;
    /// assert_eq!(strict.matmul(&x)?.item::<f32>()?, 6.25);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another device.
    pub fn on(&self, executor: &Executor) -> Result<Tensor> {
        Ok(Tensor { executor: executor.take_over(&self.executor)?, ..self.clone() })
    }

    /// Itself if it is row-major, else a row-major copy.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.transpose(0, 1)?.contiguous()?.layout().strides(), [2, 1]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Out of memory.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.layout.is_contiguous() { Ok(self.clone()) } else { self.executor.copy(self) }
    }

    /// The same elements in another shape; a copy only if they are not row-major.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[4], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.reshape(&[2, 2])?.i(1)?.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&self, dims: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        match self.layout.reshape(shape)? {
            Some(layout) => Ok(self.view_by(layout, || Reshape { shape: dims.iter().map(|&extent| extent as isize).collect(), allow_zero: true })),
            None => self.executor.copy(self)?.reshape(dims),
        }
    }

    /// A view with the axes in another order.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[1, 2, 3], &[0i32; 6])?;
    /// assert_eq!(x.permute(&[2, 0, 1])?.shape().to_vec(), [3, 1, 2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// `axes` is no permutation.
    pub fn permute(&self, axes: &[usize]) -> Result<Tensor> {
        let perm = || Some(axes.iter().map(|&axis| axis as isize).collect());
        Ok(self.view_by(self.layout.permute(axes)?, || Transpose { perm: perm() }))
    }

    /// A view with two axes exchanged; negative axes count from the end.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.transpose(-1, -2)?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let (a, b) = (self.shape().axis(a)?, self.shape().axis(b)?);
        let mut axes: Vec<_> = (0..self.shape().rank()).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// A view of `count` elements of one axis from `start`, at a distance of `step` (negative walks backwards).
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[5], &[0i32, 1, 2, 3, 4])?;
    /// assert_eq!(x.slice(0, 4, 3, -2)?.to_vec::<i32>()?, [4, 2, 0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Elements outside the shape.
    pub fn slice(&self, axis: isize, start: usize, count: usize, step: isize) -> Result<Tensor> {
        let axis = self.shape().axis(axis)?;
        // An end before the first element is written as far from the last.
        let end = usize::try_from(start as isize + count as isize * step).map_or(isize::MIN, |end| end as isize);
        let slice = || Slice { starts: vec![start as isize], ends: vec![end], axes: Some(vec![axis as isize]), steps: Some(vec![step]) };
        Ok(self.view_by(self.layout.slice(axis, start, count, step)?, slice))
    }

    /// A view that repeats axes of extent one, by NumPy's rule.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 1], &[1i32, 2])?;
    /// assert_eq!(x.broadcast_to(&[2, 2])?.to_vec::<i32>()?, [1, 1, 2, 2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape it does not broadcast to.
    pub fn broadcast_to(&self, dims: &[usize]) -> Result<Tensor> {
        Ok(self.view_by(self.layout.broadcast_to(Shape::new(dims)?)?, || Expand { shape: dims.to_vec() }))
    }
}
