//! Chains of operators on elements as one kernel: see `docs/graph.md`.
//!
//! A [`region`] of the graph becomes one Atlas program ([`emit`]) over the [`space`] of its operands.

mod emit;
mod region;
mod space;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use elinvar_atlas::{LaunchConfig, Limits};
use elinvar_core::Result;

use super::{
    node::{Graph, Node},
    value::Action,
};
use crate::{executor::Executor, programs::Prepared};
use region::{Expression, Region};

/// Programs that are kept for a device.
const MAX_PROGRAMS: usize = 1024;

/// The programs made for a device, by their structure.
#[derive(Default)]
struct Programs(Mutex<HashMap<String, Prepared>>);

/// Makes one program of operators on elements that follow each other: these, in the order in which they run.
///
/// # Errors
/// A program that does not compile.
pub(super) fn fuse(graph: &mut Graph, executor: &Executor) -> Result<Vec<Prepared>> {
    let mut programs = Vec::new();
    // The last first: what it takes along, and is wanted, becomes another output of the same kernel.
    let mut end = graph.nodes.len();
    while end > 0 {
        end -= 1;
        let Some(region) = Region::grow(graph, end).filter(|region| region.nodes.len() > 1) else { continue };
        let Some(expression) = region.expression(graph) else { continue };
        let Some((action, prepared)) = action(&expression, executor)? else { continue };
        let (inputs, outputs) = expression.ports();
        if let Some(places) = graph.replace(&region.nodes, Node::new(action, inputs, outputs)) {
            end = places.end;
            programs.push(prepared);
        }
    }
    programs.reverse();
    Ok(programs)
}

/// The program of an expression, launched; none if it has more parameters than programs may have.
fn action(expression: &Expression, executor: &Executor) -> Result<Option<(Action, Prepared)>> {
    let infos: Vec<_> = expression.leaves.iter().map(|leaf| leaf.seen()).collect();
    let space = space::Space::new(expression.shape, &infos)?;
    let Some(plan) = emit::Plan::new(expression, &space, executor.properties().has_simdgroups()) else { return Ok(None) };
    // The library's own programs stay in their buffers and end.
    let trusted = Limits { steps: None, unchecked: true, ..Limits::default() };
    let prepared = programs(executor, &plan.key, || executor.prepare_program(plan.program(expression, &space)?, &trusted, plan.registers()))?;
    let outputs = expression.outputs.iter().map(|(step, _)| expression.steps[*step].info).collect();
    let (executor, elements, launched) = (executor.with_recorder(None), expression.shape.elements(), prepared.clone());
    let make = move |bindings| {
        if elements == 0 {
            return Ok(None);
        }
        let launch = LaunchConfig::new(plan.grid, plan.block);
        launched.dispatch(&executor, &launch, bindings, |_| 0, |parameter| plan.scalar(parameter)).map(Some)
    };
    let action = Action::Dispatch { writes: vec![false; expression.leaves.len()].into(), outputs, make: Arc::new(make) };
    Ok(Some((action, prepared)))
}

fn programs(executor: &Executor, key: &str, make: impl FnOnce() -> Result<Prepared>) -> Result<Prepared> {
    let known = executor.device.cached::<Programs>();
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
