//! Expressions of tensors.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
    thread::ThreadId,
};

use elinvar_core::{DType, Layout, Result, Shape};
use elinvar_kernels::{Operator, Scalar, TensorInfo, binary::BinaryOp, compare::CompareOp, unary::UnaryOp};

use super::{MAX_LEAVES, MAX_OPERATORS};
use crate::{Executor, Tensor, tensor::TensorMemory};

/// Outputs of one program.
const MAX_OUTPUTS: usize = 4;

/// An operator on elements, as far as programs have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    Unary(UnaryOp),
    Binary(BinaryOp),
    WithScalar(BinaryOp, f32),
    Fma,
    Clamp(Scalar, Scalar),
    Select,
    Compare(CompareOp),
    Cast(DType),
}

impl Op {
    /// Whether a program can compute it of operands of these types, which the operator takes.
    pub(super) fn fuses(&self, dtypes: &[DType]) -> bool {
        match self {
            Op::Binary(op) => dtypes.iter().all(|dtype| *dtype == dtypes[0]) && op.takes(dtypes[0]),
            Op::Compare(op) => dtypes[0] != DType::Bool || matches!(op, CompareOp::Eq | CompareOp::Ne),
            Op::Unary(_) | Op::WithScalar(..) | Op::Fma | Op::Clamp(..) | Op::Select | Op::Cast(_) => true,
        }
    }
}

/// The result of an operator that has not been launched.
pub(crate) struct Node {
    pub(super) op: Op,
    pub(super) operator: Box<dyn Operator>,
    pub(super) inputs: Vec<Input>,
    pub(super) executor: Executor,
    pub(super) info: TensorInfo,
    /// Who put it off: nobody else knows where in a recording it belongs.
    pub(super) thread: ThreadId,
    /// The memory that is to have it.
    memory: OnceLock<Weak<TensorMemory>>,
    operators: usize,
    leaves: usize,
}

/// What an operator takes.
#[derive(Clone)]
pub(super) enum Input {
    Node(Arc<Node>),
    Tensor(Tensor),
}

impl Input {
    pub(super) fn of(tensor: &Tensor) -> Self {
        match tensor.pending_node() {
            Some(node) => Input::Node(node),
            None => Input::Tensor(tensor.clone()),
        }
    }

    pub(super) fn operators(&self) -> usize {
        if let Input::Node(node) = self { node.operators } else { 0 }
    }

    pub(super) fn leaves(&self) -> usize {
        if let Input::Node(node) = self { node.leaves } else { 1 }
    }
}

impl Node {
    pub(super) fn new(op: Op, operator: Box<dyn Operator>, inputs: Vec<Input>, executor: &Executor, info: TensorInfo) -> Arc<Self> {
        let operators = inputs.iter().map(Input::operators).sum::<usize>() + 1;
        let leaves = inputs.iter().map(Input::leaves).sum();
        let (executor, thread, memory) = (executor.clone(), std::thread::current().id(), OnceLock::new());
        Arc::new(Self { op, operator, inputs, executor, info, thread, memory, operators, leaves })
    }

    /// Its elements are row-major.
    pub(crate) fn layout(&self) -> Layout {
        self.info.layout
    }

    pub(crate) fn remember(&self, memory: &Arc<TensorMemory>) {
        let _ = self.memory.set(Arc::downgrade(memory));
    }

    /// The memory that is to have it, or has it, if a tensor still holds that.
    fn alive(&self) -> Option<Arc<TensorMemory>> {
        self.memory.get().and_then(Weak::upgrade)
    }
}

/// Where a step finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum From {
    Leaf(usize),
    Step(usize),
}

pub(super) struct Step {
    pub(super) node: Arc<Node>,
    pub(super) from: Vec<From>,
}

