use elinvar_core::{DType, Element, Error, Result};

use crate::Tensor;

impl Tensor {
    /// Whether the host reaches its memory where that lies, so that [`Tensor::with_values`] copies nothing of a row-major tensor.
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
                    // A copy of bytes may lie anywhere.
                    Err(_) => {
                        let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
                        bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
                        see(&values)
                    }
                });
            }
        })?;
        seen.ok_or_else(|| Error::device_lost("the device showed nothing"))
    }
}
