//! What stands for `cuda.rs` where this crate is built without the feature `cuda`: tensors on NVIDIA's GPUs go through Candle's own operators.

use std::{any::Any, sync::Arc};

use candle_core::{CudaDevice, CudaStorage};
use elinvar::{DType, Executor, RawBuffer, Result};

use crate::lend::unreached;

pub(crate) const IS_REACHED: bool = false;

pub(crate) fn executor(_: &CudaDevice) -> Result<Executor> {
    Err(unreached())
}

pub(crate) unsafe fn lend(_: &CudaStorage, _: Arc<dyn Any + Send + Sync>) -> Result<RawBuffer> {
    Err(unreached())
}

pub(crate) unsafe fn lend_mut(_: &mut CudaStorage, _: Arc<dyn Any + Send + Sync>) -> Result<RawBuffer> {
    Err(unreached())
}

pub(crate) fn used(_: &CudaStorage) -> Result<()> {
    Err(unreached())
}

pub(crate) fn changed(_: &mut CudaStorage) -> Result<()> {
    Err(unreached())
}

pub(crate) fn uninitialised(_: DType, _: usize, _: &CudaDevice) -> Result<CudaStorage> {
    Err(unreached())
}
