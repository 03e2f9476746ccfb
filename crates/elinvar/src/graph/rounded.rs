//! What several products round first is rounded once, and what a group gathers for them before it is gathered.

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Result};
use elinvar_kernels::{Operator, TensorInfo, cast::Cast, collective::AllGather};

use super::{
    node::Graph,
    value::{Action, Operand},
};

/// Rounds shared operands of products for a device.
///
/// # Errors
/// An operator that rejects what was recorded.
pub(super) fn share(graph: &mut Graph, device: &DeviceProperties) -> Result<()> {
    let mut index = 0;
    while index < graph.nodes.len() {
        let roundings = alike(graph, index, device)?;
        index += 1 + usize::from(round(graph, roundings));
    }
    Ok(())
}

/// An operand that a node's operator rounds.
struct Rounding {
    input: usize,
    operand: Operand,
    to: DType,
    /// What takes it rounded.
    operator: Arc<dyn Operator>,
}

fn rounding(graph: &Graph, index: usize, device: &DeviceProperties) -> Result<Option<Rounding>> {
    let node = &graph.nodes[index];
    let Action::Operator(operator) = &node.action else { return Ok(None) };
    let infos: Vec<_> = node.inputs.iter().map(|operand| operand.map(|operand| operand.seen())).collect();
    let found = operator.rounds(&infos, device)?;
    Ok(found.and_then(|(input, to, operator)| Some(Rounding { input, operand: node.input(input)?, to, operator })))
}

/// The node's rounding and those of later nodes that are the same.
fn alike(graph: &Graph, index: usize, device: &DeviceProperties) -> Result<Vec<(usize, Rounding)>> {
    let mut found: Vec<(usize, Rounding)> = rounding(graph, index, device)?.map(|rounding| (index, rounding)).into_iter().collect();
    let Some((_, Rounding { operand, to, .. })) = found.first() else { return Ok(found) };
    let (operand, to) = (*operand, *to);
    if graph.nodes.iter().flat_map(|node| node.changes()).any(|value| value == operand.value) {
        return Ok(Vec::new());
    }
    for user in graph.users(operand.value).filter(|user| *user > index) {
        found.extend(rounding(graph, user, device)?.filter(|other| (other.operand, other.to) == (operand, to)).map(|rounding| (user, rounding)));
    }
    Ok(found)
}

/// Rounds once for all of them, if that is less work; says whether a node was put in.
fn round(graph: &mut Graph, roundings: Vec<(usize, Rounding)>) -> bool {
    let Some(&(first, Rounding { operand, to, .. })) = roundings.first() else { return false };
    let takers: Vec<_> = roundings.iter().map(|(user, _)| *user).collect();
    let are_all = !graph.wanted[operand.value] && graph.users(operand.value).eq(takers);
    let gathered = graph.producer(operand.value).filter(|_| are_all).and_then(|(node, _)| {
        let gathering = &graph.nodes[node];
        Some((node, *gathering.operator::<AllGather>()?, gathering.input(0)?))
    });
    let cast = Arc::new(Cast { to });
    let rounded = if let Some((node, gather, part)) = gathered {
        let value = graph.insert(node, cast, vec![Some(part)]);
        graph.change(node + 1, Arc::new(gather), vec![Some(Operand { value, info: TensorInfo::of(to, *part.info.shape()) })]);
        Operand { info: TensorInfo { dtype: to, ..operand.info }, ..operand }
    } else if roundings.len() > 1 {
        let value = graph.insert(first, cast, vec![Some(operand)]);
        Operand { value, info: TensorInfo::of(to, *operand.info.shape()) }
    } else {
        return false;
    };
    for (user, Rounding { input, operator, .. }) in roundings {
        let mut inputs = graph.nodes[user + 1].inputs.clone();
        inputs[input] = Some(rounded);
        graph.change(user + 1, operator, inputs);
    }
    true
}
