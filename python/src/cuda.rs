//! Memory on NVIDIA's GPUs, shared with other libraries in the order of their streams.

#[cfg(not(target_vendor = "apple"))]
pub(crate) use here::{Streams, Used, address, adopt, open, stream};

#[cfg(target_vendor = "apple")]
pub(crate) use absent::{Streams, Used, address, adopt, open, stream};

#[cfg(not(target_vendor = "apple"))]
mod here {
    use std::{
        collections::BTreeSet,
        ffi::c_void,
        ptr,
        sync::{Arc, Mutex, PoisonError},
    };

    use elinvar::{BackendType, Device, Executor, Layout, Result, Shape};
    use elinvar_cuda::{CudaBackend, StreamOrder};
    use pyo3::{
        PyResult, Python,
        exceptions::{PyBufferError, PyValueError},
    };

    use crate::{context::Context, errors::raise, host::Lent, tensor::Tensor};

    /// The stream that other libraries use unless they say another; the driver and DLPack have one name for it.
    const LEGACY: i64 = 1;

    /// The streams on which others use memory of a device's.
    pub(crate) struct Streams {
        order: StreamOrder,
        /// By their addresses.
        others: Mutex<BTreeSet<i64>>,
    }

    /// Opens a GPU; of kinds that need no order of streams nothing.
    pub(crate) fn open(kind: Option<BackendType>) -> Result<Option<(Executor, Arc<Streams>)>> {
        let backend = match kind {
            Some(BackendType::Cuda(ordinal)) => CudaBackend::new(ordinal)?,
            // The automatic choice reports why there is none.
            None => match CudaBackend::new(0) {
                Ok(backend) => backend,
                Err(_) => return Ok(None),
            },
            Some(_) => return Ok(None),
        };
        let streams = Streams { order: backend.order(), others: Mutex::new(BTreeSet::from([LEGACY])) };
        Ok(Some((Executor::from_device(Device::new(backend)), Arc::new(streams))))
    }

    fn pointer(stream: i64) -> *mut c_void {
        ptr::with_exposed_provenance_mut(stream as usize)
    }

    impl Streams {
        fn each(&self, order: impl Fn(*mut c_void) -> Result<()>) -> Result<()> {
            let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            others.iter().try_for_each(|&stream| order(pointer(stream)))
        }

        /// Work on shared memory comes after what the others were given.
        pub(crate) fn before(&self) -> Result<()> {
            // SAFETY: consumers promise by DLPack's protocol that their streams live as long as they use the memory.
            self.each(|stream| unsafe { self.order.follow(stream) })
        }

        /// What the others are given comes after work on shared memory.
        pub(crate) fn after(&self) -> Result<()> {
            // SAFETY: as in `before`.
            self.each(|stream| unsafe { self.order.lead(stream) })
        }
    }

    /// What was exported comes back after what the others did with it; what was imported goes back when this device is done.
    pub(crate) struct Used(Arc<Streams>);

    impl Used {
        pub(crate) fn of(context: &Context) -> Option<Self> {
            context.streams.clone().map(Self)
        }

        /// Waits until the device is done with memory of another library's.
        pub(crate) fn finish(&self) {
            // A lost device uses nothing.
            let _ = self.0.order.synchronize();
        }

        /// What the device does next comes after what others did.
        pub(crate) fn follow(&self) {
            let _ = self.0.before();
        }
    }

    fn streams(context: &Context) -> Result<&Arc<Streams>> {
        context.streams.as_ref().ok_or_else(|| elinvar::Error::internal("an executor of a GPU without streams"))
    }

