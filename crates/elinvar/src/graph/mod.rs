//! What was asked for, as data, between the tensors' methods and a command list.
//!
//! A [`Recorder`] writes nodes down. When it ends, passes change the graph: [`matching`] puts fused operators in place of those they stand for, [`elements`]
//! makes one program of operators on elements that follow each other. [`encode`] gives values their memory and makes the commands. What was asked for
//! is done, also where nobody looks at the result.

mod elements;
mod encode;
mod matching;
mod recorder;
mod rules;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, ops::Range, sync::Arc};

use elinvar_core::{Binding, Dispatch, Result};
use elinvar_kernels::{Operator, TensorInfo};

use elements::Element;
pub(crate) use recorder::Shared;
pub use recorder::{Recorder, Recording};

/// A value's index: memory that was given, or a node's result.
pub(crate) type Value = usize;

/// A value through a layout, whose offset counts from the value's first element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operand {
    pub(crate) value: Value,
    pub(crate) info: TensorInfo,
}

impl Operand {
    /// What an operator sees of it.
    fn seen(&self) -> TensorInfo {
        TensorInfo { layout: self.info.layout.rebased(), ..self.info }
    }
}

/// Makes a dispatch of the bindings of a node's inputs, and its outputs after them; none if there is nothing to do.
type MakeDispatch = dyn Fn(Vec<Option<Binding>>) -> Result<Option<Dispatch>> + Send + Sync;

/// What a node does.
#[derive(Clone)]
pub(crate) enum Action {
    /// An operator, planned when its turn comes.
    Operator(Arc<dyn Operator>),
    /// One dispatch: a user's kernel, or a program of fused operators.
    Dispatch {
        /// Whether it writes to an input, for each.
        writes: Arc<[bool]>,
        /// The types of its outputs, row-major.
        outputs: Arc<[TensorInfo]>,
        make: Arc<MakeDispatch>,
    },
}

impl Action {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Action::Operator(operator) => operator.name(),
            Action::Dispatch { .. } => "kernel",
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Operator(operator) => operator.fmt(f),
            Action::Dispatch { .. } => f.write_str("dispatch"),
        }
    }
}

/// Where an operator stands: `operator 12 of the recording (rms_norm of [2, 4] f32)`.
fn placed(place: usize, name: &str, inputs: impl Iterator<Item = TensorInfo>) -> String {
    let inputs: Vec<_> = inputs.map(|info| format!("{} {}", info.shape(), info.dtype)).collect();
    format!("operator {place} of the recording ({name}{}{})", if inputs.is_empty() { "" } else { " of " }, inputs.join(", "))
}

/// Where a node's output goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Output {
    /// To memory of its own.
    Value(Value),
    /// To elements that are there.
    Into(Operand),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// How many were recorded before it, or before the first of those whose place it takes.
    place: usize,
    action: Action,
    inputs: Vec<Option<Operand>>,
    outputs: Vec<Output>,
    /// What a program can have of it.
    element: Option<Element>,
}

impl Node {
    fn new(action: Action, inputs: Vec<Option<Operand>>, outputs: Vec<Output>) -> Self {
        let element = Element::of(&action, &inputs, &outputs);
        Self { place: 0, action, inputs, outputs, element }
    }

    /// Where it stands, for errors.
    fn described(&self) -> String {
        placed(self.place, self.action.name(), self.inputs.iter().flatten().map(|operand| operand.info))
    }

    /// Its operator, if it is of this type.
    fn operator<T: Operator>(&self) -> Option<&T> {
        match &self.action {
            Action::Operator(operator) => operator.downcast_ref(),
            Action::Dispatch { .. } => None,
        }
    }

    /// The input, if it is there.
    fn input(&self, index: usize) -> Option<Operand> {
        self.inputs.get(index).copied().flatten()
    }

    /// The value of its only output, if that has memory of its own.
    fn result(&self) -> Option<Value> {
        only(&self.outputs)
    }

    fn results(&self) -> impl Iterator<Item = Value> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Value(value) => Some(*value),
            Output::Into(_) => None,
        })
    }

    /// Memory that it looks at or changes, beside its results'.
    fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.inputs.iter().flatten().chain(self.targets())
    }

    /// Where outputs go that have no memory of their own.
    fn targets(&self) -> impl Iterator<Item = &Operand> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Into(operand) => Some(operand),
            Output::Value(_) => None,
        })
    }

    fn uses(&self, value: Value) -> bool {
        self.operands().any(|operand| operand.value == value)
    }

    /// Values that it changes.
    fn changes(&self) -> impl Iterator<Item = Value> {
        let writes = |index: usize| match &self.action {
            Action::Operator(operator) => operator.updates(index),
            Action::Dispatch { writes, .. } => writes[index],
        };
        let updated = self.inputs.iter().enumerate().filter(move |(index, _)| writes(*index)).filter_map(|(_, operand)| operand.map(|o| o.value));
        updated.chain(self.targets().map(|operand| operand.value))
    }

    /// Whether it must come after `earlier`: it uses a result, or one of them changes what the other looks at.
    fn depends_on(&self, earlier: &Node) -> bool {
        earlier.results().chain(earlier.changes()).any(|value| self.uses(value)) || self.changes().any(|value| earlier.uses(value))
    }
}

