//! Which operators on elements become one program.

use std::collections::BTreeSet;

use elinvar_core::Shape;
use elinvar_kernels::{ElementOp, TensorInfo};

use crate::graph::{
    element::Element,
    node::Graph,
    value::{Operand, Output, Value},
};

/// Operators of one program.
const MAX_OPERATORS: usize = 48;
/// Operands of one program.
const MAX_LEAVES: usize = 8;
/// Outputs of one program.
const MAX_OUTPUTS: usize = 4;
/// Nodes before a program's last among which other outputs of it are looked for. Without a limit fusing a graph takes more than the square of its size.
const REACH: usize = 64;

/// Where a step finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum From {
    Leaf(usize),
    Step(usize),
}

/// An operator of a program.
pub(super) struct Step {
    pub(super) op: ElementOp,
    pub(super) from: Vec<From>,
    pub(super) info: TensorInfo,
}

/// What becomes one program: steps in order, all of one shape but for broadcasting.
pub(super) struct Expression {
    pub(super) shape: Shape,
    pub(super) leaves: Vec<Operand>,
    pub(super) steps: Vec<Step>,
    /// Steps whose results are stored, and as which values.
    pub(super) outputs: Vec<(usize, Value)>,
}

/// Nodes that become one program.
#[derive(Clone)]
pub(super) struct Region {
    shape: Shape,
    pub(super) nodes: BTreeSet<usize>,
}

impl Region {
    /// All that can be computed together with the result of the node at `root`: what it is computed from, and others of the same operands.
    pub(super) fn grow(graph: &Graph, root: usize) -> Option<Self> {
        let shape = *graph.nodes[root].element?.info.shape();
        let mut region = Self { shape, nodes: BTreeSet::from([root]) };
        region.absorb(graph);
        for other in (root.saturating_sub(REACH)..root).rev() {
            // What goes into operators on elements alone is part of their program.
            let is_needed = |value: Value| graph.wanted[value] || graph.users(value).any(|user| graph.nodes[user].element.is_none());
            let is_end = |element: &Element| *element.info.shape() == shape && is_needed(element.value);
            if region.nodes.contains(&other) || !graph.nodes[other].element.is_some_and(|element| is_end(&element)) {
                continue;
            }
            let mut alone = Self { shape, nodes: BTreeSet::from([other]) };
            alone.absorb(graph);
            let joined = Self { shape, nodes: region.nodes.union(&alone.nodes).copied().collect() };
            let own = region.leaves(graph);
            let is_shared = alone.leaves(graph).iter().any(|leaf| own.iter().any(|known| known.value == leaf.value));
            if is_shared && joined.is_possible(graph) {
                region = joined;
            }
        }
        Some(region)
    }

    /// Takes in what its nodes are computed from, as far as one program can have it.
    fn absorb(&mut self, graph: &Graph) {
        let mut tried = BTreeSet::new();
        loop {
            let operands = self.nodes.iter().rev().flat_map(|node| graph.nodes[*node].inputs.iter().flatten());
            let mut producers = operands.filter_map(|operand| Some((*operand, graph.producer(operand.value)?.0)));
            let next = producers.find(|(_, node)| !self.nodes.contains(node) && !tried.contains(node));
            let Some((operand, node)) = next else { return };
            tried.insert(node);
            let Some(element) = graph.nodes[node].element.filter(|element| element.is_whole(&operand)) else { continue };
            let larger = Self { nodes: self.nodes.iter().copied().chain([node]).collect(), ..self.clone() };
            // What others look at is stored, so it must have the program's shape.
            if (*element.info.shape() == self.shape || !larger.is_stored(graph, element.value)) && larger.is_possible(graph) {
                *self = larger;
            }
        }
    }

    fn is_possible(&self, graph: &Graph) -> bool {
        self.nodes.len() <= MAX_OPERATORS
            && self.leaves(graph).len() <= MAX_LEAVES
            && self.stored(graph).count() <= MAX_OUTPUTS
            && self.nodes.iter().all(|node| self.takes_whole(graph, *node))
            && graph.following(&self.nodes).is_some()
    }

    /// Whether the node's operands that are results of the region's are taken as they lie there.
    fn takes_whole(&self, graph: &Graph, node: usize) -> bool {
        graph.nodes[node].inputs.iter().flatten().all(|operand| match graph.producer(operand.value) {
            Some((producer, _)) if self.nodes.contains(&producer) => graph.nodes[producer].element.is_some_and(|element| element.is_whole(operand)),
            Some(_) | None => true,
        })
    }

    fn leaves(&self, graph: &Graph) -> Vec<Operand> {
        let results: BTreeSet<_> = self.nodes.iter().filter_map(|node| graph.nodes[*node].result()).collect();
        let mut leaves: Vec<Operand> = Vec::new();
        for operand in self.nodes.iter().flat_map(|node| graph.nodes[*node].inputs.iter().flatten()) {
            if !results.contains(&operand.value) && !leaves.contains(operand) {
                leaves.push(*operand);
            }
        }
        leaves
    }

    /// Whether something beside the region looks at the value, or nothing at all.
    fn is_stored(&self, graph: &Graph, value: Value) -> bool {
        graph.wanted[value] || graph.users(value).next().is_none() || graph.users(value).any(|user| !self.nodes.contains(&user))
    }

    fn stored<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = Value> {
        self.nodes.iter().filter_map(|node| graph.nodes[*node].result()).filter(|value| self.is_stored(graph, *value))
    }

    /// It as a program's steps.
    pub(super) fn expression(&self, graph: &Graph) -> Option<Expression> {
        let leaves = self.leaves(graph);
        let (mut steps, mut values, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for node in self.nodes.iter().map(|node| &graph.nodes[*node]) {
            let Element { op, info, value } = node.element?;
            let place = |operand: &Operand| match values.iter().position(|value| *value == operand.value) {
                Some(step) => Some(From::Step(step)),
                None => leaves.iter().position(|leaf| leaf == operand).map(From::Leaf),
            };
            let from = node.inputs.iter().flatten().map(place).collect::<Option<_>>()?;
            if self.is_stored(graph, value) {
                outputs.push((steps.len(), value));
            }
            steps.push(Step { op, from, info });
            values.push(value);
        }
        Some(Expression { shape: self.shape, leaves, steps, outputs })
    }
}

impl Expression {
    /// As a node's inputs and outputs.
    pub(super) fn ports(&self) -> (Vec<Option<Operand>>, Vec<Output>) {
        (self.leaves.iter().copied().map(Some).collect(), self.outputs.iter().map(|(_, value)| Output::Value(*value)).collect())
    }
}
