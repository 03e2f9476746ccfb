//! Recorders and the memory of tensors, each of which may wait for the other.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use elinvar_core::{Binding, Buffer, DType, Error, Layout, Result};
use elinvar_kernels::TensorInfo;

use super::{
    node::Node,
    value::{Value, placed},
};

/// A recorder, as its executors and its results know it.
pub(crate) struct Shared {
    pub(super) open: Mutex<Option<Open>>,
}

/// What was recorded so far.
#[derive(Default)]
pub(super) struct Open {
    pub(super) nodes: Vec<Node>,
    /// Of each value.
    pub(super) memories: Vec<Memory>,
    /// Memory that was given, by its address.
    pub(super) given: HashMap<usize, Value>,
    /// Results in whose place something stands that was kept.
    pub(super) replaced: HashSet<Value>,
    /// Whether a tensor or a kernel was moved to its executor.
    pub(super) is_moved_to: bool,
}

pub(super) enum Memory {
    /// It was there before.
    Given(Arc<TensorMemory>),
    /// It is to get a result.
    Result(Weak<TensorMemory>),
}

impl Memory {
    pub(super) fn held(&self) -> Option<Arc<TensorMemory>> {
        match self {
            Memory::Given(memory) => Some(memory.clone()),
            Memory::Result(memory) => memory.upgrade(),
        }
    }
}

impl Open {
    pub(super) fn value(&mut self, memory: Memory) -> Value {
        self.memories.push(memory);
        self.memories.len() - 1
    }

    pub(super) fn push(&mut self, node: Node) {
        self.nodes.push(Node { place: self.nodes.len(), ..node });
    }
}

impl Shared {
    pub(super) fn open(&self) -> MutexGuard<'_, Option<Open>> {
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

    /// Something that was kept stands in the place of a result.
    pub(crate) fn replace(&self, result: Value) {
        if let Some(open) = self.open().as_mut() {
            open.replaced.insert(result);
        }
    }

    /// Something was moved to its executor.
    pub(crate) fn move_to(&self) {
        if let Some(open) = self.open().as_mut() {
            open.is_moved_to = true;
        }
    }
}

/// The memory of a tensor and its views, or what will give it some. Its address is the identity a recorder watches.
#[derive(Default)]
pub(crate) struct TensorMemory {
    buffer: OnceLock<Buffer>,
    pending: Option<Pending>,
    /// How often it was changed in place.
    changes: AtomicU64,
    /// How often a recording that writes it was replayed.
    replays: AtomicU64,
}

/// A recorder's value that has no memory yet.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) recorder: Arc<Shared>,
    pub(crate) value: Value,
}

impl Pending {
    /// Why it cannot be used here.
    pub(crate) fn error(&self) -> Error {
        Error::invalid_argument(match self.recorder.is_open() {
            true => "the tensor is a result of a recorder that has not ended: finish that, and replay its recording, first",
            false => "the tensor is a result of a recorder that was dropped, or failed, before it ended: it has no elements",
        })
    }
}

impl TensorMemory {
    pub(crate) fn new(buffer: Buffer) -> Arc<Self> {
        Arc::new(Self { buffer: buffer.into(), ..Self::default() })
    }

    /// What gets a buffer when the recorder ends.
    pub(crate) fn pending_on(pending: Pending) -> Arc<Self> {
        Arc::new(Self { pending: Some(pending), ..Self::default() })
    }

    /// How often it was changed in place: what was kept for a gradient must not have been.
    pub(crate) fn version(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// It is changed in place.
    pub(crate) fn change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a recording that writes it was replayed.
    pub(crate) fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }

    /// A recording that writes it is replayed.
    pub(crate) fn replay(&self) {
        self.replays.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives it its buffer, for good.
    pub(crate) fn set(&self, buffer: Buffer) {
        let _ = self.buffer.set(buffer);
    }

    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        self.buffer.get()
    }

    /// What is to give it its buffer, if it has none.
    pub(crate) fn pending(&self) -> Option<&Pending> {
        self.pending.as_ref().filter(|_| self.buffer.get().is_none())
    }
}

/// The bytes that a layout touches.
pub(crate) fn binding(buffer: &Buffer, dtype: DType, layout: &Layout) -> Result<Binding> {
    let (span, size) = (layout.span(), dtype.size());
    // A view without elements may begin beyond the end.
    let start = if span.is_empty() { 0 } else { span.start * size };
    buffer.bind(start, span.len() * size)
}
