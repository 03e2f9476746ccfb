//! Tensors made of values, of memory and of nothing.

use std::sync::Arc;

use elinvar_core::{DType, Element, Error, HostMemory, HostMemoryMut, Layout, ListBuilder, RawBuffer, Result, Shape, SplitMix64, Storage};
use elinvar_kernels::{
    Scalar,
    fill::{Arange, Fill},
};

use crate::{
    executor::{Executor, byte_size, only},
    graph::TensorMemory,
    tensor::Tensor,
};

impl Executor {
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
        self.adopt_strided(dtype, &Layout::contiguous(shape), memory)
    }

    /// The same for elements that lie in any layout inside the memory.
    ///
    /// ```
    /// # use elinvar::{DType, Executor, HostMemory, Layout, Shape};
    /// # let executor = Executor::new_auto()?;
    /// let columns = Layout::strided(Shape::new(&[2, 2])?, &[1, 2], 0)?;
    /// let x = executor.adopt_strided(DType::U8, &columns, HostMemory::new(std::sync::Arc::new(vec![1u8, 2, 3, 4])))?;
    /// assert_eq!(x.to_vec::<u8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A layout that leaves the memory, memory not aligned for the type, or out of memory.
    pub fn adopt_strided(&self, dtype: DType, layout: &Layout, memory: HostMemory) -> Result<Tensor> {
        let bytes = memory.bytes();
        check_inside(dtype, layout, bytes.len())?;
        check_aligned(dtype, bytes.as_ptr())?;
        Ok(Tensor::new(self, TensorMemory::new(self.device.adopt(memory)?), dtype, *layout))
    }

    /// The same for memory of the device's own kind that its crate made a buffer of, such as another library's on a GPU.
    ///
    /// ```
    /// use elinvar::{DType, Device, Executor, Layout, Shape, Storage};
    /// use elinvar_core::{Backend, NullBackend};
    ///
    /// let executor = Executor::from_device(Device::new(NullBackend::new()));
    /// let memory = NullBackend::new().allocate(16, Storage::Automatic)?;
    /// let last = Layout::strided(Shape::new(&[2])?, &[1], 2)?;
    /// assert_eq!(executor.adopt_raw(DType::F32, &last, memory)?.shape().elements(), 2);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A layout that leaves the memory.
    pub fn adopt_raw(&self, dtype: DType, layout: &Layout, memory: RawBuffer) -> Result<Tensor> {
        check_inside(dtype, layout, memory.bytes())?;
        Ok(Tensor::new(self, TensorMemory::new(self.device.adopt_raw(memory)?), dtype, *layout))
    }

    /// Host memory as a row-major tensor whose elements operators write where they lie ([`Executor::apply_into`]), on devices whose kernels reach it.
    ///
    /// ```
    /// use std::{ptr::NonNull, sync::Arc};
    /// use elinvar::{BackendType, DType, Executor, HostMemoryMut, Shape, kernels::softmax::Softmax};
    ///
    /// let executor = Executor::new_with_backend(BackendType::Cpu)?;
    /// let mut results = vec![0f32; 2];
    /// // SAFETY: the vector outlives the tensor, and is looked at when that is gone.
    /// let memory = unsafe { HostMemoryMut::new(NonNull::from(&mut results[..]).cast(), 8, Arc::new(())) };
    /// let y = executor.adopt_mut(DType::F32, &Shape::new(&[2])?, memory)?;
    /// executor.apply_into(Arc::new(Softmax { axis: 0, log: false }), &[Some(&executor.tensor(&[2], &[1f32, 1.0])?)], &[&y])?;
    /// y.with_values(|_: &[f32]| ())?;
    /// drop(y);
    /// assert_eq!(results, [0.5, 0.5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of bytes than the shape holds, memory not aligned for the type, or a device whose kernels reach no host memory.
    pub fn adopt_mut(&self, dtype: DType, shape: &Shape, memory: HostMemoryMut) -> Result<Tensor> {
        let shape = checked_shape(dtype, shape, memory.bytes())?;
        self.adopt_strided_mut(dtype, &Layout::contiguous(shape), memory)
    }

    /// The same for elements that lie in any layout inside the memory. What writes in place takes row-major parts of it alone.
    ///
    /// ```
    /// use std::{ptr::NonNull, sync::Arc};
    /// use elinvar::{BackendType, DType, Executor, HostMemoryMut, Layout, Shape};
    ///
    /// let executor = Executor::new_with_backend(BackendType::Cpu)?;
    /// let mut values = vec![1f32, 2.0, 3.0, 4.0];
    /// // SAFETY: the vector outlives the tensor, and is looked at when that is gone.
    /// let memory = unsafe { HostMemoryMut::new(NonNull::from(&mut values[..]).cast(), 16, Arc::new(())) };
    /// let columns = Layout::strided(Shape::new(&[2, 2])?, &[1, 2], 0)?;
    /// let x = executor.adopt_strided_mut(DType::F32, &columns, memory)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A layout that leaves the memory, memory not aligned for the type, or a device whose kernels reach no host memory.
    pub fn adopt_strided_mut(&self, dtype: DType, layout: &Layout, memory: HostMemoryMut) -> Result<Tensor> {
        check_inside(dtype, layout, memory.bytes())?;
        check_aligned(dtype, memory.pointer())?;
        Ok(Tensor::new(self, TensorMemory::new(self.device.adopt_mut(memory)?), dtype, *layout))
    }

    /// What stands for tensors of this type and layout in a recording, which is then replayed for those whose memory it is [placed](Tensor::place) at; it has
    /// no elements.
    ///
    /// ```
    /// use elinvar::{BackendType, DType, Executor, Layout, Shape};
    ///
    /// let executor = Executor::new_with_backend(BackendType::Cpu)?;
    /// let layout = Layout::contiguous(Shape::new(&[2])?);
    /// let (x, y) = (executor.stand_in(DType::F32, &layout, true)?, executor.stand_in(DType::F32, &layout, false)?);
    /// let (recording, ()) = executor.record(|recorded| x.on(recorded)?.sqrt_into(&y))?;
    /// for (numbers, roots) in [([1f32, 4.0], [1f32, 2.0]), ([9.0, 16.0], [3.0, 4.0])] {
    ///     let mut found = [0f32; 2];
    ///     // SAFETY: the arrays live until the replay is done, and nothing else uses them meanwhile.
    ///     unsafe { x.place(numbers.as_ptr().expose_provenance())? };
    ///     // SAFETY: as above.
    ///     unsafe { y.place(found.as_mut_ptr().expose_provenance())? };
    ///     executor.replay(&recording)?.wait()?;
    ///     assert_eq!(found, roots);
    /// }
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape that is too large to address.
    pub fn stand_in(&self, dtype: DType, layout: &Layout, is_read_only: bool) -> Result<Tensor> {
        byte_size(dtype, layout.shape())?;
        let buffer = self.device.stand_in(layout.span().len() * dtype.size(), is_read_only);
        Ok(Tensor::new(self, TensorMemory::new(buffer), dtype, layout.rebased()))
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

    /// A tensor whose elements are not set yet, in memory that host and device share, or that is the device's alone, where the device has a choice;
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

    /// A tensor of one value.
    ///
    /// ```
    /// use elinvar::{DType, Executor};
    ///
    /// let executor = Executor::new_auto()?;
    /// assert_eq!(executor.full(DType::I32, &[2], 7)?.to_vec::<i32>()?, [7, 7]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A value that the type does not have, a shape beyond the limits, or out of memory.
    pub fn full(&self, dtype: DType, dims: &[usize], value: impl Into<Scalar>) -> Result<Tensor> {
        only(self.apply(Arc::new(Fill { shape: dims.to_vec(), dtype, value: value.into() }), &[])?)
    }

    /// A tensor of ones.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.ones(DType::I32, &[2])?.to_vec::<i32>()?, [1, 1]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::full`].
    pub fn ones(&self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.full(dtype, dims, 1)
    }

    /// `start`, `start + step`, … up to but not including `limit`.
    ///
    /// ```
    /// use elinvar::{DType, Executor};
    ///
    /// let executor = Executor::new_auto()?;
    /// assert_eq!(executor.arange(DType::F32, 0, 2, 0.5)?.to_vec::<f32>()?, [0.0, 0.5, 1.0, 1.5]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A step of zero, values that the type does not have, or out of memory.
    pub fn arange(&self, dtype: DType, start: impl Into<Scalar>, limit: impl Into<Scalar>, step: impl Into<Scalar>) -> Result<Tensor> {
        only(self.apply(Arc::new(Arange { start: start.into(), limit: limit.into(), step: step.into(), dtype }), &[])?)
    }

    /// The `n` by `n` matrix with ones on its diagonal and zeros elsewhere.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// assert_eq!(executor.eye(DType::I32, 2)?.to_vec::<i32>()?, [1, 0, 0, 1]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A shape beyond the limits, or out of memory.
    pub fn eye(&self, dtype: DType, n: usize) -> Result<Tensor> {
        let row = self.arange(DType::I64, 0, n as i64, 1)?;
        row.unsqueeze(1)?.eq(&row)?.cast(dtype)
    }

    /// Numbers in [0, 1), the same for a seed wherever they are made.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.rand(&[100], 1)?;
    /// assert!(x.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::tensor`].
    pub fn rand(&self, dims: &[usize], seed: u64) -> Result<Tensor> {
        let mut random = SplitMix64::new(seed);
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| uniform(&mut random)).collect();
        self.tensor(dims, &values)
    }

    /// Numbers of the normal distribution with mean 0 and deviation 1, the same for a seed wherever they are made.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.randn(&[10_000], 1)?;
    /// assert!(x.mean(&[], false)?.item::<f32>()?.abs() < 0.1);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::tensor`].
    pub fn randn(&self, dims: &[usize], seed: u64) -> Result<Tensor> {
        let mut random = SplitMix64::new(seed);
        // Box and Muller, with the library's own functions: those of the system differ from machine to machine.
        let mut normal = || {
            let (u, v) = (uniform(&mut random), uniform(&mut random));
            (-2.0 * elinvar_kernels::math::log(1.0 - u)).sqrt() * elinvar_kernels::math::cos(std::f32::consts::TAU * v)
        };
        let values: Vec<f32> = (0..dims.iter().product()).map(|_| normal()).collect();
        self.tensor(dims, &values)
    }
}

