//! Fused operators in place of the operators they stand for.
//!
//! A [`rule`](super::rules) proposes a fused operator where its end is found. Whether the graph has what it stands for is not the rule's to say: every step of
//! its definition must be there, with the same operands in the same layouts.

use std::collections::{BTreeSet, HashMap};

use elinvar_core::{DeviceProperties, Layout};
use elinvar_kernels::{Definition, Operator, Source, TensorInfo};

use super::{
    node::{Graph, Node},
    rules::{Proposal, RULES},
    value::{Action, Operand, Output, Value},
};

/// Puts fused operators in.
pub(super) fn fuse(graph: &mut Graph, device: &DeviceProperties) {
    for rule in RULES {
        let mut index = 0;
        'nodes: while index < graph.nodes.len() {
            for proposal in rule(graph, index, device) {
                if accept(graph, proposal) {
                    // What stands here now may be the end of something, too.
                    index = index.saturating_sub(1);
                    continue 'nodes;
                }
            }
            index += 1;
        }
    }
}

/// Takes a proposal if the graph has what the operator stands for, and nothing else needs what would no longer be there.
fn accept(graph: &mut Graph, Proposal { operator, inputs, outputs }: Proposal) -> bool {
    let infos: Vec<Option<TensorInfo>> = inputs.iter().map(|operand| operand.map(|operand| operand.seen())).collect();
    // What the operator does not take is not what it stands for.
    let Ok(Some(definition)) = operator.stands_for(&infos) else { return false };
    let Some(found) = Found::new(graph, &definition, &inputs, &outputs) else { return false };
    // What an input holds afterwards takes its place; nothing may read what it held before.
    let mut renamed = Vec::new();
    for (input, operand) in &definition.updated {
        let (Some(given), Some(value)) = (inputs[*input], found.value(graph, operand.source)) else { return false };
        let is_whole = given.info.layout.is_contiguous() && given.info.layout.span().start == 0 && graph.producer(given.value).is_some();
        let is_own = !graph.wanted[value] && !graph.wanted[given.value] && graph.users(given.value).all(|user| found.nodes.contains(&user));
        if !is_whole || !is_own {
            return false;
        }
        renamed.push((value, given.value));
    }
    let Some(gone) = found.gone(graph, &outputs, &renamed) else { return false };
    let node = Node::new(Action::Operator(operator), inputs, outputs.into_iter().map(Output::Value).collect());
    if graph.replace(&gone, node).is_none() {
        return false;
    }
    renamed.into_iter().for_each(|(old, new)| graph.rename(old, new));
    true
}

/// The nodes that are a definition's steps.
struct Found<'a> {
    definition: &'a Definition,
    inputs: &'a [Option<Operand>],
    /// The node of each step.
    steps: HashMap<usize, usize>,
    nodes: BTreeSet<usize>,
}

impl<'a> Found<'a> {
    fn new(graph: &Graph, definition: &'a Definition, inputs: &'a [Option<Operand>], outputs: &[Value]) -> Option<Self> {
        let mut found = Found { definition, inputs, steps: HashMap::new(), nodes: BTreeSet::new() };
        if definition.outputs.len() != outputs.len() {
            return None;
        }
        for (output, value) in definition.outputs.iter().zip(outputs) {
            let Source::Step(step, index) = output.source else { return None };
            let (node, place) = graph.producer(*value)?;
            if place != index || !found.is_step(graph, step, node) {
                return None;
            }
        }
        // What changes memory has no output by which it could be found.
        for step in 0..definition.steps.len() {
            if !found.steps.contains_key(&step) {
                let free = |node: &usize| !found.nodes.contains(node) && graph.nodes[*node].operator_is_like(&*definition.steps[step].operator);
                let candidates: Vec<_> = (0..graph.nodes.len()).filter(free).collect();
                candidates.into_iter().find(|&node| found.is_step(graph, step, node))?;
            }
        }
        let in_order = |a: usize, b: usize| {
            let (first, second) = (found.steps[&a], found.steps[&b]);
            first < second || !graph.nodes[first].depends_on(&graph.nodes[second])
        };
        let count = definition.steps.len();
        (0..count).all(|b| (0..b).all(|a| in_order(a, b))).then_some(found)
    }

