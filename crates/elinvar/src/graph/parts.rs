//! A rank's own part of what its group has gathered is what the rank gave.

use elinvar_kernels::collective::{AllGather, OwnPart};

use super::{
    node::Graph,
    value::{Operand, Value},
};

/// Takes what a rank gave in place of its own part of what was gathered.
pub(super) fn forward(graph: &mut Graph) {
    let mut index = 0;
    while index < graph.nodes.len() {
        match given(graph, index) {
            Some([part, given]) => {
                graph.remove(index);
                graph.rename(part, given);
            }
            None => index += 1,
        }
    }
}

/// If the node takes ranks' own parts of what they gave: its result, and what they gave.
fn given(graph: &Graph, index: usize) -> Option<[Value; 2]> {
    let node = &graph.nodes[index];
    node.operator::<OwnPart>()?;
    let (whole, part) = (node.input(0)?, node.result()?);
    let gathering = &graph.nodes[graph.producer(whole.value)?.0];
    let AllGather { ranks } = gathering.operator()?;
    let given = gathering.input(0)?;
    let is_row_major = |operand: &Operand| operand.info.layout.is_contiguous() && operand.info.layout.span().start == 0;
    let width = |operand: &Operand| operand.info.shape().last().copied();
    let has_rows = whole.info.elements() == ranks * given.info.elements() && width(&whole) == width(&given).map(|width| ranks * width);
    let is_changed = graph.nodes.iter().flat_map(|node| node.changes()).any(|value| [whole.value, part, given.value].contains(&value));
    (is_row_major(&whole) && is_row_major(&given) && has_rows && !is_changed && !graph.wanted[part]).then_some([part, given.value])
}
