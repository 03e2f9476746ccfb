//! Elements between device and host.

use elinvar_core::{Binding, DType, Element, Error, Reading, Result};

use crate::{executor::Executor, tensor::Tensor};

impl Tensor {
    /// The same tensor on another executor's device, copied through the host; on the same device it is [`Tensor::on`].
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// let cpu = Executor::new_with_backend(BackendType::Cpu)?;
    /// let x = executor.tensor(&[2], &[1i32, 2])?;
    /// assert_eq!(x.to(&cpu)?.add(&cpu.tensor(&[1], &[10i32])?)?.to_vec::<i32>()?, [11, 12]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::to_bytes`]; out of memory.
    pub fn to(&self, executor: &Executor) -> Result<Tensor> {
        if self.executor.device.same(&executor.device) {
            return self.on(executor);
        }
        executor.tensor_from_bytes(self.dtype(), self.shape(), &self.to_bytes()?)
    }

    /// Its elements in row-major order, as native-endian bytes.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// assert_eq!(executor.tensor(&[2], &[1u8, 255])?.to_bytes()?, [1, 255]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A recording is in progress, or the device failed, now or in work submitted before.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.shape().elements() * self.dtype().size()];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// Its elements in row-major order. Truth values are read as `u8`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.transpose(0, 1)?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another element type, and those of [`Tensor::to_bytes`].
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let matches = T::DTYPE == self.dtype() || (T::DTYPE == DType::U8 && self.dtype() == DType::Bool);
        if !matches {
            return Err(Error::invalid_argument(format!("the tensor holds {}, {} was asked for: cast it first", self.dtype(), T::DTYPE)));
        }
        let mut values = vec![T::zeroed(); self.shape().elements()];
        self.read(bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Starts to read its elements in row-major order, as native-endian bytes: what they are after everything submitted before, whatever is submitted
    /// after. A loop can start its next step before it looks at the results of the last, whose errors its completion reports.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1u8, 2])?;
    /// let before = x.read_later()?;
    /// x.add_(&x)?;
    /// assert_eq!((before.wait()?, x.to_bytes()?), (vec![1, 2], vec![2, 4]));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::to_bytes`].
    pub fn read_later(&self) -> Result<Reading> {
        let binding = self.readable()?;
        self.executor.device.read_later(binding.buffer(), binding.offset(), binding.bytes())
    }

    /// Its elements as a row-major range, for reading.
    pub(crate) fn readable(&self) -> Result<Binding> {
        if self.recorder().is_some_and(|recorder| recorder.is_open()) {
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
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[3], &[1i32, 2, 3])?;
    /// x.i(..2)?.write(&[7i32, 8])?;
    /// assert_eq!(x.to_vec::<i32>()?, [7, 8, 3]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another type or number of values, a view with gaps, read-only memory, or a failed device.
    pub fn write<T: Element>(&self, values: &[T]) -> Result<()> {
        if T::DTYPE != self.dtype() || values.len() != self.shape().elements() || !self.layout().is_contiguous() {
            let found = format!("{} values of {}", values.len(), T::DTYPE);
            return Err(Error::invalid_argument(format!("cannot write {found} to {self:?}: type, count and a row-major layout must match")));
        }
        let binding = self.binding()?;
        self.memory().change();
        self.executor.device.write(binding.buffer(), binding.offset(), bytemuck::cast_slice(values))
    }

    /// Whether the host reaches its memory where that lies, so that [`Tensor::with_values`] copies nothing of a row-major tensor.
    ///
    /// ```
    /// # use elinvar::{DType, Executor, Storage};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.empty(DType::F32, &[4], Storage::Private)?;
    /// assert!(!x.is_shared()? || executor.properties().unified_memory);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Its elements could not be computed.
    pub fn is_shared(&self) -> Result<bool> {
        Ok(self.binding()?.buffer().raw().is_shared())
    }

    /// Shows its elements in row-major order, after everything submitted before: without a copy where the host reaches the device's memory and the
    /// tensor is row-major. `see` may ask nothing of the device, whose work waits meanwhile.
    ///
    /// ```
    /// let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[4], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.with_values(|values: &[f32]| values.iter().sum::<f32>())?, 10.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another element type (truth values are seen as `u8`), a recording in progress, or a failed device.
    pub fn with_values<T: Element, R>(&self, see: impl FnOnce(&[T]) -> R) -> Result<R> {
        if T::DTYPE != self.dtype() && !(T::DTYPE == DType::U8 && self.dtype() == DType::Bool) {
            return Err(Error::invalid_argument(format!("the tensor holds {}, {} was asked for: cast it first", self.dtype(), T::DTYPE)));
        }
        let (device, binding) = (self.executor().device(), self.readable()?);
        let (mut see, mut seen) = (Some(see), None);
        device.view(binding.buffer(), binding.offset(), binding.bytes(), &mut |bytes| {
            if let Some(see) = see.take() {
                seen = Some(match bytemuck::try_cast_slice(bytes) {
                    Ok(values) => see(values),
                    Err(_) => see(&elements(bytes)),
                });
            }
        })?;
        seen.ok_or_else(|| Error::device_lost("the device showed nothing"))
    }

    /// Lets the host change its elements in row-major order, after everything submitted before: without a copy where the host reaches the device's memory
    /// ([`Tensor::is_shared`]), else in a copy that is written back. `change` may ask nothing of the device, whose work waits meanwhile.
    ///
    /// ```
    /// let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[4], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// x.i(2..)?.with_values_mut(|values: &mut [f32]| values.reverse())?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 4.0, 3.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another element type, a view with gaps, read-only memory, a recording in progress, or a failed device.
    pub fn with_values_mut<T: Element, R>(&self, change: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        if T::DTYPE != self.dtype() || !self.layout().is_contiguous() {
            return Err(Error::invalid_argument(format!("cannot change values of {} in {self:?}: type and a row-major layout must match", T::DTYPE)));
        }
        let (device, binding) = (self.executor().device(), self.readable()?);
        self.memory().change();
        let (mut change, mut changed) = (Some(change), None);
        device.view_mut(binding.buffer(), binding.offset(), binding.bytes(), &mut |bytes| {
            if let Some(change) = change.take() {
                changed = Some(match bytemuck::try_cast_slice_mut(bytes) {
                    Ok(values) => change(values),
                    Err(_) => {
                        let mut values = elements(bytes);
                        let result = change(&mut values);
                        bytes.copy_from_slice(bytemuck::cast_slice(&values));
                        result
                    }
                });
            }
        })?;
        changed.ok_or_else(|| Error::device_lost("the device showed nothing"))
    }
}

/// Bytes of a copy, which may lie anywhere, as elements.
fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
    values
}