    /// Whether the node is the step; if so, it and those before it are remembered.
    fn is_step(&mut self, graph: &Graph, step: usize, node: usize) -> bool {
        if let Some(&known) = self.steps.get(&step) {
            return known == node;
        }
        let (wanted, found) = (&self.definition.steps[step], &graph.nodes[node]);
        let Action::Operator(operator) = &found.action else { return false };
        let is_like = wanted.inputs.len() >= found.inputs.len() && found.operator_is_like(&*wanted.operator);
        let before = (self.steps.clone(), self.nodes.clone());
        let mut operands = wanted.inputs.iter().enumerate().map(|(index, operand)| (*operand, found.input(index)));
        let fits = is_like
            && operands.all(|operands| match operands {
                (None, None) => true,
                (Some(wanted), Some(found)) => self.is_operand(graph, wanted, found),
                (Some(_), None) | (None, Some(_)) => false,
            })
            && (wanted.operator.is_same(&**operator)
                || operator.precision().is_fast() && operator.strict().is_some_and(|strict| wanted.operator.is_same(&*strict)));
        if fits {
            self.steps.insert(step, node);
            self.nodes.insert(node);
        } else {
            (self.steps, self.nodes) = before;
        }
        fits
    }

    fn is_operand(&mut self, graph: &Graph, wanted: elinvar_kernels::Operand, found: Operand) -> bool {
        if wanted.info.dtype != found.info.dtype {
            return false;
        }
        match wanted.source {
            Source::Input(input) => {
                let Some(given) = self.inputs[input] else { return false };
                let start = given.info.layout.span().start;
                given.value == found.value && are_alike(&wanted.info.layout, start, &found.info.layout)
            }
            Source::Step(step, output) => {
                let is_view = are_alike(&wanted.info.layout, 0, &found.info.layout);
                is_view && graph.producer(found.value).is_some_and(|(node, place)| place == output && self.is_step(graph, step, node))
            }
        }
    }

    /// The value that a source of the definition is.
    fn value(&self, graph: &Graph, source: Source) -> Option<Value> {
        match source {
            Source::Input(input) => self.inputs[input].map(|operand| operand.value),
            Source::Step(step, output) => match graph.nodes[*self.steps.get(&step)?].outputs.get(output)? {
                Output::Value(value) => Some(*value),
                Output::Into(_) => None,
            },
        }
    }

    /// Those of the nodes that need not stay: all but those whose results others take, if the rest holds all that changes memory.
    fn gone(&self, graph: &Graph, outputs: &[Value], renamed: &[(Value, Value)]) -> Option<BTreeSet<usize>> {
        let mut gone = self.nodes.clone();
        for &node in self.nodes.iter().rev() {
            let is_given = |value: &Value| outputs.contains(value) || renamed.iter().any(|(old, _)| old == value);
            let is_free = |value: Value| is_given(&value) || !graph.wanted[value] && graph.users(value).all(|user| gone.contains(&user));
            if !graph.nodes[node].results().all(is_free) {
                gone.remove(&node);
                if graph.nodes[node].changes().next().is_some() {
                    return None;
                }
            }
        }
        outputs
            .iter()
            .chain(renamed.iter().map(|(old, _)| old))
            .all(|value| graph.producer(*value).is_some_and(|(node, _)| gone.contains(&node)))
            .then_some(gone)
    }
}

impl Node {
    /// Whether its operator is of the other's type.
    fn operator_is_like(&self, other: &dyn Operator) -> bool {
        match &self.action {
            Action::Operator(operator) => operator.is_like(other),
            Action::Dispatch { .. } => false,
        }
    }
}

/// Whether both are the same elements, those of the first `start` further on. The strides of axes of one element say nothing.
fn are_alike(a: &Layout, start: usize, b: &Layout) -> bool {
    let strides = a.strides().iter().zip(b.strides()).zip(a.shape().iter());
    a.shape() == b.shape() && a.offset() + start == b.offset() && strides.into_iter().all(|((a, b), &extent)| extent == 1 || a == b)
}
