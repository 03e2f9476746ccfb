mod calls;
mod choice;
mod launch;
mod types;

use std::{num::NonZeroUsize, sync::Arc};

use elinvar_core::{DType, Device, DeviceProperties, Error, MemoryInfo, Pool, Result, Shape};
use elinvar_cpu::CpuBackend;
use elinvar_group::Group;
use elinvar_kernels::Precision;

pub use calls::KeptOperator;
pub(crate) use launch::only;

use crate::{backend::BackendType, graph::Shared, tensor::Tensor};

/// A device with the choices that go with it. Clones are the same device.
#[derive(Clone)]
pub struct Executor {
    pub(crate) device: Device,
    /// The group that the device is, if it is one.
    pub(crate) group: Option<Group>,
    /// Whether each rank has all of what is shared otherwise.
    pub(crate) is_replicated: bool,
    precision: Precision,
    /// What records its operators, in place of running them.
    pub(crate) recorder: Option<Arc<Shared>>,
    /// Whether its operators go on the tape of gradients.
    tracks: bool,
}

impl Executor {
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
    /// The operating system rejects the threads.
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
        Self { device, group: None, is_replicated: false, precision: Self::DEFAULT_PRECISION, recorder: None, tracks: true }
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

    /// The precision of an executor that was given none: a row's bits do not depend on what else is computed. `docs/same-bits.md` has the price of each.
    pub const DEFAULT_PRECISION: Precision = Precision::Invariant;

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

    /// The same device whose operators, and those of tensors that were [moved](crate::Tensor::on) to it, are not on the tape of gradients. Their
    /// results are ordinary tensors that require no gradient.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[], &[3f32])?.requires_grad()?;
    /// assert!(!x.on(&executor.no_grad())?.exp()?.is_tracked());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn no_grad(&self) -> Self {
        Self { tracks: false, ..self.clone() }
    }

    /// The same with a tape.
    pub(crate) fn tracking(&self) -> Self {
        Self { tracks: true, ..self.clone() }
    }

    /// Whether an operator on these tensors goes on the tape.
    pub(crate) fn tracks(&self, inputs: &[Option<&Tensor>]) -> bool {
        let given = || inputs.iter().copied().flatten();
        self.tracks && given().any(|tensor| tensor.origin().is_some()) && given().all(|tensor| tensor.executor().tracks)
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
}

pub(crate) fn byte_size(dtype: DType, shape: &Shape) -> Result<usize> {
    dtype.bytes(shape.elements()).ok_or_else(|| Error::invalid_argument(format!("a {dtype} tensor of shape {shape} is too large to address")))
}
