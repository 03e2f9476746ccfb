//! Lists submitted again: recorded as CUDA graphs, so that a replay is one call of the driver's.

use std::{
    ptr,
    sync::{Arc, Weak},
};

use cudarc::driver::sys;
use elinvar_core::{CommandList, ERROR_FLAG_BYTES, KernelSource, Pipeline, Result};

use crate::{
    commands::{Target, kernels, rejecting},
    driver::Context,
    memory::Memory,
    products::Products,
};

/// A list as one executable graph.
pub(crate) struct Graph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    pub(crate) kernels: Arc<[Arc<KernelSource>]>,
    pub(crate) rejecting: Arc<[Pipeline]>,
    /// Zeros before each launch: taken after each.
    pub(crate) words: Option<Memory>,
}

// SAFETY: used under the queue's lock.
unsafe impl Send for Graph {}

impl Graph {
    /// Records the list. Nothing runs.
    pub(crate) fn record(context: &Arc<Context>, products: &Products, list: &CommandList) -> Result<Self> {
        let rejecting: Arc<[Pipeline]> = rejecting(list).into();
        let words = if rejecting.is_empty() { None } else { Some(Memory::zeros(context, ERROR_FLAG_BYTES * rejecting.len())?) };
        let stream = context.capture();
        // SAFETY: the stream is for this alone, and the queue's lock keeps other threads from it.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) };
        context.check("recording a graph", begun)?;
        let encoded = Target { context, stream, products, words: words.as_ref() }.run(list);
        let mut recorded = ptr::null_mut();
        // SAFETY: ends what was begun above.
        let ended = unsafe { sys::cuStreamEndCapture(stream, &mut recorded) };
        let recorded = Recorded(recorded);
        encoded?;
        context.check("recording a graph", ended)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the graph was recorded above.
        context.check("making a graph", unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, recorded.0, 0) })?;
        Ok(Self { context: context.clone(), raw, kernels: kernels(list), rejecting, words })
    }

    /// Starts it.
    pub(crate) fn launch(&self) -> Result<()> {
        // SAFETY: the graph lives; its buffers are held by the list that is being submitted, and free in stream order.
        self.context.check("starting a graph", unsafe { sys::cuGraphLaunch(self.raw, self.context.stream()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: made once, destroyed once; the driver lets a running one finish.
            unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

struct Recorded(sys::CUgraph);

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: ended by us, destroyed once.
            unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// How a list is to be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Command by command.
    Commands,
    /// It came before: as a graph, to be recorded now.
    Record,
    /// As the graph it has.
    Replay,
}

/// Lists seen lately, and the graphs of those seen more than once.
pub(crate) struct Seen<G> {
    lists: Vec<Entry<G>>,
}

struct Entry<G> {
    id: u64,
    list: Weak<CommandList>,
    graph: Option<G>,
}

impl<G> Default for Seen<G> {
    fn default() -> Self {
        Self { lists: Vec::new() }
    }
}

impl<G> Seen<G> {
    /// Commands from which a graph pays.
    const LEAST: usize = 4;
    /// Lists remembered.
    const MOST: usize = 32;

    /// How to start a list; forgets lists that are gone, and the longest unused of too many.
    pub(crate) fn turn(&mut self, list: &Arc<CommandList>) -> Turn {
        // A graph has the addresses of its memory for good.
        if list.has_stand_ins() {
            return Turn::Commands;
        }
        self.lists.retain(|entry| entry.list.strong_count() > 0);
        if let Some(at) = self.lists.iter().position(|entry| entry.id == list.id()) {
            let entry = self.lists.remove(at);
            let turn = if entry.graph.is_some() { Turn::Replay } else { Turn::Record };
            self.lists.push(entry);
            return turn;
        }
        if list.commands().len() >= Self::LEAST {
            self.remember(list, None);
        }
        Turn::Commands
    }

    /// Keeps a graph of a list before it is first started.
    pub(crate) fn add(&mut self, list: &Arc<CommandList>, graph: G) {
        self.lists.retain(|entry| entry.id != list.id());
        self.remember(list, Some(graph));
    }

    fn remember(&mut self, list: &Arc<CommandList>, graph: Option<G>) {
        if self.lists.len() == Self::MOST {
            self.lists.remove(0);
        }
        self.lists.push(Entry { id: list.id(), list: Arc::downgrade(list), graph });
    }

    /// Keeps the graph of the list last asked about.
    pub(crate) fn keep(&mut self, graph: G) {
        if let Some(entry) = self.lists.last_mut() {
            entry.graph = Some(graph);
        }
    }

    /// The graph of the list last asked about.
    pub(crate) fn graph(&self) -> Option<&G> {
        self.lists.last().and_then(|entry| entry.graph.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use elinvar_core::{Device, ListBuilder, NullBackend};

    use super::*;

    fn list(commands: usize) -> Arc<CommandList> {
        let device = Device::new(NullBackend::new());
        let buffer = device.allocate(64).unwrap();
        let mut list = ListBuilder::new();
        (0..commands).for_each(|_| list.fill(buffer.bind(0, 64).unwrap(), 0).unwrap());
        list.finish()
    }

    #[test]
    fn a_list_becomes_a_graph_the_second_time_and_is_forgotten_with_it() {
        let (mut seen, first, second) = (Seen::<u32>::default(), list(4), list(5));
        assert_eq!((seen.turn(&first), seen.turn(&second), seen.turn(&first)), (Turn::Commands, Turn::Commands, Turn::Record));
        seen.keep(7);
        assert_eq!((seen.turn(&second), seen.turn(&first)), (Turn::Record, Turn::Replay));
        assert_eq!(seen.graph(), Some(&7));
        drop(first);
        seen.turn(&second);
        assert_eq!(seen.lists.len(), 1);
    }

    #[test]
    fn a_list_that_was_prepared_is_a_graph_at_once() {
        let (mut seen, short) = (Seen::<u32>::default(), list(1));
        seen.add(&short, 7);
        assert_eq!((seen.turn(&short), seen.graph()), (Turn::Replay, Some(&7)));
    }

    #[test]
    fn short_lists_stay_commands_and_old_ones_are_forgotten() {
        let (mut seen, short, old) = (Seen::<u32>::default(), list(3), list(4));
        assert_eq!((seen.turn(&short), seen.turn(&short)), (Turn::Commands, Turn::Commands));
        seen.turn(&old);
        let others: Vec<_> = (0..Seen::<u32>::MOST).map(|_| list(4)).collect();
        others.iter().for_each(|other| assert_eq!(seen.turn(other), Turn::Commands));
        assert_eq!(seen.turn(&old), Turn::Commands);
        assert_eq!(seen.lists.len(), Seen::<u32>::MOST);
    }
}
