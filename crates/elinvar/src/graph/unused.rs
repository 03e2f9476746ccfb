//! What is not needed is not computed again.

use std::collections::HashSet;

use super::{
    node::Graph,
    value::{Action, Value},
};

/// Takes out the operators whose results nothing reads or holds because others stand in their place, and those before them that no other needs.
pub(super) fn remove(graph: &mut Graph, replaced: &HashSet<Value>) {
    let mut unread: HashSet<_> = replaced.iter().copied().filter(|value| !graph.wanted[*value] && graph.users(*value).next().is_none()).collect();
    if unread.is_empty() {
        return;
    }
    let mut readers: Vec<_> = (0..graph.wanted.len()).map(|value| graph.users(value).count()).collect();
    let wanted = graph.wanted.clone();
    graph.retain_from_last(|node| {
        let is_operator = matches!(node.action, Action::Operator(_)) && node.changes().next().is_none();
        if !is_operator || node.results().next().is_none() || !node.results().all(|value| unread.contains(&value)) {
            return true;
        }
        for value in node.operands().map(|operand| operand.value).collect::<HashSet<_>>() {
            readers[value] -= 1;
            if readers[value] == 0 && !wanted[value] {
                unread.insert(value);
            }
        }
        false
    });
}
