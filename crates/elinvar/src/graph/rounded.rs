//! What several products round first is rounded once, what is gathered or joined for them before it is, and what alone takes a result rounded has it so from
//! the operator that makes it.

use std::{collections::BTreeSet, sync::Arc};

use elinvar_core::{DType, DeviceProperties, Result};
use elinvar_kernels::{Operator, Rounding, TensorInfo, cast::Cast, collective::AllGather, copy::Concat};

use super::{
    node::{Graph, Node},
    value::{Action, Operand, Output},
};

/// Rounds operands of products for a device.
///
/// # Errors
/// An operator that rejects what was recorded.
pub(super) fn share(graph: &mut Graph, device: &DeviceProperties) -> Result<()> {
    let mut index = 0;
    while index < graph.nodes.len() {
        index += 1 + alike(graph, index, device)?.map_or(Ok(0), |alike| round(graph, alike, device))?;
    }
    for index in (0..graph.nodes.len()).rev() {
        give(graph, index, device)?;
    }
    Ok(())
}

/// Has an operator give its result as the cast at `index`, which alone takes it, rounds it.
fn give(graph: &mut Graph, index: usize, device: &DeviceProperties) -> Result<()> {
    let Some(&Cast { to }) = graph.nodes.get(index).and_then(Node::operator) else { return Ok(()) };
    let (Some(operand), Some(result)) = (graph.nodes[index].input(0), graph.nodes[index].result()) else { return Ok(()) };
    if let Some((maker, operator)) = maker(graph, operand, to, device)?.filter(|_| graph.is_only_for(operand.value, index)) {
        let node = Node::new(Action::Operator(operator), graph.nodes[maker].inputs.clone(), vec![Output::Value(result)]);
        graph.replace(&BTreeSet::from([maker, index]), node);
    }
    Ok(())
}

/// The node whose whole result an operand is, and the operator that gives it rounded.
fn maker(graph: &Graph, operand: Operand, to: DType, device: &DeviceProperties) -> Result<Option<(usize, Arc<dyn Operator>)>> {
    let narrows = operand.info.dtype == DType::F32 && to.is_float() && to != DType::F32;
    let Some((index, _)) = graph.producer(operand.value).filter(|_| narrows) else { return Ok(None) };
    let node = &graph.nodes[index];
    let (Action::Operator(operator), Some(_)) = (&node.action, node.result()) else { return Ok(None) };
    let infos: Vec<_> = node.inputs.iter().map(|operand| operand.map(|operand| operand.seen())).collect();
    let is_whole = operator.infer(&infos)?[0].elements() == operand.info.elements() && operand.info.layout.is_contiguous();
    Ok(if is_whole { operator.rounded(to, &infos, device)?.map(|operator| (index, operator)) } else { None })
}

fn rounding(graph: &Graph, index: usize, device: &DeviceProperties) -> Result<Option<(Operand, Rounding)>> {
    let node = &graph.nodes[index];
    let Action::Operator(operator) = &node.action else { return Ok(None) };
    let infos: Vec<_> = node.inputs.iter().map(|operand| operand.map(|operand| operand.seen())).collect();
    let found = operator.rounds(&infos, device)?;
    Ok(found.and_then(|rounding| Some((node.input(rounding.input)?, rounding))))
}

/// An operand, what it becomes, and the nodes that round it so, from the first one on.
struct Alike {
    operand: Operand,
    to: DType,
    takers: Vec<(usize, Rounding)>,
}

/// What the node rounds, and the later nodes that do too.
fn alike(graph: &Graph, index: usize, device: &DeviceProperties) -> Result<Option<Alike>> {
    let Some((operand, first)) = rounding(graph, index, device)? else { return Ok(None) };
    if graph.nodes.iter().flat_map(|node| node.changes()).any(|value| value == operand.value) {
        return Ok(None);
    }
    let to = first.to;
    let mut takers = vec![(index, first)];
    for user in graph.users(operand.value).filter(|user| *user > index) {
        let is_like = |(other, rounding): &(Operand, Rounding)| (*other, rounding.to) == (operand, to);
        takers.extend(rounding(graph, user, device)?.filter(is_like).map(|(_, rounding)| (user, rounding)));
    }
    Ok(Some(Alike { operand, to, takers }))
}

/// A node that moves the elements of its inputs as they are.
struct Move {
    node: usize,
    operator: Arc<dyn Operator>,
    parts: Vec<Operand>,
}

/// What moves an operand's elements, if rounding what that takes is no more work: a group gathers a part, or parts that can be made rounded are joined.
fn moved(graph: &Graph, operand: Operand, to: DType, device: &DeviceProperties) -> Result<Option<Move>> {
    let Some((index, _)) = graph.producer(operand.value) else { return Ok(None) };
    let node = &graph.nodes[index];
    let (Action::Operator(operator), Some(parts)) = (&node.action, node.inputs.iter().copied().collect::<Option<Vec<_>>>()) else { return Ok(None) };
    let mut is_less = node.operator::<AllGather>().is_some();
    if node.operator::<Concat>().is_some() {
        let are_made = parts.iter().map(|part| Ok(graph.is_only_for(part.value, index) && maker(graph, *part, to, device)?.is_some()));
        is_less = are_made.collect::<Result<Vec<_>>>()?.into_iter().all(|is_made| is_made);
    }
    Ok(is_less.then(|| Move { node: index, operator: operator.clone(), parts }))
}

/// Rounds once for all of them, if that is less work; says how many nodes were put in.
fn round(graph: &mut Graph, Alike { operand, to, takers }: Alike, device: &DeviceProperties) -> Result<usize> {
    let are_all = !graph.wanted[operand.value] && graph.users(operand.value).eq(takers.iter().map(|(user, _)| *user));
    let moved = if are_all { moved(graph, operand, to, device)? } else { None };
    let is_given = are_all && maker(graph, operand, to, device)?.is_some();
    let cast = Arc::new(Cast { to });
    let rounds = |value, part: &Operand| Operand { value, info: TensorInfo::of(to, *part.info.shape()) };
    let (rounded, inserted) = match (moved, &*takers) {
        (Some(Move { node, operator, parts }), _) => {
            let casts = parts.iter().enumerate();
            let inputs = casts.map(|(at, part)| Some(rounds(graph.insert(node + at, cast.clone(), vec![Some(*part)]), part))).collect();
            graph.change(node + parts.len(), operator, inputs);
            (Operand { info: TensorInfo { dtype: to, ..operand.info }, ..operand }, parts.len())
        }
        (None, [(first, _), others @ ..]) if is_given || !others.is_empty() => (rounds(graph.insert(*first, cast, vec![Some(operand)]), &operand), 1),
        (None, _) => return Ok(0),
    };
    for (user, Rounding { input, operator, .. }) in takers {
        let mut inputs = graph.nodes[user + inserted].inputs.clone();
        inputs[input] = Some(rounded);
        graph.change(user + inserted, operator, inputs);
    }
    Ok(inserted)
}
