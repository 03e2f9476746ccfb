//! Which lanes of a simdgroup come to an operation together, from the control flow before it. The simulator knows by waiting for them; a GPU has to be given
//! them, since lanes that took another way never come.
//!
//! Where a block branches, the lanes there agree which of them go on to a successor. Where ways meet again that parted at a block, its lanes are together
//! again. If ways meet that did not part at one block, those that come by different ones stay apart.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

use super::{
    instructions::{call, callee},
    intrinsics::Site,
    lower::Machine,
    types::{name_at, operands},
};

/// Lanes by the lines of a function's body, and what is added to find them.
#[derive(Default)]
pub(super) struct Lanes {
    /// Before the line of that index: a block's first.
    phis: HashMap<usize, String>,
    /// Before the line of that index: a block's last.
    votes: HashMap<usize, String>,
    /// The lanes at the line of that index.
    at: HashMap<usize, String>,
}

impl Lanes {
    /// What comes before a line.
    pub(super) fn before(&self, line: usize) -> impl Iterator<Item = &str> {
        [&self.phis, &self.votes].into_iter().filter_map(move |added| added.get(&line)).map(String::as_str)
    }

    /// Whether anything is added but joints.
    pub(super) fn are_voted(&self) -> bool {
        !self.votes.is_empty()
    }

    /// The lanes that come to a line for which they were asked.
    pub(super) fn at(&self, line: usize) -> Option<&str> {
        self.at.get(&line).map(String::as_str)
    }
}

/// The function that gives those of the lanes for which a condition holds.
pub(super) const VOTE: &str = "declare i32 @elv_air_lanes_that(i32, i1)";
/// All of a simdgroup.
pub(super) const ALL: &str = "-1";
/// The parameter of functions that are given the lanes that call them.
pub(super) const AMONG: &str = "%elv.among";

/// Whether a function is an operation for which a device asks the lanes.
pub(super) fn are_asked(name: &str, machine: &Machine<'_>) -> bool {
    Site::of(name.trim_matches(['@', '"']), machine) == Site::Lanes
}

/// The module's functions that call such operations, or such functions.
pub(super) fn together<'a>(module: &'a str, machine: &Machine<'_>) -> HashSet<&'a str> {
    let mut functions: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in module.lines() {
        if line.starts_with("define ") {
            functions.push((line.find('@').map_or("", |at| name_at(line, at)), Vec::new()));
        } else if let (Some(name), Some((_, calls))) = (called(line), functions.last_mut()) {
            calls.push(name);
        }
    }
    let mut found: HashSet<&str> = HashSet::new();
    loop {
        let asks = |name: &&str| found.contains(name) || are_asked(name, machine);
        let more: Vec<&str> =
            functions.iter().filter(|(name, calls)| !found.contains(name) && calls.iter().any(asks)).map(|(name, _)| *name).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// What a line calls.
fn called(line: &str) -> Option<&str> {
    let (_, start) = call(line)?;
    let (_, at) = callee(&line[start..])?;
    Some(name_at(line, start + at))
}

/// Finds the lanes at the calls of functions that `asks` names, in a function that has the lanes `all`; its first block is called `entry`.
pub(super) fn find(body: &[&str], entry: &str, all: &str, asks: impl Fn(&str) -> bool) -> Lanes {
    let asking: Vec<usize> = (0..body.len()).filter(|line| called(body[*line]).is_some_and(&asks)).collect();
    if asking.is_empty() {
        return Lanes::default();
    }
    let flow = Flow::of(body, entry);
    let Some(last) = flow.blocks.len().checked_sub(1) else { return Lanes::default() };
    let mut finder = Finder { masks: vec![None; flow.blocks.len()], flow, all: all.to_owned(), lanes: Lanes::default() };
    for line in asking {
        let block = finder.flow.blocks.partition_point(|block| block.last < line);
        let mask = finder.mask(block.min(last));
        finder.lanes.at.insert(line, mask);
    }
    finder.lanes
}

/// A basic block.
struct Block<'a> {
    /// As it is named in others: `%12`.
    name: &'a str,
    first: usize,
    /// The line that branches.
    last: usize,
    branch: Branch<'a>,
}

enum Branch<'a> {
    None,
    To(&'a str),
    If {
        condition: &'a str,
        then: &'a str,
        otherwise: &'a str,
    },
    /// Of values, the value that each of the other ways has.
    Switch {
        value: &'a str,
        default: &'a str,
        cases: Vec<(&'a str, &'a str)>,
    },
}

impl<'a> Branch<'a> {
    fn parse(lines: &[&'a str]) -> Self {
        let line = lines[0].split_once(", !").map_or(lines[0], |(line, _)| line).trim();
        let label = |text: &'a str| text.find("label ").map_or("", |at| name_at(text, at + "label ".len()));
        if let Some(rest) = line.strip_prefix("br ") {
            return match operands(rest).as_slice() {
                [condition, then, otherwise] => {
                    Branch::If { condition: condition.trim_start_matches("i1 "), then: label(then), otherwise: label(otherwise) }
                }
                _ => Branch::To(label(rest)),
            };
        }
        let Some(rest) = line.strip_prefix("switch ") else { return Branch::None };
        let value = rest.split(", ").next().unwrap_or_default();
        let cases = lines[1..].iter().take_while(|line| line.trim() != "]" && !line.trim().starts_with("], ")).filter_map(|line| {
            let (value, _) = line.trim().split_once(", ")?;
            Some((value.split(' ').next_back()?, label(line)))
        });
        Branch::Switch { value, default: label(rest), cases: cases.collect() }
    }

    /// One for each way.
    fn targets(&self) -> Vec<&'a str> {
        match self {
            Branch::None => Vec::new(),
            Branch::To(target) => vec![target],
            Branch::If { then, otherwise, .. } => vec![then, otherwise],
            Branch::Switch { default, cases, .. } => [*default].into_iter().chain(cases.iter().map(|(_, target)| *target)).collect(),
        }
    }
}

struct Flow<'a> {
    blocks: Vec<Block<'a>>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// The nearest block that every way to this one leads through.
    dominators: Vec<Option<usize>>,
    /// The nearest that every way from this one leads through; the end of the function comes after the blocks.
    postdominators: Vec<Option<usize>>,
}