/// What becomes one program: steps in order, all of one shape but for broadcasting.
pub(super) struct Graph {
    pub(super) shape: Shape,
    pub(super) leaves: Vec<Tensor>,
    pub(super) steps: Vec<Step>,
    /// Steps whose results are stored, and where.
    pub(super) outputs: Vec<(usize, Arc<TensorMemory>)>,
    known: HashMap<*const Node, From>,
}

impl Graph {
    /// What gives `memory` its elements.
    pub(super) fn of(memory: &Arc<TensorMemory>, node: &Arc<Node>) -> Result<Self> {
        let mut graph = Graph { shape: *node.info.shape(), leaves: Vec::new(), steps: Vec::new(), outputs: Vec::new(), known: HashMap::new() };
        graph.visit(node, Some(memory))?;
        Ok(graph)
    }

    /// Takes another root along, if it is of this shape and has an operand in common.
    pub(super) fn join(&mut self, memory: &Arc<TensorMemory>, node: &Arc<Node>) -> bool {
        if let Some(From::Step(place)) = self.known.get(&Arc::as_ptr(node)).copied() {
            let is_output = self.outputs.iter().any(|(_, output)| Arc::ptr_eq(output, memory));
            if !is_output && self.outputs.len() < MAX_OUTPUTS {
                self.outputs.push((place, memory.clone()));
                return true;
            }
            return is_output;
        }
        let fits = *node.info.shape() == self.shape && self.outputs.len() < MAX_OUTPUTS && self.steps.len() + node.operators <= MAX_OPERATORS;
        if !fits {
            return false;
        }
        let Ok(other) = Graph::of(memory, node) else { return false };
        let is_shared = |leaf: &Tensor| self.leaves.iter().any(|own| own.same_memory(leaf));
        let more = other.leaves.iter().filter(|leaf| !self.has_leaf(leaf)).count();
        let joins =
            other.leaves.iter().any(is_shared) && self.leaves.len() + more <= MAX_LEAVES && self.outputs.len() + other.outputs.len() <= MAX_OUTPUTS;
        joins && self.visit(node, Some(memory)).is_ok()
    }

    fn has_leaf(&self, leaf: &Tensor) -> bool {
        self.leaves.iter().any(|own| own.same_elements(leaf))
    }

    fn leaf(&mut self, tensor: &Tensor) -> From {
        let place = self.leaves.iter().position(|own| own.same_elements(tensor));
        From::Leaf(place.unwrap_or_else(|| {
            self.leaves.push(tensor.clone());
            self.leaves.len() - 1
        }))
    }

    fn visit(&mut self, node: &Arc<Node>, target: Option<&Arc<TensorMemory>>) -> Result<From> {
        if let Some(&known) = self.known.get(&Arc::as_ptr(node)) {
            return Ok(known);
        }
        let alive = node.alive().filter(|_| target.is_none());
        if let Some(memory) = &alive
            && (memory.has_buffer() || *node.info.shape() != self.shape)
        {
            // What somebody holds is computed once.
            super::force(memory)?;
            let from = self.leaf(&Tensor::new(&node.executor, memory.clone(), node.info.dtype, node.info.layout));
            self.known.insert(Arc::as_ptr(node), from);
            return Ok(from);
        }
        let mut from = Vec::new();
        for input in &node.inputs {
            from.push(match input {
                Input::Tensor(tensor) => self.leaf(tensor),
                Input::Node(node) => self.visit(node, None)?,
            });
        }
        let place = self.steps.len();
        self.steps.push(Step { node: node.clone(), from });
        if let Some(memory) = target.cloned().or(alive.filter(|_| self.outputs.len() < MAX_OUTPUTS - 1)) {
            self.outputs.push((place, memory));
        }
        self.known.insert(Arc::as_ptr(node), From::Step(place));
        Ok(From::Step(place))
    }

    /// An operand, given the results of the steps before.
    pub(super) fn operand(&self, from: From, results: &[Tensor]) -> Tensor {
        match from {
            From::Leaf(leaf) => self.leaves[leaf].clone(),
            From::Step(step) => results[step].clone(),
        }
    }
}
