use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use elinvar_core::{Error, Result};

use super::{
    elements, encode, matching,
    node::{Graph, Node},
    parts,
    recording::Recording,
    rounded,
    shared::{Memory, Open, Shared},
    unused,
    workspace::Workspace,
};
use crate::executor::Executor;

/// Writes down what is asked of a device, until it ends.
///
/// Operators of its executor ([`Recorder::executor`]), of tensors that were moved to that with [`Tensor::on`](crate::Tensor::on), and of their results are recorded; whatever
/// else a thread does meanwhile is not. A recorder may be used from several threads, and there may be many at once.
///
/// ```
/// use elinvar::{Executor, Recorder};
///
/// let executor = Executor::new_auto()?;
/// let x = executor.tensor(&[3], &[1f32, 2.0, 3.0])?;
/// let recorder = Recorder::new(&executor);
/// let y = x.on(recorder.executor())?.silu()?.mul(&x)?;
/// let recording = recorder.finish()?;
/// executor.replay(&recording)?;
/// x.write(&[0f32, 1.0, 2.0])?;
/// executor.replay(&recording)?;
/// assert_eq!(y.to_vec::<f32>()?, x.silu()?.mul(&x)?.to_vec::<f32>()?);
/// # Ok::<(), elinvar::Error>(())
/// ```
pub struct Recorder {
    executor: Executor,
    shared: Arc<Shared>,
}

impl Recorder {
    /// For an executor's device.
    pub fn new(executor: &Executor) -> Self {
        let shared = Arc::new(Shared { open: Mutex::new(Some(Open::default())) });
        Self { executor: executor.with_recorder(Some(shared.clone())), shared }
    }

    /// An executor whose operators are recorded.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Ends it: what was recorded can be replayed. Results that are still held get their memory.
    ///
    /// # Errors
    /// Out of memory, or a kernel that does not compile.
    pub fn finish(self) -> Result<Recording> {
        self.finish_in(None)
    }

    fn finish_in(self, workspace: Option<&mut Workspace>) -> Result<Recording> {
        let open = self.shared.open().take();
        let Some(Open { nodes, memories, replaced, .. }) = open else { return Err(Error::internal("a recorder ended twice")) };
        let results: Vec<_> = memories.iter().map(Memory::held).collect();
        let changed: HashSet<_> = nodes.iter().flat_map(Node::changes).collect();
        let is_written = |(value, memory): (usize, &Memory)| matches!(memory, Memory::Result(_)) || changed.contains(&value);
        let written = memories.iter().enumerate().filter(|written| is_written(*written)).filter_map(|(value, _)| results[value].as_ref());
        let written = written.map(Arc::downgrade).collect();
        let mut graph = Graph::new(nodes, results.iter().map(Option::is_some).collect());
        unused::remove(&mut graph, &replaced);
        parts::forward(&mut graph);
        matching::fuse(&mut graph, self.executor.properties());
        rounded::share(&mut graph, self.executor.properties())?;
        let programs = elements::fuse(&mut graph, &self.executor)?;
        let list = encode::encode(&graph, &results, &self.executor.device, workspace)?;
        Ok(Recording { list, written, programs })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.open().take();
    }
}

impl Executor {
    /// Records what `body` asks of the executor that it is given, and of tensors moved to that with [`Tensor::on`](crate::Tensor::on): see [`Recorder`].
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?;
    /// let (recording, y) = executor.record(|recorded| x.on(recorded)?.exp()?.log())?;
    /// x.write(&[3f32, 4.0])?;
    /// executor.replay(&recording)?;
    /// assert_eq!((recording.len(), y.to_vec::<f32>()?.len()), (1, 2));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body` and of [`Recorder::finish`].
    pub fn record<T>(&self, body: impl FnOnce(&Executor) -> Result<T>) -> Result<(Recording, T)> {
        self.record_with(None, body)
    }

    /// The same, with results in memory that all recordings of a workspace share, for recordings of which one is replayed after the other: what was
    /// recorded of one, the results that `body` gives among it, is there until another is replayed.
    ///
    /// ```
    /// # use elinvar::{Executor, Workspace};
    /// # let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?;
    /// let mut workspace = Workspace::default();
    /// let (first, y) = executor.record_in(&mut workspace, |recorded| x.on(recorded)?.exp())?;
    /// let (second, z) = executor.record_in(&mut workspace, |recorded| x.on(recorded)?.mul(&x))?;
    /// executor.replay(&first)?;
    /// assert_eq!(y.to_vec::<f32>()?, x.exp()?.to_vec::<f32>()?);
    /// executor.replay(&second)?;
    /// assert_eq!((z.to_vec::<f32>()?, workspace.bytes()), (vec![1.0, 4.0], 256));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body` and of [`Recorder::finish`]; a workspace that was used with another device.
    pub fn record_in<T>(&self, workspace: &mut Workspace, body: impl FnOnce(&Executor) -> Result<T>) -> Result<(Recording, T)> {
        self.record_with(Some(workspace), body)
    }

    fn record_with<T>(&self, workspace: Option<&mut Workspace>, body: impl FnOnce(&Executor) -> Result<T>) -> Result<(Recording, T)> {
        let recorder = Recorder::new(self);
        let value = body(recorder.executor())?;
        let is_forgotten = |open: &Open| open.nodes.is_empty() && !open.is_moved_to;
        if recorder.shared.open().as_ref().is_none_or(is_forgotten) {
            return Err(Error::invalid_argument(
                "nothing was recorded: move an input to the executor that is given (Tensor::on), or apply operators to that",
            ));
        }
        Ok((recorder.finish_in(workspace)?, value))
    }

    /// Runs what `body` asks of the executor that it is given, and of tensors moved to that with [`Tensor::on`](crate::Tensor::on), when all of it is known: chains of operators
    /// on elements (arithmetic, functions, comparisons, casts, `select`, `clamp`) as one kernel each, which writes nothing to memory in between, and
    /// fused operators for those that they stand for. The bits are those of the operators one by one.
    ///
    /// ```
    /// use elinvar::Executor;
    ///
    /// let executor = Executor::new_auto()?;
    /// let a = executor.tensor(&[3], &[-2f32, 0.5, 4.0])?;
    /// let b = executor.tensor(&[3], &[1f32, 2.0, 3.0])?;
    /// let fused = executor.fuse(|recorded| a.on(recorded)?.silu()?.mul(&b)?.add(&a)?.clamp(-1.0, 1.0))?;
    /// assert_eq!(fused.to_vec::<f32>()?, a.silu()?.mul(&b)?.add(&a)?.clamp(-1.0, 1.0)?.to_vec::<f32>()?);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body` and of [`Recorder::finish`].
    pub fn fuse<T>(&self, body: impl FnOnce(&Executor) -> Result<T>) -> Result<T> {
        let (recording, value) = self.record(body)?;
        if !recording.is_empty() {
            self.device.submit(&recording.list)?;
        }
        Ok(value)
    }
}