/// A number in [0, 1) of 24 bits.
fn uniform(random: &mut SplitMix64) -> f32 {
    (random.next_u64() >> 40) as f32 * 2f32.powi(-24)
}

/// Whether elements of a layout lie in so many bytes.
fn check_inside(dtype: DType, layout: &Layout, bytes: usize) -> Result<()> {
    if dtype.bytes(layout.span().end).is_some_and(|end| end <= bytes) {
        return Ok(());
    }
    let found = format!("{dtype} of shape {} with strides {:?} from element {}", layout.shape(), layout.strides(), layout.offset());
    Err(Error::invalid_argument(format!("{found} leave memory of {bytes} bytes")))
}

pub(crate) fn check_aligned(dtype: DType, pointer: *const u8) -> Result<()> {
    if pointer.addr().is_multiple_of(dtype.size()) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("memory is not aligned for {dtype}: copy it with tensor_from_bytes")))
}

fn checked_shape(dtype: DType, dims: &[usize], bytes: usize) -> Result<Shape> {
    let shape = Shape::new(dims)?;
    let expected = byte_size(dtype, &shape)?;
    if bytes != expected {
        return Err(Error::invalid_argument(format!("a {dtype} tensor of shape {shape} takes {expected} bytes, {bytes} were given")));
    }
    Ok(shape)
}
