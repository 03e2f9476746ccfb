//! Memory of other libraries as tensors of an executor, for as long as a call runs: nothing is copied.

use std::{
    any::Any,
    marker::PhantomData,
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
};

use elinvar_core::{DType, DeviceKind, HostMemory, HostMemoryMut, Layout, RawBuffer, Result, Shape};

use crate::{executor::Executor, tensor::Tensor};

/// What is lent through it ends with it: it waits until the device has released all of that when it is dropped. So tensors of it are dropped before.
///
/// ```
/// use elinvar::{BackendType, DType, Executor, Layout, Loan, Shape, kernels::softmax::Softmax};
///
/// let executor = Executor::new_with_backend(BackendType::Cpu)?;
/// let (x, mut y) = ([0u8; 8], [0u8; 8]);
/// let loan = Loan::new(&executor);
/// let shape = Shape::new(&[4])?;
/// let (zeros, result) = (loan.read(DType::F16, &Layout::contiguous(shape), &x)?, loan.write(DType::F16, &shape, &mut y)?);
/// executor.apply_into(std::sync::Arc::new(Softmax { axis: 0, log: false }), &[Some(&zeros)], &[&result])?;
/// result.settle(false)?;
/// drop((zeros, result, loan));
/// assert_eq!(y, [0, 0x34, 0, 0x34, 0, 0x34, 0, 0x34]);
/// # Ok::<(), elinvar::Error>(())
/// ```
pub struct Loan<'a> {
    executor: &'a Executor,
    /// Held by all that is lent.
    mark: Arc<()>,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Loan<'a> {
    /// Of memory that this executor's device is to use.
    pub fn new(executor: &'a Executor) -> Self {
        Self { executor, mark: Arc::default(), memory: PhantomData }
    }

    /// What a layout shows of host memory, to be read.
    ///
    /// # Errors
    /// A layout that leaves the memory, memory not aligned for the type, or out of memory.
    pub fn read(&self, dtype: DType, layout: &Layout, bytes: &'a [u8]) -> Result<Tensor> {
        let lent = Lent { bytes, _mark: self.mark.clone() };
        // SAFETY: this loan outlives `lent`, whose mark it waits for, and the memory outlives the loan.
        let lent = unsafe { std::mem::transmute::<Lent<'a>, Lent<'static>>(lent) };
        self.executor.adopt_strided(dtype, layout, HostMemory::new(Arc::new(lent)))
    }

    /// A row-major tensor to be written to host memory.
    ///
    /// # Errors
    /// Another number of bytes than the shape holds, memory not aligned for the type, or a device whose kernels reach no host memory.
    pub fn write(&self, dtype: DType, shape: &Shape, bytes: &'a mut [u8]) -> Result<Tensor> {
        let (pointer, count) = (NonNull::from(&mut *bytes).cast(), bytes.len());
        // SAFETY: the memory is borrowed for as long as this loan lives, which waits for the mark.
        let memory = unsafe { HostMemoryMut::new(pointer, count, self.mark()) };
        self.executor.adopt_mut(dtype, shape, memory)
    }

    /// What a layout shows of a device's own memory, which its crate made a buffer of with this loan's [`mark`](Loan::mark).
    ///
    /// # Errors
    /// A layout that leaves the memory.
    pub fn adopt(&self, dtype: DType, layout: &Layout, memory: RawBuffer) -> Result<Tensor> {
        self.executor.adopt_raw(dtype, layout, memory)
    }

    /// Waits until the device has released all that is lent.
    pub fn wait(&self) {
        while Arc::strong_count(&self.mark) > 1 {
            thread::yield_now();
        }
    }

    /// What is held by whatever is lent.
    pub fn mark(&self) -> Arc<dyn Any + Send + Sync> {
        self.mark.clone()
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        // A call that failed may have left work behind, which goes on.
        self.wait();
    }
}

struct Lent<'a> {
    bytes: &'a [u8],
    _mark: Arc<()>,
}

impl AsRef<[u8]> for Lent<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

/// An executor that one call after the other uses: what a call's kernels reject is reported to whatever reads next.
///
/// ```
/// let turns = elinvar::Turns::new(elinvar::Executor::new_auto()?);
/// let x = turns.take(|executor| executor.tensor(&[1], &[2f32]))?;
/// assert_eq!(turns.take(|_| x.square()?.item::<f32>())?, 4.0);
/// # Ok::<(), elinvar::Error>(())
/// ```
#[derive(Clone)]
pub struct Turns {
    executor: Executor,
    turn: Arc<Mutex<()>>,
}

impl Turns {
    /// Of an executor that nothing else uses.
    pub fn new(executor: Executor) -> Self {
        Self { executor, turn: Arc::default() }
    }

    /// The same turns with other choices of the executor's.
    pub fn with(&self, executor: Executor) -> Self {
        Self { executor, turn: self.turn.clone() }
    }

    /// The executor, for what starts no work.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Has the executor do something if no call is at work.
    pub fn try_take<R>(&self, run: impl FnOnce(&Executor) -> R) -> Option<R> {
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(run(&self.executor))
    }

    /// Has the executor do something when the calls before have ended.
    pub fn take<R>(&self, run: impl FnOnce(&Executor) -> R) -> R {
        let _turn: MutexGuard<'_, ()> = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        run(&self.executor)
    }
}

impl Tensor {
    /// Waits until a row-major tensor is computed, where what comes after does not follow in the order of a stream; or where kernels may reject values.
    ///
    /// ```
    /// let executor = elinvar::Executor::new_auto()?;
    /// executor.tensor(&[1], &[1f32])?.exp()?.settle(true)?;
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// What the computation of it, or of what was submitted before, reports.
    pub fn settle(&self, may_reject: bool) -> Result<()> {
        if self.executor().properties().kind == DeviceKind::Cuda && !may_reject {
            return Ok(());
        }
        let binding = self.readable()?;
        self.executor().device().view(binding.buffer(), binding.offset(), binding.bytes().min(1), &mut |_| ())
    }
}
