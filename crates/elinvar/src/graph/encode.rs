//! Values get their memory, nodes their commands.

use std::sync::Arc;

use elinvar_core::{Binding, Buffer, CommandList, Device, Error, ListBuilder, Result};
use elinvar_kernels::{collective::AllGather, encode as encode_plan, plan_for};

use super::{
    node::{Graph, Node},
    shared::{TensorMemory, binding},
    value::{Action, Operand, Output, Value},
    workspace::Workspace,
};
use crate::executor::byte_size;

/// The commands of a graph. `memories` has what is given and what is wanted; other values share memory as soon as nothing needs one any more, and all
/// results lie in the workspace if there is one.
///
/// # Errors
/// Out of memory, or a kernel that does not compile.
pub(super) fn encode(
    graph: &Graph,
    memories: &[Option<Arc<TensorMemory>>],
    device: &Device,
    workspace: Option<&mut Workspace>,
) -> Result<Arc<CommandList>> {
    let given: Vec<_> = memories.iter().map(|memory| memory.as_ref()?.buffer().cloned()).collect();
    let free = workspace.as_ref().map_or_else(Vec::new, |workspace| workspace.buffers.clone());
    let mut memory = Memory { device, buffers: given.clone(), free, kept: Vec::new(), is_shared: workspace.is_some() };
    memory.buffers.resize(graph.wanted.len(), None);
    let last_uses = last_uses(graph);
    let mut list = ListBuilder::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let mut unused = memory.commands(graph, node, &mut list).map_err(|error| error.context(node.described()))?;
        for value in last_uses[index].iter().filter(|value| !graph.wanted[**value]) {
            unused.extend(memory.buffers[*value].take());
        }
        memory.free.append(&mut memory.kept);
        // A launch whose results are gathered may write what is gathered while it reads what it is given.
        let is_gathered = graph.nodes.get(index + 1).is_some_and(|next| next.operator::<AllGather>().is_some());
        if is_gathered { &mut memory.kept } else { &mut memory.free }.extend(unused);
    }
    let mut free = memory.free;
    for ((memory, given), buffer) in memories.iter().zip(given).zip(memory.buffers) {
        if let (Some(memory), Some(buffer)) = (memory, buffer) {
            free.extend(given.is_none().then(|| buffer.clone()));
            memory.set(buffer);
        }
    }
    if let Some(workspace) = workspace {
        workspace.buffers = free;
    }
    Ok(list.finish())
}

/// Of each node the values that none after it takes.
fn last_uses(graph: &Graph) -> Vec<Vec<Value>> {
    let mut seen = vec![false; graph.wanted.len()];
    let mut last: Vec<_> = graph
        .nodes
        .iter()
        .rev()
        .map(|node| {
            let values = node.operands().map(|operand| operand.value).chain(node.results());
            values.filter(|value| !std::mem::replace(&mut seen[*value], true)).collect()
        })
        .collect();
    last.reverse();
    last
}

struct Memory<'a> {
    device: &'a Device,
    /// Of each value that has one now.
    buffers: Vec<Option<Buffer>>,
    /// What transient values had.
    free: Vec<Buffer>,
    /// What is free after the next node.
    kept: Vec<Buffer>,
    /// Whether other recordings have the same memory.
    is_shared: bool,
}

impl Memory<'_> {
    /// Adds what a node does. Gives the temporary memory of that.
    fn commands(&mut self, graph: &Graph, node: &Node, list: &mut ListBuilder) -> Result<Vec<Buffer>> {
        let inputs =
            node.inputs.iter().map(|operand| operand.as_ref().map(|operand| self.binding(operand)).transpose()).collect::<Result<Vec<_>>>()?;
        let mut temporaries = Vec::new();
        match &node.action {
            Action::Operator(operator) => {
                let infos: Vec<_> = node.inputs.iter().map(|operand| operand.map(|operand| operand.seen())).collect();
                let types = operator.infer(&infos)?;
                let mut targets = Vec::new();
                for (output, info) in node.outputs.iter().zip(&types) {
                    targets.push(match output {
                        Output::Value(value) => self.result(*value, byte_size(info.dtype, info.shape())?, graph.wanted[*value])?,
                        Output::Into(operand) => self.binding(operand)?,
                    });
                }
                let plan = plan_for(&**operator, &infos, &types, self.device)?;
                encode_plan(&plan, &inputs, &targets, self.device, list, |bytes| {
                    let buffer = self.transient(bytes)?;
                    temporaries.push(buffer.clone());
                    Ok(buffer)
                })?;
            }
            Action::Dispatch { make, outputs, .. } => {
                let mut bindings = inputs;
                for (output, info) in node.outputs.iter().zip(&**outputs) {
                    let Output::Value(value) = output else { return Err(Error::internal("a program writes into memory that is there")) };
                    bindings.push(Some(self.result(*value, byte_size(info.dtype, info.shape())?, graph.wanted[*value])?));
                }
                if let Some(dispatch) = make(bindings)? {
                    list.dispatch(dispatch, self.device.properties())?;
                }
            }
        }
        Ok(temporaries)
    }

    fn binding(&self, operand: &Operand) -> Result<Binding> {
        let buffer = self.buffers[operand.value].as_ref().ok_or_else(|| Error::internal("a value is used before it is there"))?;
        binding(buffer, operand.info.dtype, &operand.info.layout)
    }

    /// Memory for a result.
    fn result(&mut self, value: Value, bytes: usize, wanted: bool) -> Result<Binding> {
        let buffer = if wanted && !self.is_shared { self.device.allocate(bytes)? } else { self.transient(bytes)? };
        self.buffers[value] = Some(buffer.clone());
        buffer.bind(0, bytes)
    }

    /// Memory that is free again, if some fits well, else new.
    fn transient(&mut self, bytes: usize) -> Result<Buffer> {
        let most = bytes.max(64) * if self.is_shared { 4 } else { 2 };
        let fits = |buffer: &Buffer| (bytes..=most).contains(&buffer.raw().bytes());
        let best =
            self.free.iter().enumerate().filter(|(_, buffer)| fits(buffer)).min_by_key(|(_, buffer)| buffer.raw().bytes()).map(|(index, _)| index);
        match best.and_then(|index| self.free.swap_remove(index).resized(bytes)) {
            Some(buffer) => Ok(buffer),
            // In powers of two, what recordings of many sizes have together is at most four times what the largest has.
            None if self.is_shared => {
                let rounded = bytes.checked_next_power_of_two().unwrap_or(bytes);
                self.device.allocate(rounded)?.resized(bytes).ok_or_else(|| Error::internal("a buffer is smaller than asked"))
            }
            None => self.device.allocate(bytes),
        }
    }
}
