//! Candle's memory as tensors of an executor, for as long as a call runs: nothing is copied.

use std::{cell::RefCell, ptr::NonNull};

use candle_core::{CpuStorage, CudaStorage, DType as CandleType, Device, Layout as CandleLayout, Storage};
use elinvar::{DType, Error, Executor, Layout, Loan, Result, Shape, Tensor, advise_huge_pages};
use half::vec::HalfBitsVecExt;

use crate::cuda;

/// Lends Candle's storages for as long as it lives.
pub(crate) struct Lender<'a> {
    loan: Loan<'a>,
    /// What is read on a GPU.
    on_gpu: RefCell<Vec<&'a CudaStorage>>,
}

impl<'a> Lender<'a> {
    pub(crate) fn new(executor: &'a Executor) -> Self {
        Self { loan: Loan::new(executor), on_gpu: RefCell::default() }
    }

    /// What `layout` shows of a storage, to be read.
    ///
    /// # Errors
    /// Elements that Elinvar does not have.
    pub(crate) fn read(&self, dtype: DType, layout: &CandleLayout, storage: &'a Storage) -> Result<Tensor> {
        match storage {
            Storage::Cpu(storage) => self.read_host(dtype, layout, storage),
            Storage::Cuda(storage) => {
                // SAFETY: the storage is borrowed for as long as this loan lives, which waits for the mark.
                let memory = unsafe { cuda::lend(storage, self.loan.mark()) }?;
                self.on_gpu.borrow_mut().push(storage);
                self.loan.adopt(dtype, &shown(layout, layout.start_offset())?, memory)
            }
            Storage::Metal(_) => Err(unreached()),
        }
    }

    fn read_host(&self, dtype: DType, layout: &CandleLayout, storage: &'a CpuStorage) -> Result<Tensor> {
        let bytes = bytes_of(storage)?;
        let shown = shown(layout, 0)?;
        let (start, span) = (layout.start_offset() * dtype.size(), shown.span().end * dtype.size());
        let seen = bytes.get(start..).and_then(|rest| rest.get(..span));
        let seen = seen.ok_or_else(|| Error::invalid_argument(format!("{layout:?} lies outside a storage of {} bytes", bytes.len())))?;
        self.loan.read(dtype, &shown, seen)
    }

    /// A row-major tensor to be written.
    ///
    /// # Errors
    /// Elements that Elinvar does not have, or another number of them than the shape holds.
    pub(crate) fn write(&self, dtype: DType, shape: &Shape, storage: &'a mut Storage) -> Result<Tensor> {
        match storage {
            Storage::Cpu(storage) => self.loan.write(dtype, shape, bytes_of_mut(storage)?),
            Storage::Cuda(storage) => {
                // SAFETY: as in `read`.
                let memory = unsafe { cuda::lend_mut(storage, self.loan.mark()) }?;
                self.loan.adopt(dtype, &Layout::contiguous(*shape), memory)
            }
            Storage::Metal(_) => Err(unreached()),
        }
    }
}

impl Drop for Lender<'_> {
    fn drop(&mut self) {
        // A call that failed may have left work behind, which goes on.
        self.loan.wait();
        // What could not be lent was not pushed.
        self.on_gpu.get_mut().iter().for_each(|storage| drop(cuda::used(storage)));
    }
}

/// A layout of Candle's, its first element at `offset`.
fn shown(layout: &CandleLayout, offset: usize) -> Result<Layout> {
    let strides: Vec<_> = layout.stride().iter().map(|&stride| stride as isize).collect();
    Layout::strided(Shape::new(layout.dims())?, &strides, offset)
}

/// The error of a device whose tensors [`Ops`](crate::Ops) passes to Candle's own operators.
pub(crate) fn unreached() -> Error {
    Error::internal("a tensor of a device that is not reached")
}

/// Elinvar's name of an element type of Candle's.
///
/// # Errors
/// Elinvar does not have it.
pub(crate) fn dtype_of(dtype: CandleType) -> Result<DType> {
    Ok(match dtype {
        CandleType::U8 => DType::U8,
        CandleType::U32 => DType::U32,
        CandleType::I16 => DType::I16,
        CandleType::I32 => DType::I32,
        CandleType::I64 => DType::I64,
        CandleType::BF16 => DType::BF16,
        CandleType::F16 => DType::F16,
        CandleType::F32 => DType::F32,
        CandleType::F64 => DType::F64,
        _ => return Err(unknown(dtype)),
    })
}

pub(crate) fn unknown(dtype: CandleType) -> Error {
    Error::invalid_argument(format!("{} elements: cast them to f32, f16 or bf16 first", dtype.as_str()))
}

macro_rules! bytes {
    ($storage:expr, $cast:ident) => {
        match $storage {
            CpuStorage::U8(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::U32(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::I16(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::I32(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::I64(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::BF16(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::F16(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::F32(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::F64(values) => Ok(bytemuck::$cast(values)),
            CpuStorage::F8E4M3(_) => Err(unknown(CandleType::F8E4M3)),
            CpuStorage::F6E2M3(_) => Err(unknown(CandleType::F6E2M3)),
            CpuStorage::F6E3M2(_) => Err(unknown(CandleType::F6E3M2)),
            CpuStorage::F4(_) => Err(unknown(CandleType::F4)),
            CpuStorage::F8E8M0(_) => Err(unknown(CandleType::F8E8M0)),
        }
    };
}

fn bytes_of(storage: &CpuStorage) -> Result<&[u8]> {
    bytes!(storage, cast_slice)
}

fn bytes_of_mut(storage: &mut CpuStorage) -> Result<&mut [u8]> {
    bytes!(storage, cast_slice_mut)
}

/// The types of results.
pub(crate) enum Float {
    F32,
    F16,
    BF16,
}

impl TryFrom<DType> for Float {
    type Error = Error;

    fn try_from(dtype: DType) -> Result<Self> {
        match dtype {
            DType::F32 => Ok(Float::F32),
            DType::F16 => Ok(Float::F16),
            DType::BF16 => Ok(Float::BF16),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bool | DType::F64 => {
                Err(Error::internal(format!("a result of type {dtype}")))
            }
        }
    }
}

/// Memory for results, which need not be written yet.
///
/// # Errors
/// Not a floating-point type of Elinvar's, or out of memory.
pub(crate) fn results(dtype: DType, elements: usize, device: &Device) -> Result<Storage> {
    match device {
        Device::Cpu => zeros(dtype, elements).map(Storage::Cpu),
        Device::Cuda(device) => cuda::uninitialised(dtype, elements, device).map(Storage::Cuda),
        Device::Metal(_) => Err(unreached()),
    }
}

/// Zeros that the system hands out when they are first touched.
fn zeros(dtype: DType, elements: usize) -> Result<CpuStorage> {
    let mut storage = match dtype.try_into()? {
        Float::F32 => CpuStorage::F32(vec![0.0; elements]),
        Float::F16 => CpuStorage::F16(vec![0; elements].reinterpret_into()),
        Float::BF16 => CpuStorage::BF16(vec![0; elements].reinterpret_into()),
    };
    let bytes = bytes_of_mut(&mut storage)?;
    advise_huge_pages(NonNull::from(&mut *bytes).cast(), bytes.len());
    Ok(storage)
}

/// Results that were written are there for whatever uses them next.
///
/// # Errors
/// None on the CPU.
pub(crate) fn changed(results: &mut Storage) -> Result<()> {
    match results {
        Storage::Cpu(_) => Ok(()),
        Storage::Cuda(storage) => cuda::changed(storage),
        Storage::Metal(_) => Err(unreached()),
    }
}