impl<'a> Flow<'a> {
    fn of(body: &[&'a str], entry: &'a str) -> Self {
        let mut blocks: Vec<Block<'a>> = Vec::new();
        let (mut name, mut first) = (entry, 0);
        for (at, &line) in body.iter().enumerate() {
            if let Some(label) = label(line) {
                (name, first) = (label, at + 1);
            } else if ["  br ", "  switch ", "  ret ", "  unreachable"].iter().any(|word| line.starts_with(word)) {
                blocks.push(Block { name, first, last: at, branch: Branch::parse(&body[at..]) });
            }
        }
        // A label has no sign: `12:`.
        let bare = |name: &'a str| name.trim_start_matches('%');
        let numbers: HashMap<&str, usize> = blocks.iter().enumerate().map(|(at, block)| (bare(block.name), at)).collect();
        let successors: Vec<Vec<usize>> =
            blocks.iter().map(|block| block.branch.targets().into_iter().filter_map(|target| numbers.get(bare(target)).copied()).collect()).collect();
        let end = blocks.len();
        let (mut predecessors, mut after) = (vec![Vec::new(); end + 1], successors.clone());
        for (from, targets) in after.iter_mut().enumerate() {
            if targets.is_empty() {
                targets.push(end);
            }
            targets.iter().for_each(|to| predecessors[*to].push(from));
        }
        after.push(Vec::new());
        let (dominators, postdominators) = (dominators(0, &after, &predecessors), dominators(end, &predecessors, &after));
        Self { blocks, successors, predecessors, dominators, postdominators }
    }

    /// The nearest block before this one that runs as often as it, and for the same lanes.
    fn equivalent(&self, block: usize) -> Option<usize> {
        above(&self.dominators, block).find(|&before| {
            above(&self.postdominators, before).any(|after| after == block) && !self.repeats(before, block) && !self.repeats(block, before)
        })
    }

    /// Whether a block runs again without another one in between.
    fn repeats(&self, block: usize, without: usize) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![block]);
        while let Some(at) = open.pop() {
            for &next in &self.successors[at] {
                if next == block {
                    return true;
                }
                if next != without && seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    }
}

/// The nodes that every way from the root to this one leads through, from the nearest on.
fn above(nearest: &[Option<usize>], node: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(nearest[node], |at| nearest[*at])
}

/// The name of the block that begins with a line: `12:  ; preds = %3`.
fn label(line: &str) -> Option<&str> {
    let end = if let Some(quoted) = line.strip_prefix('"') { quoted.find('"')? + 2 } else { line.find(':')? };
    (!line.starts_with(' ') && line[end..].starts_with(':')).then(|| &line[..end])
}

/// Of each node the nearest one that every way from the root leads through (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm").
fn dominators(root: usize, successors: &[Vec<usize>], predecessors: &[Vec<usize>]) -> Vec<Option<usize>> {
    let (mut order, mut seen, mut open) = (Vec::new(), HashSet::from([root]), vec![(root, 0)]);
    while let Some((node, next)) = open.pop() {
        match successors[node].get(next) {
            Some(&child) => {
                open.push((node, next + 1));
                if seen.insert(child) {
                    open.push((child, 0));
                }
            }
            None => order.push(node),
        }
    }
    let mut rank = vec![0; successors.len()];
    order.iter().enumerate().for_each(|(at, node)| rank[*node] = at);
    let mut nearest = vec![None; successors.len()];
    nearest[root] = Some(root);
    loop {
        let mut changed = false;
        for &node in order.iter().rev().filter(|node| **node != root) {
            let met = predecessors[node].iter().copied().filter(|before| nearest[*before].is_some()).reduce(|mut a, mut b| {
                while a != b {
                    let lower = if rank[a] < rank[b] { &mut a } else { &mut b };
                    *lower = nearest[*lower].unwrap_or(root);
                }
                a
            });
            changed |= nearest[node] != met;
            nearest[node] = met;
        }
        if !changed {
            nearest[root] = None;
            return nearest;
        }
    }
}

struct Finder<'a> {
    flow: Flow<'a>,
    all: String,
    /// Of blocks.
    masks: Vec<Option<String>>,
    lanes: Lanes,
}