/// The only output, if it has memory of its own.
fn only(outputs: &[Output]) -> Option<Value> {
    let &[Output::Value(value)] = outputs else { return None };
    Some(value)
}

/// Nodes in an order in which they can run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
    /// Of each value whether somebody wants it when the graph has run. Given memory is always wanted.
    wanted: Vec<bool>,
    /// Of each value the node whose result it is, and which of its outputs.
    producers: Vec<Option<(usize, usize)>>,
    /// Of each value the nodes that take or change it, in order.
    users: Vec<Vec<usize>>,
}

impl Graph {
    fn new(nodes: Vec<Node>, wanted: Vec<bool>) -> Self {
        let (producers, users) = (vec![None; wanted.len()], vec![Vec::new(); wanted.len()]);
        let mut graph = Self { nodes, wanted, producers, users };
        graph.index(0);
        graph
    }

    /// Finds producers and users again, where the nodes from `first` on are others than before.
    fn index(&mut self, first: usize) {
        for (producer, users) in self.producers.iter_mut().zip(&mut self.users) {
            producer.take_if(|(node, _)| *node >= first);
            users.truncate(users.partition_point(|user| *user < first));
        }
        for (index, node) in self.nodes.iter().enumerate().skip(first) {
            for (place, output) in node.outputs.iter().enumerate() {
                if let Output::Value(value) = output {
                    self.producers[*value] = Some((index, place));
                }
            }
            for operand in node.operands() {
                if self.users[operand.value].last() != Some(&index) {
                    self.users[operand.value].push(index);
                }
            }
        }
    }

    /// The node whose result this is, and which of its outputs.
    fn producer(&self, value: Value) -> Option<(usize, usize)> {
        self.producers[value]
    }

    /// The nodes that take or change the value.
    fn users(&self, value: Value) -> impl Iterator<Item = usize> {
        self.users[value].iter().copied()
    }

    /// Whether the node at `user` alone takes the value, and nothing changes it.
    fn is_only_for(&self, value: Value, user: usize) -> bool {
        !self.wanted[value] && self.users(value).eq([user])
    }

    /// What took or changed one value takes or changes another.
    fn rename(&mut self, old: Value, new: Value) {
        let users = std::mem::take(&mut self.users[old]);
        let Some(&first) = users.first() else { return };
        for user in users {
            let Node { inputs, outputs, .. } = &mut self.nodes[user];
            let targets = outputs.iter_mut().filter_map(|output| match output {
                Output::Into(operand) => Some(operand),
                Output::Value(_) => None,
            });
            inputs.iter_mut().flatten().chain(targets).filter(|operand| operand.value == old).for_each(|operand| operand.value = new);
        }
        self.index(first);
    }

    /// Those nodes between the first and the last of `set` that must come after it; none if one of the set needs one of them.
    fn following(&self, set: &BTreeSet<usize>) -> Option<BTreeSet<usize>> {
        let window = set.first().copied().unwrap_or(0)..set.last().map_or(0, |last| last + 1);
        let mut following = BTreeSet::new();
        for index in window {
            let node = &self.nodes[index];
            let needs =
                |others: &BTreeSet<usize>| others.iter().take_while(|other| **other < index).any(|other| node.depends_on(&self.nodes[*other]));
            if set.contains(&index) {
                if needs(&following) {
                    return None;
                }
            } else if needs(set) || needs(&following) {
                following.insert(index);
            }
        }
        Some(following)
    }

    /// Puts one node in the place of a set, if the order allows it. Gives the places that the nodes between have now.
    fn replace(&mut self, set: &BTreeSet<usize>, node: Node) -> Option<Range<usize>> {
        let following = self.following(set)?;
        let node = Node { place: set.iter().map(|index| self.nodes[*index].place).min()?, ..node };
        let (first, last) = (*set.first()?, *set.last()?);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (index, node) in (first..).zip(self.nodes.drain(first..=last)) {
            match (set.contains(&index), following.contains(&index)) {
                (true, _) => {}
                (false, true) => after.push(node),
                (false, false) => before.push(node),
            }
        }
        let count = before.len() + 1 + after.len();
        self.nodes.splice(first..first, before.into_iter().chain([node]).chain(after));
        self.index(first);
        Some(first..first + count)
    }
}
