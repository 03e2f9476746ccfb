//! What several products round first is rounded once, what a group gathers for them before it is gathered, and what alone takes a result rounded has it so
//! from the operator that makes it.

use std::{collections::BTreeSet, sync::Arc};

use elinvar_core::{DType, DeviceProperties, Result};
use elinvar_kernels::{Operator, Rounding, TensorInfo, cast::Cast, collective::AllGather};

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
        let is_inserted = alike(graph, index, device)?.map_or(Ok(false), |alike| round(graph, alike, device))?;
        index += 1 + usize::from(is_inserted);
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

/// Rounds once for all of them, if that is less work; says whether a node was put in.
fn round(graph: &mut Graph, Alike { operand, to, takers }: Alike, device: &DeviceProperties) -> Result<bool> {
    let are_all = !graph.wanted[operand.value] && graph.users(operand.value).eq(takers.iter().map(|(user, _)| *user));
    let gathered = graph.producer(operand.value).filter(|_| are_all).and_then(|(node, _)| {
        let gathering = &graph.nodes[node];
        Some((node, *gathering.operator::<AllGather>()?, gathering.input(0)?))
    });
    let is_given = are_all && maker(graph, operand, to, device)?.is_some();
    let cast = Arc::new(Cast { to });
    let rounded = match (gathered, &*takers) {
        (Some((node, gather, part)), _) => {
            let value = graph.insert(node, cast, vec![Some(part)]);
            graph.change(node + 1, Arc::new(gather), vec![Some(Operand { value, info: TensorInfo::of(to, *part.info.shape()) })]);
            Operand { info: TensorInfo { dtype: to, ..operand.info }, ..operand }
        }
        (None, [(first, _), others @ ..]) if is_given || !others.is_empty() => {
            let value = graph.insert(*first, cast, vec![Some(operand)]);
            Operand { value, info: TensorInfo::of(to, *operand.info.shape()) }
        }
        (None, _) => return Ok(false),
    };
    for (user, Rounding { input, operator, .. }) in takers {
        let mut inputs = graph.nodes[user + 1].inputs.clone();
        inputs[input] = Some(rounded);
        graph.change(user + 1, operator, inputs);
    }
    Ok(true)
}
