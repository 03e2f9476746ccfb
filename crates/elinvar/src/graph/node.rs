//! Nodes, and the graph of them.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use elinvar_kernels::Operator;

use super::{
    element::Element,
    value::{Action, Operand, Output, Value, only, placed},
};

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// How many were recorded before it, or before the first of those whose place it takes.
    pub(super) place: usize,
    pub(super) action: Action,
    pub(super) inputs: Vec<Option<Operand>>,
    pub(super) outputs: Vec<Output>,
    /// What a program can have of it.
    pub(super) element: Option<Element>,
}

impl Node {
    pub(super) fn new(action: Action, inputs: Vec<Option<Operand>>, outputs: Vec<Output>) -> Self {
        let element = Element::of(&action, &inputs, &outputs);
        Self { place: 0, action, inputs, outputs, element }
    }

    /// Where it stands, for errors.
    pub(super) fn described(&self) -> String {
        placed(self.place, self.action.name(), self.inputs.iter().flatten().map(|operand| operand.info))
    }

    /// Its operator, if it is of this type.
    pub(super) fn operator<T: Operator>(&self) -> Option<&T> {
        match &self.action {
            Action::Operator(operator) => operator.downcast_ref(),
            Action::Dispatch { .. } => None,
        }
    }

    /// The input, if it is there.
    pub(super) fn input(&self, index: usize) -> Option<Operand> {
        self.inputs.get(index).copied().flatten()
    }

    /// The value of its only output, if that has memory of its own.
    pub(super) fn result(&self) -> Option<Value> {
        only(&self.outputs)
    }

    pub(super) fn results(&self) -> impl Iterator<Item = Value> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Value(value) => Some(*value),
            Output::Into(_) => None,
        })
    }

    /// Memory that it looks at or changes, beside its results'.
    pub(super) fn operands(&self) -> impl Iterator<Item = &Operand> {
        self.inputs.iter().flatten().chain(self.targets())
    }

    /// Where outputs go that have no memory of their own.
    fn targets(&self) -> impl Iterator<Item = &Operand> {
        self.outputs.iter().filter_map(|output| match output {
            Output::Into(operand) => Some(operand),
            Output::Value(_) => None,
        })
    }

    pub(super) fn uses(&self, value: Value) -> bool {
        self.operands().any(|operand| operand.value == value)
    }

    /// Values that it changes.
    pub(super) fn changes(&self) -> impl Iterator<Item = Value> {
        let writes = |index: usize| match &self.action {
            Action::Operator(operator) => operator.updates(index),
            Action::Dispatch { writes, .. } => writes[index],
        };
        let updated = self.inputs.iter().enumerate().filter(move |(index, _)| writes(*index)).filter_map(|(_, operand)| operand.map(|o| o.value));
        updated.chain(self.targets().map(|operand| operand.value))
    }

    /// Whether it must come after `earlier`: it uses a result, or one of them changes what the other looks at.
    pub(super) fn depends_on(&self, earlier: &Node) -> bool {
        earlier.results().chain(earlier.changes()).any(|value| self.uses(value)) || self.changes().any(|value| earlier.uses(value))
    }
}

/// Nodes in an order in which they can run.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Of each value whether it is wanted when the graph has run. Given memory is always wanted.
    pub(super) wanted: Vec<bool>,
    /// Of each value the node whose result it is, and which of its outputs.
    producers: Vec<Option<(usize, usize)>>,
    /// Of each value the nodes that take or change it, in order.
    users: Vec<Vec<usize>>,
}

impl Graph {
    pub(super) fn new(nodes: Vec<Node>, wanted: Vec<bool>) -> Self {
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
    pub(super) fn producer(&self, value: Value) -> Option<(usize, usize)> {
        self.producers[value]
    }

    /// The nodes that take or change the value.
    pub(super) fn users(&self, value: Value) -> impl Iterator<Item = usize> {
        self.users[value].iter().copied()
    }

    /// Whether the node at `user` alone takes the value, and nothing changes it.
    pub(super) fn is_only_for(&self, value: Value, user: usize) -> bool {
        !self.wanted[value] && self.users(value).eq([user])
    }

    /// What took or changed one value takes or changes another.
    pub(super) fn rename(&mut self, old: Value, new: Value) {
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

    /// Puts an operator of one result before a node; gives the result.
    pub(super) fn insert(&mut self, index: usize, operator: Arc<dyn Operator>, inputs: Vec<Option<Operand>>) -> Value {
        let value = self.wanted.len();
        self.wanted.push(false);
        self.producers.push(None);
        self.users.push(Vec::new());
        let place = self.nodes[index].place;
        self.nodes.insert(index, Node { place, ..Node::new(Action::Operator(operator), inputs, vec![Output::Value(value)]) });
        self.index(index);
        value
    }

    /// Has a node do something else with other inputs.
    pub(super) fn change(&mut self, index: usize, operator: Arc<dyn Operator>, inputs: Vec<Option<Operand>>) {
        let node = &mut self.nodes[index];
        let (place, outputs) = (node.place, std::mem::take(&mut node.outputs));
        *node = Node { place, ..Node::new(Action::Operator(operator), inputs, outputs) };
        self.index(index);
    }

    /// Takes a node out whose results nothing needs any more.
    pub(super) fn remove(&mut self, index: usize) {
        self.nodes.remove(index);
        self.index(index);
    }

    /// Takes out the nodes for which `is_kept`, asked from the last to the first, is false.
    pub(super) fn retain_from_last(&mut self, is_kept: impl FnMut(&Node) -> bool) {
        self.nodes = std::mem::take(&mut self.nodes).into_iter().rev().filter(is_kept).collect();
        self.nodes.reverse();
        self.index(0);
    }

    /// Those nodes between the first and the last of `set` that must come after it; none if one of the set needs one of them.
    pub(super) fn following(&self, set: &BTreeSet<usize>) -> Option<BTreeSet<usize>> {
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
    pub(super) fn replace(&mut self, set: &BTreeSet<usize>, node: Node) -> Option<Range<usize>> {
        let following = self.following(set)?;
        let (first, last) = (*set.first()?, *set.last()?);
        let node = Node { place: set.iter().map(|index| self.nodes[*index].place).min()?, ..node };
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