    /// The address of a tensor's first element, ready for a consumer's stream: none stands for the default stream, −1 for no order at all.
    pub(crate) fn address(context: &Context, tensor: &elinvar::Tensor, stream: Option<i64>) -> PyResult<(usize, bool)> {
        let streams = streams(context).map_err(raise)?;
        match stream {
            Some(0) => return Err(PyBufferError::new_err("stream=0 is ambiguous for CUDA: 1 is the default stream, 2 that of each thread")),
            Some(other) if other < -1 => return Err(PyBufferError::new_err(format!("stream={other}: no stream of CUDA"))),
            Some(-1) | None => {}
            Some(other) => {
                streams.others.lock().unwrap_or_else(PoisonError::into_inner).insert(other);
            }
        }
        if stream != Some(-1) {
            streams.after().map_err(raise)?;
        }
        let binding = tensor.binding().map_err(raise)?;
        let start = StreamOrder::address(binding.buffer().raw()).map_err(raise)? as usize + binding.offset();
        let first = start + tensor.layout().origin() * tensor.dtype().size();
        Ok((first, binding.buffer().raw().is_read_only() || tensor.is_tracked()))
    }

    /// The stream on which a producer is to have its memory ready.
    pub(crate) fn stream(_context: &Context) -> i64 {
        LEGACY
    }

    /// A tensor in another library's memory on the GPU.
    pub(crate) fn adopt(py: Python<'_>, context: &Arc<Context>, lent: Lent, copy: Option<bool>) -> PyResult<Tensor> {
        let shape = Shape::new(&lent.shape).map_err(raise)?;
        if shape.elements() == 0 {
            return context.executor.tensor_from_bytes(lent.dtype, &lent.shape, &[]).map(|made| Tensor::new(context, made)).map_err(raise);
        }
        let strides = lent.strides.unwrap_or_else(|| shape.contiguous_strides()[..shape.rank()].to_vec());
        let before: isize = lent.shape.iter().zip(&strides).map(|(extent, stride)| (*extent as isize - 1) * (-stride).max(0)).sum();
        let layout = Layout::strided(shape, &strides, before.unsigned_abs()).map_err(raise)?;
        let address = lent.address.wrapping_sub(before.unsigned_abs() * lent.dtype.size());
        if !address.is_multiple_of(lent.dtype.size()) {
            return Err(PyValueError::new_err("the array is not aligned for its type: copy it first"));
        }
        streams(context).and_then(|streams| streams.before()).map_err(raise)?;
        let bytes = layout.span().end * lent.dtype.size();
        // SAFETY: the producer's object is held until the device drops the mark, and waits for the device when it is deleted.
        let memory = unsafe { CudaBackend::lend(address as u64, bytes, lent.is_read_only, Arc::new(lent.owner)) };
        let adopted = Tensor::new(context, context.executor.adopt_raw(lent.dtype, &layout, memory).map_err(raise)?);
        adopted.share();
        if copy == Some(true) {
            let copied = context.call(py, [&adopted], |[x]| x.copy())?;
            return Ok(Tensor::new(context, copied));
        }
        Ok(adopted)
    }
}

#[cfg(target_vendor = "apple")]
mod absent {
    use std::{convert::Infallible, sync::Arc};

    use elinvar::{BackendType, Executor, Result};
    use pyo3::{PyResult, Python, exceptions::PyBufferError};

    use crate::{context::Context, host::Lent, tensor::Tensor};

    /// There is none.
    pub(crate) struct Streams(Infallible);

    pub(crate) fn open(_: Option<BackendType>) -> Result<Option<(Executor, Arc<Streams>)>> {
        Ok(None)
    }

    impl Streams {
        pub(crate) fn before(&self) -> Result<()> {
            match self.0 {}
        }

        pub(crate) fn after(&self) -> Result<()> {
            match self.0 {}
        }
    }

    /// There is none.
    pub(crate) struct Used(Infallible);

    impl Used {
        pub(crate) fn of(_: &Context) -> Option<Self> {
            None
        }

        pub(crate) fn finish(&self) {
            match self.0 {}
        }

        pub(crate) fn follow(&self) {
            match self.0 {}
        }
    }

    pub(crate) fn address(_: &Context, _: &elinvar::Tensor, _: Option<i64>) -> PyResult<(usize, bool)> {
        Err(PyBufferError::new_err("this system has no GPU of NVIDIA's"))
    }

    pub(crate) fn stream(_: &Context) -> i64 {
        1
    }

    pub(crate) fn adopt(_: Python<'_>, _: &Arc<Context>, _: Lent, _: Option<bool>) -> PyResult<Tensor> {
        Err(PyBufferError::new_err("this system has no GPU of NVIDIA's"))
    }
}
