use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use elinvar_core::{CommandList, Error, ListBuilder, Result};
use elinvar_kernels::{Operator, TensorInfo};

use super::{Action, Graph, Node, Operand, Output, Value, elements, encode, matching, placed};
use crate::{
    Executor, Tensor,
    executor::checked_types,
    tensor::{Pending, TensorMemory},
};

/// Commands recorded once, to be replayed with [`crate::Executor::replay`].
///
/// It keeps every buffer it uses. Tensors that outlive the recorder are its inputs and outputs: write the inputs, replay, read the outputs. Results that
/// nobody holds when it ends share memory among themselves.
#[derive(Clone)]
pub struct Recording {
    pub(crate) list: Arc<CommandList>,
}

impl Recording {
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.list.commands().len()
    }

    /// One that does what these do, one after the other.
    ///
    /// # Errors
    /// They are of different devices.
    pub fn concat<'a>(recordings: impl IntoIterator<Item = &'a Recording>) -> Result<Recording> {
        let mut list = ListBuilder::new();
        recordings.into_iter().try_for_each(|recording| list.append(&recording.list))?;
        Ok(Recording { list: list.finish() })
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Writes down what is asked of a device, until it ends.
///
/// Operators of its executor ([`Recorder::executor`]), of tensors that were moved to that with [`Tensor::on`], and of their results are recorded; whatever
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

    /// Ends it: what was recorded can be replayed. Results that somebody holds get their memory.
    ///
    /// # Errors
    /// Out of memory, or a kernel that does not compile.
    pub fn finish(self) -> Result<Recording> {
        let open = self.shared.open().take();
        let Some(Open { nodes, memories, .. }) = open else { return Err(Error::internal("a recorder ended twice")) };
        let results: Vec<_> = memories.iter().map(Memory::held).collect();
        let mut graph = Graph::new(nodes, results.iter().map(Option::is_some).collect());
        matching::fuse(&mut graph, self.executor.properties());
        elements::fuse(&mut graph, &self.executor)?;
        let list = encode::encode(&graph, &results, &self.executor.device)?;
        Ok(Recording { list })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.open().take();
    }
}

/// A recorder, as its executors and its results know it.
pub(crate) struct Shared {
    open: Mutex<Option<Open>>,
}

/// What was recorded so far.
#[derive(Default)]
struct Open {
    nodes: Vec<Node>,
    /// Of each value.
    memories: Vec<Memory>,
    /// Memory that was given, by its address.
    given: HashMap<usize, Value>,
    /// Whether a tensor or a kernel was moved to its executor.
    is_moved_to: bool,
}

enum Memory {
    /// It was there before.
    Given(Arc<TensorMemory>),
    /// It is to get a result.
    Result(Weak<TensorMemory>),
}

impl Memory {
    fn held(&self) -> Option<Arc<TensorMemory>> {
        match self {
            Memory::Given(memory) => Some(memory.clone()),
            Memory::Result(memory) => memory.upgrade(),
        }
    }
}

impl Open {
    fn value(&mut self, memory: Memory) -> Value {
        self.memories.push(memory);
        self.memories.len() - 1
    }

    fn push(&mut self, node: Node) {
        self.nodes.push(Node { place: self.nodes.len(), ..node });
    }

    /// A tensor as an operand.
    fn operand(&mut self, recorder: &Arc<Shared>, tensor: &Tensor) -> Result<Operand> {
        let info = TensorInfo { dtype: tensor.dtype(), layout: *tensor.layout() };
        let memory = tensor.memory();
        if let Some(pending) = memory.pending() {
            let is_own = Arc::ptr_eq(&pending.recorder, recorder);
            return if is_own { Ok(Operand { value: pending.value, info }) } else { Err(pending.error()) };
        }
        let address = Arc::as_ptr(memory).addr();
        let value = match self.given.get(&address) {
            Some(value) => *value,
            None => {
                let value = self.value(Memory::Given(memory.clone()));
                self.given.insert(address, value);
                value
            }
        };
        Ok(Operand { value, info })
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open().is_some()
    }

    /// The error of what was to be recorded next.
    pub(crate) fn rejected(&self, error: Error, name: &str, inputs: impl Iterator<Item = TensorInfo>) -> Error {
        match self.open().as_ref() {
            Some(open) => error.context(placed(open.nodes.len(), name, inputs)),
            None => error,
        }
    }

    /// Something was moved to its executor.
    pub(crate) fn move_to(&self) {
        if let Some(open) = self.open().as_mut() {
            open.is_moved_to = true;
        }
    }

    /// Adds an operator; its results go to `into`, if that is given, else to tensors that get their memory when the recorder ends.
    ///
    /// # Errors
    /// What the operator rejects; the recorder ended; or a tensor of another recorder.
    pub(crate) fn operator(
        self: &Arc<Self>,
        executor: &Executor,
        operator: Arc<dyn Operator>,
        inputs: &[Option<Tensor>],
        into: Option<&[&Tensor]>,
    ) -> Result<Vec<Tensor>> {
        let mut guard = self.open();
        let open = guard.as_mut().ok_or_else(ended)?;
        let types = checked_types(&*operator, inputs)?;
        let mut operand = |tensor: &Tensor| open.operand(self, tensor);
        let inputs = inputs.iter().map(|tensor| tensor.as_ref().map(&mut operand).transpose()).collect::<Result<Vec<_>>>()?;
        let mut results = Vec::new();
        let outputs = match into {
            Some(targets) => targets.iter().map(|target| operand(target).map(Output::Into)).collect::<Result<Vec<_>>>()?,
            None => {
                let mut output = |info: &TensorInfo| {
                    let memory = TensorMemory::pending_on(Pending { recorder: self.clone(), value: open.memories.len() });
                    let value = open.value(Memory::Result(Arc::downgrade(&memory)));
                    results.push(Tensor::new(&executor.with_recorder(None), memory, info.dtype, info.layout));
                    Output::Value(value)
                };
                types.iter().map(&mut output).collect()
            }
        };
        open.push(Node::new(Action::Operator(operator), inputs, outputs));
        Ok(results)
    }

    /// Adds a dispatch over these buffers.
    ///
    /// # Errors
    /// The recorder ended, or a tensor of another recorder.
    pub(crate) fn dispatch(self: &Arc<Self>, inputs: &[Option<Tensor>], action: Action) -> Result<()> {
        let mut guard = self.open();
        let open = guard.as_mut().ok_or_else(ended)?;
        let operand = |tensor: &Option<Tensor>| tensor.as_ref().map(|tensor| open.operand(self, tensor)).transpose();
        let inputs = inputs.iter().map(operand).collect::<Result<Vec<_>>>()?;
        open.push(Node::new(action, inputs, Vec::new()));
        Ok(())
    }
}

fn ended() -> Error {
    Error::invalid_argument("the recorder ended: finish it when everything is recorded")
}

impl Executor {
    /// Records what `body` asks of the executor that it is given, and of tensors moved to that with [`Tensor::on`]: see [`Recorder`].
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
        let recorder = Recorder::new(self);
        let value = body(recorder.executor())?;
        let is_forgotten = |open: &Open| open.nodes.is_empty() && !open.is_moved_to;
        if recorder.shared.open().as_ref().is_none_or(is_forgotten) {
            return Err(Error::invalid_argument(
                "nothing was recorded: move an input to the executor that is given (Tensor::on), or apply operators to that",
            ));
        }
        Ok((recorder.finish()?, value))
    }

    /// Runs what `body` asks of the executor that it is given, and of tensors moved to that with [`Tensor::on`], when all of it is known: chains of operators
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
