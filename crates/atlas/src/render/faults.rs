//! What may go wrong while a program runs: indices out of bounds where it traps, loops that take too many steps.
//!
//! A fault has a number, which the kernel reports through its error flag; the least is kept. Loops whose repetitions are bounded and few are
//! not counted. The others take what a repetition costs from a counter: one for loops that all threads of a block repeat together, one for those
//! that the threads of a simdgroup do, one for the rest. So threads that are to meet at a barrier run out of steps together.

use crate::{
    program::{Bounds, Flow, Function, Instruction, Program, Site},
    verify::{TOO_MANY_STEPS, Variance, Verified},
};

/// Steps of a loop with all its repetitions that are not worth counting.
const FREE: u64 = 1 << 14;

/// A fault that an instruction may have.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    /// Its number.
    pub(super) number: u32,
    /// For a loop what a repetition costs.
    pub(super) cost: u32,
}

/// The faults of a program.
pub(super) struct Faults {
    /// What each is reported as, by number.
    pub(super) messages: Vec<String>,
    /// Of each function, the kernel last, those of its instructions.
    of: Vec<Vec<Option<Fault>>>,
    /// Of each function whether it counts steps.
    counts: Vec<bool>,
}

impl Faults {
    pub(super) fn new(verified: &Verified) -> Self {
        let program = verified.program();
        let mut faults = Self { messages: Vec::new(), of: Vec::new(), counts: Vec::new() };
        let mut totals = Vec::new();
        for function in program.functions.iter().chain([&program.kernel]) {
            let (costs, total) = costs(function, &totals, verified.limits().steps);
            totals.push(total);
            let calls = |i: &Instruction| matches!(i, Instruction::Call { function, .. } if faults.counts[*function as usize]);
            faults.counts.push(costs.iter().any(|cost| *cost > 0) || function.body.iter().any(calls));
            let of = costs.iter().enumerate().map(|(index, &cost)| faults.fault(program, function, index, cost)).collect();
            faults.of.push(of);
        }
        faults
    }

    fn fault(&mut self, program: &Program, function: &Function, index: usize, cost: u32) -> Option<Fault> {
        let what = match function.body[index].memory().filter(|_| program.bounds == Bounds::Trap) {
            Some(memory) => format!("an element of '{}' that is out of bounds", program.memory(memory).map_or("", |(name, _)| name)),
            None if cost > 0 => TOO_MANY_STEPS.to_owned(),
            None => return None,
        };
        self.messages.push(format!("{}: {what}", Site::of(function, index)));
        Some(Fault { number: self.messages.len() as u32 - 1, cost })
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The fault that an instruction of a function may have.
    pub(super) fn of(&self, function: usize, index: usize) -> Option<Fault> {
        self.of[function][index]
    }

    /// Whether a function counts steps.
    pub(super) fn counts(&self, function: usize) -> bool {
        self.counts[function]
    }
}

/// What a repetition of each loop that is counted costs (zero for all else), and the steps of the function outside of such loops.
fn costs(function: &Function, totals: &[u64], steps: Option<u32>) -> (Vec<u32>, u64) {
    let mut costs = vec![0; function.body.len()];
    let mut open = Vec::new();
    let mut total = 0u64;
    for (index, instruction) in function.body.iter().enumerate() {
        total = total.saturating_add(1);
        if let Instruction::Call { function, .. } = *instruction {
            total = total.saturating_add(totals[function as usize]);
        }
        match instruction.flow() {
            Flow::Opens => {
                open.push(if let Instruction::Loop { bound } = *instruction { Some((index, bound, std::mem::take(&mut total))) } else { None })
            }
            Flow::Closes => {
                if let Some(Some((start, bound, before))) = open.pop() {
                    let all = bound.map(|bound| total.saturating_mul(u64::from(bound))).filter(|&all| all <= FREE);
                    if let (None, Some(steps)) = (all, steps) {
                        costs[start] = u32::try_from(total).unwrap_or(u32::MAX).clamp(1, steps.max(1));
                    }
                    total = before.saturating_add(all.unwrap_or(0));
                }
            }
            Flow::Straight | Flow::Turns | Flow::Leaves => {}
        }
    }
    (costs, total)
}

/// The counter of what varies so.
pub(super) const fn counter(variance: Variance) -> &'static str {
    match variance {
        Variance::Block => "atlas_left_block",
        Variance::Simdgroup => "atlas_left_simdgroup",
        Variance::Thread => "atlas_left",
    }
}
