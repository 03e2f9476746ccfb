use elinvar_core::{DType, Element, Error, Result};

use crate::Tensor;

impl Tensor {
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
