//! What the tensors of an executor share, and how operators are run.

use std::{
    cell::Cell,
    ptr,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread::{self, ThreadId},
};

use elinvar::{DType, DeviceKind, KeptOperator, Recorder, Recording};
use pyo3::{
    PyResult, Python,
    exceptions::{PyRuntimeError, PyTypeError},
};

use crate::{
    cuda::Streams,
    errors::raise,
    fork,
    tensor::{Leaf, Tensor},
    work::{lock, receive},
};

thread_local! {
    /// How many `no_grad` blocks this thread is in.
    static NO_GRAD: Cell<u32> = const { Cell::new(0) };
}

/// Enters a block of `no_grad`.
#[pyo3::pyfunction]
pub(crate) fn _enter_no_grad() {
    NO_GRAD.set(NO_GRAD.get() + 1);
}

/// Leaves it.
#[pyo3::pyfunction]
pub(crate) fn _leave_no_grad() {
    NO_GRAD.set(NO_GRAD.get().saturating_sub(1));
}

/// An executor, as its tensors know it.
pub(crate) struct Context {
    pub(crate) executor: elinvar::Executor,
    /// The name by which it was opened.
    pub(crate) backend: String,
    /// Of a GPU of NVIDIA's, those on which others use its memory.
    pub(crate) streams: Option<Arc<Streams>>,
    /// The process that its threads belong to.
    generation: u32,
    /// Tensors that require a gradient.
    leaves: Mutex<Vec<Weak<Leaf>>>,
    /// Writes a byte that nothing reads, after all that was asked before it.
    mark: OnceLock<Recording>,
    /// Whether any thread records.
    is_recording: AtomicBool,
    /// Of each thread that records what it asks for.
    recorders: Mutex<Vec<(ThreadId, Recorder)>>,
}

impl Context {
    pub(crate) fn new(executor: elinvar::Executor, backend: String, streams: Option<Arc<Streams>>) -> Arc<Self> {
        let (leaves, recorders) = (Mutex::default(), Mutex::default());
        let (generation, mark, is_recording) = (fork::generation(), OnceLock::new(), AtomicBool::new(false));
        Arc::new(Self { executor, backend, streams, generation, leaves, mark, is_recording, recorders })
    }

    /// Whether it can be used in this process.
    ///
    /// # Errors
    /// The process was forked since it was made.
    pub(crate) fn check(&self) -> PyResult<()> {
        fork::check(self.generation)
    }

