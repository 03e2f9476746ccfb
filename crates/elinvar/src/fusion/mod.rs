//! Chains of operators on elements as one kernel: see `docs/fusion.md`.
//!
//! While a thread records, or runs the body of [`Executor::fuse`], such operators defer their work: their tensors hold an expression
//! ([`graph::Node`]) in place of memory. What needs the elements makes one Atlas program of the expression ([`emit`]) and launches it.

mod emit;
mod graph;
mod space;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use elinvar_atlas::{LaunchConfig, Limits};
use elinvar_core::{Error, Layout, Result};
use elinvar_kernels::{Operator, TensorInfo};

pub(crate) use graph::{Node, Op};

use crate::{Executor, Tensor, programs::Prepared, tensor::TensorMemory};
use graph::{Graph, Input};

/// Operators of one expression.
const MAX_OPERATORS: usize = 48;
/// Operands of one expression.
const MAX_LEAVES: usize = 8;
/// Elements of one launch, and of memory up to the last that an operand has: what programs count them in has 32 bits.
const MAX_ELEMENTS: usize = 1 << 31;
/// Programs that are kept for a device.
const MAX_PROGRAMS: usize = 1024;

/// The programs made for a device, by their structure.
#[derive(Default)]
struct Programs(Mutex<HashMap<String, Prepared>>);

thread_local! {
    /// How many recordings and calls of [`Executor::fuse`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What was deferred.
    static PENDING: RefCell<Vec<Weak<TensorMemory>>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, this thread defers work.
pub(crate) struct Scope;

impl Scope {
    pub(crate) fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            PENDING.take();
        }
    }
}

impl Executor {
    /// Runs chains of operators on elements (arithmetic, functions, comparisons, casts, `select`, `clamp`) in `body` as one kernel each: what lies
    /// between is not written to memory. The bits are those of the operators one by one. Inside [`Executor::record`] this is so anyway.
    ///
    /// ```
    /// use elinvar::Executor;
    ///
    /// let executor = Executor::new_auto()?;
    /// let a = executor.tensor(&[3], &[-2f32, 0.5, 4.0])?;
    /// let b = executor.tensor(&[3], &[1f32, 2.0, 3.0])?;
    /// let chain = || a.silu()?.mul(&b)?.add(&a)?.clamp(-1.0, 1.0);
    /// assert_eq!(executor.fuse(chain)?.to_vec::<f32>()?, chain()?.to_vec::<f32>()?);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body` and of the launches.
    pub fn fuse<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let scope = Scope::enter();
        let value = body()?;
        flush()?;
        drop(scope);
        Ok(value)
    }
}

/// The result of an operator on elements, deferred if this thread does that and the operator can be part of a program.
///
/// `None`: it is to be launched by itself.
pub(crate) fn defer<O: Operator + Clone + 'static>(op: Op, operator: &O, inputs: &[&Tensor]) -> Result<Option<Tensor>> {
    let Some(first) = inputs.first().filter(|_| DEPTH.get() > 0) else { return Ok(None) };
    let executor = first.executor();
    if inputs.iter().any(|t| !t.executor().device.same(&executor.device)) {
        return Ok(None);
    }
    let infos: Vec<_> = inputs.iter().map(|t| Some(t.info())).collect();
    let [info] = operator.infer(&infos)?[..] else { return Ok(None) };
    let dtypes: Vec<_> = inputs.iter().map(|t| t.dtype()).collect();
    let reaches = inputs.iter().map(|t| t.layout().span().end);
    if !op.fuses(&dtypes) || reaches.chain([info.shape().elements()]).any(|elements| elements > MAX_ELEMENTS) {
        return Ok(None);
    }
    let mut taken: Vec<_> = inputs.iter().map(|t| Input::of(t)).collect();
    // An expression that would be too large takes the results of its parts.
    while taken.iter().map(Input::operators).sum::<usize>() >= MAX_OPERATORS || taken.iter().map(Input::leaves).sum::<usize>() > MAX_LEAVES {
        let Some(largest) = (0..taken.len()).max_by_key(|&i| taken[i].operators()).filter(|&i| taken[i].operators() > 0) else { return Ok(None) };
        inputs[largest].binding()?;
        taken[largest] = Input::of(inputs[largest]);
    }
    let node = Node::new(op, Box::new(operator.clone()), taken, executor, info);
    let memory = TensorMemory::pending(&node);
    PENDING.with_borrow_mut(|pending| {
        pending.retain(|memory| memory.strong_count() > 0);
        pending.push(Arc::downgrade(&memory));
    });
    Ok(Some(Tensor::new(executor, memory, info.dtype, Layout::contiguous(*info.shape()))))
}

