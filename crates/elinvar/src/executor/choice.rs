//! Which device an executor takes.

use elinvar_core::{DeviceKind, Result, format_bytes};

use crate::{backend::BackendType, executor::Executor};

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

    /// As [`Executor::new_auto`], but the CPU where a device that was not named has less than `bytes` free. And what the user should see: why that
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

#[cfg(test)]
mod tests {
    use elinvar_core::Error;

    use super::*;

    #[test]
    fn a_gpu_that_is_here_and_does_not_open_is_named_with_the_reason() {
        const GPUS: &[BackendType] = &[BackendType::Metal(0), BackendType::Cuda(0)];
        let rejected = |backend| Err(Error::device_unavailable(format!("no {backend} today")));
        let only_cuda = |backend| if backend == BackendType::Cuda(0) { Ok(()) } else { rejected(backend) };
        let is_metal = |backend| backend == BackendType::Metal(0);
        let reason = |opened: Result<(Option<()>, Option<String>)>| opened.unwrap().1.unwrap_or_default();
        assert_eq!(reason(first_open(GPUS, is_metal, rejected)), "computing on the cpu, as metal is not available: no metal today");
        assert_eq!(reason(first_open(GPUS, is_metal, only_cuda)), "computing on the cuda, as metal is not available: no metal today");
        let both = "computing on the cpu, as metal is not available: no metal today; cuda is not available: no cuda today";
        assert_eq!(reason(first_open(GPUS, |_| true, rejected)), both);
        assert_eq!(first_open(GPUS, |_| false, rejected).unwrap(), (None, None));
        assert_eq!(first_open(GPUS, |_| false, only_cuda).unwrap(), (Some(()), None));
        let no_capture = |_| Err::<(), _>(Error::invalid_argument("no capture"));
        assert!(first_open(GPUS, |_| true, no_capture).unwrap_err().is_invalid_argument());
    }
}
