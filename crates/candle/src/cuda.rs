//! Candle's tensors on NVIDIA's GPUs: where they lie, and a device in the order of their stream.

use std::{any::Any, cell::RefCell, sync::Arc};

use candle_core::{
    CudaDevice, CudaStorage, DType as CandleType,
    cuda_backend::{
        CudaStorageSlice,
        cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut},
    },
};
use elinvar::{DType, Device, Error, ErrorKind, Executor, RawBuffer, Result};
use elinvar_cuda::CudaBackend;
use half::{bf16, f16};

use crate::lend::{Float, unknown};

thread_local! {
    /// The streams that this thread has used, with a device in the order of each. Candle's usual stream is another one in each thread.
    static DEVICES: RefCell<Vec<(Arc<CudaStream>, Executor)>> = const { RefCell::new(Vec::new()) };
}

/// An executor in the order of a device's stream, for this thread alone.
///
/// # Errors
/// The GPU does not open.
pub(crate) fn executor(device: &CudaDevice) -> Result<Executor> {
    let stream = device.cuda_stream();
    DEVICES.with_borrow_mut(|devices| {
        if let Some((_, executor)) = devices.iter().find(|(known, _)| *known == stream) {
            return Ok(executor.clone());
        }
        // Streams that only this list and the device on them hold are in use no more.
        devices.retain(|(known, _)| Arc::strong_count(known) > 2);
        let owner: Arc<dyn Any + Send + Sync> = stream.clone();
        // SAFETY: the owner is the stream, and only this thread has the device.
        let backend = unsafe { CudaBackend::on_stream(stream.context().ordinal(), stream.cu_stream().cast(), owner) }?;
        let executor = Executor::from_device(Device::new(backend));
        devices.push((stream, executor.clone()));
        Ok(executor)
    })
}

/// Whether there are operators for tensors on NVIDIA's GPUs.
pub(crate) const IS_REACHED: bool = true;

macro_rules! place {
    ($storage:expr, $place:ident) => {
        match $storage {
            CudaStorageSlice::U8(values) => Ok($place(values)),
            CudaStorageSlice::U32(values) => Ok($place(values)),
            CudaStorageSlice::I16(values) => Ok($place(values)),
            CudaStorageSlice::I32(values) => Ok($place(values)),
            CudaStorageSlice::I64(values) => Ok($place(values)),
            CudaStorageSlice::BF16(values) => Ok($place(values)),
            CudaStorageSlice::F16(values) => Ok($place(values)),
            CudaStorageSlice::F32(values) => Ok($place(values)),
            CudaStorageSlice::F64(values) => Ok($place(values)),
            CudaStorageSlice::F8E4M3(_) => Err(unknown(CandleType::F8E4M3)),
            CudaStorageSlice::F6E2M3(_) => Err(unknown(CandleType::F6E2M3)),
            CudaStorageSlice::F6E3M2(_) => Err(unknown(CandleType::F6E3M2)),
            CudaStorageSlice::F4(_) => Err(unknown(CandleType::F4)),
            CudaStorageSlice::F8E8M0(_) => Err(unknown(CandleType::F8E8M0)),
        }
    };
}

/// A storage to be read, after what other streams write there.
///
/// # Safety
/// The storage stays until `mark` is dropped.
///
/// # Errors
/// Elements that Elinvar does not have.
pub(crate) unsafe fn lend(storage: &CudaStorage, mark: Arc<dyn Any + Send + Sync>) -> Result<RawBuffer> {
    let (pointer, bytes) = place(storage)?;
    // SAFETY: as the caller promises; Candle frees it in the order of the stream.
    Ok(unsafe { CudaBackend::lend(pointer, bytes, true, mark) })
}

/// A storage to be written, after what other streams do with it.
///
/// # Safety
/// As [`lend`]; nothing else uses the storage until then.
///
/// # Errors
/// As [`lend`].
pub(crate) unsafe fn lend_mut(storage: &mut CudaStorage, mark: Arc<dyn Any + Send + Sync>) -> Result<RawBuffer> {
    let (pointer, bytes) = place_mut(storage)?;
    // SAFETY: as in `lend`.
    Ok(unsafe { CudaBackend::lend(pointer, bytes, false, mark) })
}

/// What other streams write to a storage waits for what this one has been given to do.
///
/// # Errors
/// As [`lend`].
pub(crate) fn used(storage: &CudaStorage) -> Result<()> {
    place(storage).map(drop)
}

/// What other streams do with a storage waits for what this one has been given to do.
///
/// # Errors
/// As [`lend`].
pub(crate) fn changed(storage: &mut CudaStorage) -> Result<()> {
    place_mut(storage).map(drop)
}

/// Address and bytes. Candle's guard, dropped here, records that they are read.
fn place(storage: &CudaStorage) -> Result<(u64, usize)> {
    fn of<T>(values: &CudaSlice<T>) -> (u64, usize) {
        (values.device_ptr(values.stream()).0, values.num_bytes())
    }
    place!(&storage.slice, of)
}

/// The same where they are written.
fn place_mut(storage: &mut CudaStorage) -> Result<(u64, usize)> {
    fn of<T>(values: &mut CudaSlice<T>) -> (u64, usize) {
        let (stream, bytes) = (values.stream().clone(), values.num_bytes());
        (values.device_ptr_mut(&stream).0, bytes)
    }
    place!(&mut storage.slice, of)
}

/// Memory for so many elements, whose values nothing has written.
///
/// # Errors
/// Not a floating-point type of Elinvar's, or out of memory.
pub(crate) fn uninitialised(dtype: DType, elements: usize, device: &CudaDevice) -> Result<CudaStorage> {
    let dtype = Float::try_from(dtype)?;
    // SAFETY: operators write all of their results before anything reads them.
    let slice = unsafe {
        match dtype {
            Float::F32 => device.alloc::<f32>(elements).map(CudaStorageSlice::F32),
            Float::F16 => device.alloc::<f16>(elements).map(CudaStorageSlice::F16),
            Float::BF16 => device.alloc::<bf16>(elements).map(CudaStorageSlice::BF16),
        }
    };
    let slice = slice
        .map_err(|error| Error::with_source(ErrorKind::OutOfMemory, format!("{elements} elements of a result: Candle's allocation failed"), error))?;
    Ok(CudaStorage { slice, device: device.clone() })
}