/// Does what this thread has deferred and somebody still holds: before memory changes that it may read, and at the end.
pub(crate) fn flush() -> Result<()> {
    let pending = PENDING.take();
    // The last first: what it takes on its way, and is held, becomes another output of the same kernel.
    let mut roots: Vec<_> = pending.iter().filter_map(Weak::upgrade).filter_map(|memory| memory.node().map(|node| (memory, node))).rev().collect();
    while !roots.is_empty() {
        let (memory, node) = roots.remove(0);
        if !memory.has_buffer() {
            let mut graph = Graph::of(&memory, &node)?;
            roots.retain(|(other, node)| other.has_buffer() || !graph.join(other, node));
            run(&node.executor, graph)?;
        }
    }
    Ok(())
}

/// Does what `memory` was deferred for.
pub(crate) fn force(memory: &Arc<TensorMemory>) -> Result<()> {
    match memory.node() {
        None => Ok(()),
        Some(node) if node.thread == std::thread::current().id() => run(&node.executor, Graph::of(memory, &node)?),
        Some(_) => Err(Error::invalid_argument("the tensor is part of what another thread records or fuses: use it when that is done")),
    }
}

/// Launches a graph: the operator itself if there is one only, else one program.
fn run(executor: &Executor, graph: Graph) -> Result<()> {
    let targets: Vec<_> = graph.outputs.iter().map(|(_, memory)| memory.clone()).collect();
    if let [op] = &graph.steps[..] {
        let inputs: Vec<_> = op.from.iter().map(|from| Some(graph.operand(*from, &[]))).collect();
        return executor.launch(&*op.node.operator, &inputs, |_| false, Some(targets)).map(drop);
    }
    let elements = graph.shape.elements();
    let bindings = graph.leaves.iter().map(Tensor::binding).collect::<Result<Vec<_>>>()?;
    let infos: Vec<_> = graph.leaves.iter().map(Tensor::info).collect();
    let space = space::Space::new(graph.shape, &infos)?;
    let threads = executor.properties().has_simdgroups();
    let Some(plan) = emit::Plan::new(&graph, &space, threads) else { return one_by_one(executor, &graph) };
    let mut all: Vec<_> = bindings.into_iter().map(Some).collect();
    for (index, memory) in &graph.outputs {
        let info = graph.steps[*index].node.info;
        let bytes = info.dtype.bytes(info.shape().elements()).ok_or_else(|| Error::invalid_argument("a tensor is too large to address"))?;
        all.push(Some(executor.allocate_for(memory, bytes)?.bind(0, bytes)?));
    }
    let made: Vec<_> = all[graph.leaves.len()..].iter().flatten().map(|binding| binding.buffer().clone()).collect();
    let give = || graph.outputs.iter().zip(&made).for_each(|((_, memory), buffer)| memory.set(buffer.clone()));
    if elements == 0 {
        give();
        return Ok(());
    }
    // The library's own programs stay in their buffers and end.
    let trusted = Limits { steps: None, unchecked: true, ..Limits::default() };
    let prepared = programs(executor, &plan.key, || executor.prepare_program(plan.program(&graph, &space)?, &trusted, plan.registers()))?;
    let launch = LaunchConfig::new(plan.grid, plan.block);
    prepared.dispatch(executor, &launch, all, |_| 0, |parameter| plan.scalar(parameter))?;
    give();
    Ok(())
}

/// Launches the operators of a graph that no program can hold.
fn one_by_one(executor: &Executor, graph: &Graph) -> Result<()> {
    let mut results: Vec<Tensor> = Vec::new();
    for (index, step) in graph.steps.iter().enumerate() {
        let inputs = step.from.iter().map(|from| Some(graph.operand(*from, &results))).collect::<Vec<_>>();
        let memory = graph.outputs.iter().find(|(output, _)| *output == index).map_or_else(TensorMemory::empty, |(_, memory)| memory.clone());
        let TensorInfo { dtype, layout } = step.node.info;
        executor.launch(&*step.node.operator, &inputs, |_| false, Some(vec![memory.clone()]))?;
        results.push(Tensor::new(executor, memory, dtype, layout));
    }
    Ok(())
}

fn programs(executor: &Executor, key: &str, make: impl FnOnce() -> Result<Prepared>) -> Result<Prepared> {
    let known = executor.device.kept::<Programs>();
    let lock = || known.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(key) {
        return Ok(known.clone());
    }
    let made = make()?;
    let mut kept = lock();
    if kept.len() >= MAX_PROGRAMS {
        kept.clear();
    }
    kept.insert(key.to_owned(), made.clone());
    Ok(made)
}