impl Finder<'_> {
    /// The lanes of a block.
    fn mask(&mut self, block: usize) -> String {
        if let Some(mask) = &self.masks[block] {
            return mask.clone();
        }
        let mut before = self.flow.predecessors[block].clone();
        let ways = before.clone();
        before.dedup();
        let mask = match (self.flow.equivalent(block), before.as_slice()) {
            (_, []) => self.all.clone(),
            (Some(before), _) => self.mask(before),
            (None, [only]) => self.going(*only, block),
            (None, _) => {
                let mask = format!("%elv.lanes.{block}");
                // A loop comes back here.
                self.masks[block] = Some(mask.clone());
                let ways: Vec<String> = ways
                    .into_iter()
                    .map(|from| format!("[ {}, %{} ]", self.going(from, block), self.flow.blocks[from].name.trim_start_matches('%')))
                    .collect();
                self.lanes.phis.insert(self.flow.blocks[block].first, format!("  {mask} = phi i32 {}", ways.join(", ")));
                mask
            }
        };
        self.masks[block] = Some(mask.clone());
        mask
    }

    /// The lanes that go from a block to one of its successors.
    fn going(&mut self, from: usize, to: usize) -> String {
        let here = self.mask(from);
        let name = format!("%elv.going.{from}.{to}");
        let (block, target) = (&self.flow.blocks[from], self.flow.blocks[to].name.trim_start_matches('%'));
        let is_there = |label: &str| label.trim_start_matches('%') == target;
        let mut text = String::new();
        match &block.branch {
            Branch::None | Branch::To(_) => return here,
            Branch::If { then, otherwise, .. } if then == otherwise => return here,
            Branch::If { condition, then, .. } => {
                let turned = if is_there(then) { "false" } else { "true" };
                let _ = writeln!(text, "  {name}.if = xor i1 {condition}, {turned}");
            }
            Branch::Switch { value, default, cases } => {
                // The other ways than the default one have values.
                let by_default = is_there(default);
                let mut any = if by_default { "true" } else { "false" }.to_owned();
                for (at, (case, _)) in cases.iter().enumerate().filter(|(_, (_, label))| is_there(label) != by_default) {
                    let _ = writeln!(text, "  {name}.is.{at} = icmp eq {value}, {case}\n  {name}.any.{at} = xor i1 {any}, {name}.is.{at}");
                    any = format!("{name}.any.{at}");
                }
                let _ = writeln!(text, "  {name}.if = and i1 {any}, true");
            }
        }
        let _ = write!(text, "  {name} = call i32 @elv_air_lanes_that(i32 {here}, i1 {name}.if)");
        let votes = self.lanes.votes.entry(block.last).or_default();
        if !votes.contains(&format!("{name} = ")) {
            if !votes.is_empty() {
                votes.push('\n');
            }
            votes.push_str(&text);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Lanes {
        find(&body.lines().collect::<Vec<_>>(), "%0", ALL, |name| name == "@fold")
    }

    fn lines(lanes: &Lanes, body: &str) -> String {
        let mut out = String::new();
        for (at, line) in body.lines().enumerate() {
            lanes.before(at).for_each(|added| out.extend([added, "\n"]));
            let _ = writeln!(out, "{line}{}", lanes.at(at).map_or(String::new(), |mask| format!(" ; {mask}")));
        }
        out
    }

    /// Straight lines, whatever branches lie between them, need no vote.
    #[test]
    fn lanes_that_meet_again_are_those_that_parted() {
        let body = "  br i1 %c, label %1, label %2\n1:\n  br label %2\n2:\n  call void @fold()\n  ret void";
        assert_eq!(lines(&found(body), body), body.replace("@fold()", "@fold() ; -1") + "\n");
        let looped = "  br label %1\n1:\n  br i1 %c, label %1, label %2\n2:\n  call void @fold()\n  ret void";
        assert_eq!(lines(&found(looped), looped), looped.replace("@fold()", "@fold() ; -1") + "\n");
    }

    #[test]
    fn lanes_of_a_condition_agree_on_it() {
        let body = "  br i1 %c, label %1, label %2\n1:\n  call void @fold()\n  br label %2\n2:\n  call void @fold()\n  ret void";
        let expected = "  %elv.going.0.1.if = xor i1 %c, false\n  %elv.going.0.1 = call i32 @elv_air_lanes_that(i32 -1, i1 %elv.going.0.1.if)
  br i1 %c, label %1, label %2\n1:\n  call void @fold() ; %elv.going.0.1\n  br label %2\n2:\n  call void @fold() ; -1\n  ret void\n";
        assert_eq!(lines(&found(body), body), expected);
    }

    /// Lanes that return before are left out of what follows.
    #[test]
    fn lanes_that_return_are_gone() {
        let body = "  br i1 %c, label %1, label %2\n1:\n  ret void\n2:\n  call void @fold()\n  ret void";
        let lanes = found(body);
        assert_eq!(lanes.at(4), Some("%elv.going.0.2"));
        assert!(lanes.before(0).any(|text| text.contains("%elv.going.0.2.if = xor i1 %c, true")));
    }

    /// In each turn of a loop there are those that did not leave it; after it all are there again.
    #[test]
    fn a_loop_loses_lanes() {
        let body = "  br label %1\n1:\n  call void @fold()\n  br i1 %c, label %1, label %2\n2:\n  call void @fold()\n  ret void";
        let lanes = found(body);
        assert_eq!((lanes.at(2), lanes.at(5)), (Some("%elv.lanes.1"), Some("-1")));
        assert_eq!(lanes.before(2).collect::<Vec<_>>(), ["  %elv.lanes.1 = phi i32 [ -1, %0 ], [ %elv.going.1.1, %1 ]"]);
        assert!(lanes.before(3).any(|text| text.contains("@elv_air_lanes_that(i32 %elv.lanes.1, ")));
    }

    #[test]
    fn a_switch_divides_lanes() {
        let body = "  switch i32 %v, label %1 [\n    i32 0, label %2\n    i32 7, label %2\n  ]\n1:\n  call void @fold()\n  br label %2\n2:\n  call void @fold()\n  ret void";
        let lanes = found(body);
        assert_eq!((lanes.at(5), lanes.at(8)), (Some("%elv.going.0.1"), Some("-1")));
        let votes: String = lanes.before(0).collect();
        assert!(votes.contains("icmp eq i32 %v, 0\n") && votes.contains("icmp eq i32 %v, 7\n") && votes.contains("xor i1 true, "), "{votes}");
    }

    /// A loop within a loop: the inner one's lanes are those of the outer one's turn.
    #[test]
    fn loops_within_loops() {
        let body = "  br label %1\n1:\n  br label %2\n2:\n  br i1 %c, label %2, label %3\n3:\n  call void @fold()\n  br i1 %d, label %1, label %4\n4:\n  ret void";
        let lanes = found(body);
        assert_eq!(lanes.at(6), Some("%elv.lanes.1"));
        assert_eq!(lanes.before(4).count(), 0);
    }
}