    /// Waits until all that was asked of the device is done: what reads it after that waits no more. NVIDIA's driver waits for its GPUs by itself.
    ///
    /// # Errors
    /// A signal came, or the process was forked.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.check()?;
        if self.streams.is_some() {
            return Ok(());
        }
        let submit = || {
            let mark = match self.mark.get() {
                Some(mark) => mark,
                None => {
                    let (mark, _) = self.executor.record(|executor| executor.full(DType::U8, &[1], 0i64))?;
                    self.mark.get_or_init(|| mark)
                }
            };
            self.executor.replay(mark)
        };
        let done = py.detach(submit).map_err(raise)?;
        if done.is_complete() {
            return Ok(());
        }
        let (sender, receiver) = sync_channel(1);
        // After a signal nothing receives it.
        done.on_complete(move |_| {
            let _ = sender.send(());
        });
        receive(py, &Mutex::new(Some(receiver))).map(drop)
    }

    /// The kind of the device whose memory other libraries may share; of a group none, since each of its devices has memory of its own.
    pub(crate) fn kind(&self) -> Option<DeviceKind> {
        (self.executor.ranks() == 1).then(|| self.executor.properties().kind)
    }

    /// Starts to record what this thread asks for.
    ///
    /// # Errors
    /// It is being recorded already.
    pub(crate) fn start_recording(&self) -> PyResult<()> {
        let (thread, mut recorders) = (thread::current().id(), lock(&self.recorders));
        if recorders.iter().any(|(recorded, _)| *recorded == thread) {
            return Err(PyRuntimeError::new_err("this thread records the executor already: end that recording first"));
        }
        recorders.push((thread, Recorder::new(&self.executor)));
        self.is_recording.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends it.
    ///
    /// # Errors
    /// Another thread started it.
    pub(crate) fn end_recording(&self) -> PyResult<Recorder> {
        let (thread, mut recorders) = (thread::current().id(), lock(&self.recorders));
        let index = recorders.iter().position(|(recorded, _)| *recorded == thread);
        let index = index.ok_or_else(|| PyRuntimeError::new_err("another thread started this recording: end it there"))?;
        let (_, recorder) = recorders.swap_remove(index);
        self.is_recording.store(!recorders.is_empty(), Ordering::Release);
        Ok(recorder)
    }

    /// The executor that records what this thread asks for, if it does.
    fn recorder(&self) -> Option<elinvar::Executor> {
        if !self.is_recording.load(Ordering::Acquire) {
            return None;
        }
        let thread = thread::current().id();
        lock(&self.recorders).iter().find(|(recorded, _)| *recorded == thread).map(|(_, recorder)| recorder.executor().clone())
    }

    /// The executor to run the next operator.
    pub(crate) fn current(&self) -> elinvar::Executor {
        self.recorder().unwrap_or_else(|| self.executor.clone())
    }

    /// A tensor as operators are to take it now: recorded where this thread records, and not on the tape in a block of `no_grad`.
    ///
    /// # Errors
    /// The process was forked, or another device.
    pub(crate) fn take(&self, tensor: &Tensor) -> PyResult<elinvar::Tensor> {
        Ok(self.changed(tensor)?.unwrap_or_else(|| tensor.tensor().clone()))
    }

    /// The same; None where it is taken as it is.
    fn changed(&self, tensor: &Tensor) -> PyResult<Option<elinvar::Tensor>> {
        self.check()?;
        if !self.executor.device().same(tensor.context.executor.device()) {
            let (one, other) = (&self.backend, &tensor.context.backend);
            return Err(PyTypeError::new_err(format!(
                "tensors of different executors ({one}, {other}): move one with to(executor), or make both with the same executor"
            )));
        }
        let detached = (NO_GRAD.get() > 0 && tensor.tensor().is_tracked()).then(|| tensor.tensor().detach());
        match self.recorder() {
            Some(recorder) => detached.as_ref().unwrap_or(tensor.tensor()).on(&recorder).map(Some).map_err(raise),
            None => Ok(detached),
        }
    }

    /// Does something with tensors while other threads of Python's run, unless it is over before they could. What shares memory with another library is done
    /// when this returns.
    ///
    /// # Errors
    /// As [`Context::take`]; what `work` rejects.
    pub(crate) fn call<const N: usize, R: Send>(
        &self,
        py: Python<'_>,
        tensors: [&Tensor; N],
        work: impl FnOnce([&elinvar::Tensor; N]) -> elinvar::Result<R> + Send,
    ) -> PyResult<R> {
        let shared = tensors.iter().find(|tensor| tensor.is_shared()).map(|tensor| tensor.tensor());
        if self.is_short(tensors) {
            return self.at_once(py, shared, || work(tensors.map(Tensor::tensor)));
        }
        let mut taken = [const { None }; N];
        for (taken, tensor) in taken.iter_mut().zip(tensors) {
            *taken = self.changed(tensor)?;
        }
        let call = || {
            let taken = std::array::from_fn(|index| taken[index].as_ref().unwrap_or_else(|| tensors[index].tensor()));
            self.ordered(shared, || work(taken))
        };
        py.detach(call).map_err(raise)
    }

    /// Whether work on these tensors, as they are, is over before other threads could run: so little, and on a CPU that is idle.
    fn is_short<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) -> bool {
        const SHORT: usize = 1 << 12;
        let device = self.executor.device();
        let is_plain = device.properties().kind == DeviceKind::Cpu && NO_GRAD.get() == 0 && !self.is_recording.load(Ordering::Acquire);
        let is_short = |tensor: &Tensor| tensor.tensor().shape().elements() <= SHORT && ptr::eq(&*tensor.context, self);
        is_plain && tensors.into_iter().all(is_short) && device.is_idle()
    }

    /// Does short work.
    fn at_once<R>(&self, py: Python<'_>, shared: Option<&elinvar::Tensor>, work: impl FnOnce() -> elinvar::Result<R>) -> PyResult<R> {
        self.check()?;
        let done = work();
        if let Some(shared) = shared.filter(|_| done.is_ok()) {
            // It may have given many more elements than it took.
            let settled = if self.executor.device().is_idle() { settle(shared) } else { py.detach(|| settle(shared)) };
            settled.map_err(raise)?;
        }
        done.map_err(raise)
    }

    /// Does something, in the order of what others do with a tensor's memory where that is shared.
    pub(crate) fn ordered<R>(&self, shared: Option<&elinvar::Tensor>, work: impl FnOnce() -> elinvar::Result<R>) -> elinvar::Result<R> {
        let Some(shared) = shared else { return work() };
        let Some(streams) = &self.streams else {
            let done = work()?;
            return settle(shared).map(|()| done);
        };
        streams.before()?;
        let done = work()?;
        streams.after().map(|()| done)
    }

    /// Runs an operator of the library.
    ///
    /// # Errors
    /// As [`Context::take`]; what the operator rejects.
    pub(crate) fn apply(&self, py: Python<'_>, operator: &KeptOperator, inputs: &[Option<&Tensor>]) -> PyResult<Vec<elinvar::Tensor>> {
        let shared = inputs.iter().flatten().find(|tensor| tensor.is_shared()).map(|tensor| tensor.tensor());
        if self.is_short(inputs.iter().copied().flatten()) {
            let taken: Vec<_> = inputs.iter().map(|input| input.map(Tensor::tensor)).collect();
            return self.at_once(py, shared, || self.executor.apply_kept(operator, &taken));
        }
        let taken = inputs.iter().map(|input| input.map(|input| self.take(input)).transpose()).collect::<PyResult<Vec<_>>>()?;
        self.check()?;
        let executor = self.current();
        py.detach(|| {
            let taken: Vec<_> = taken.iter().map(Option::as_ref).collect();
            self.ordered(shared, || executor.apply_kept(operator, &taken))
        })
        .map_err(raise)
    }

    /// Remembers a tensor that requires a gradient.
    pub(crate) fn add_leaf(&self, leaf: &Arc<Leaf>) {
        let mut leaves = lock(&self.leaves);
        if leaves.len() == leaves.capacity() {
            leaves.retain(|leaf| leaf.strong_count() > 0);
        }
        leaves.push(Arc::downgrade(leaf));
    }

    /// The tensors that require a gradient and are still held.
    pub(crate) fn leaves(&self) -> Vec<Arc<Leaf>> {
        lock(&self.leaves).iter().filter_map(Weak::upgrade).collect()
    }
}

/// Waits until all that was asked of a tensor's device is done.
pub(crate) fn settle(tensor: &elinvar::Tensor) -> elinvar::Result<()> {
    // A result of a recorder has no memory to wait for.
    let Ok(binding) = tensor.binding() else { return Ok(()) };
    tensor.executor().device().view(binding.buffer(), 0, 0, &mut |_| ())
}
