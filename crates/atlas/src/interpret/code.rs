//! Prepared programs: steps over slots.

use elinvar_core::DType;

use super::ops::{Gate, One, Three, Two};
use crate::program::{Atomic, Position, Scope, Shuffle};

/// A loop over lanes.
#[derive(Clone, Copy)]
pub(super) enum Kernel {
    One(One),
    Two(Two),
    Three(Three),
    Gate(Gate, [f32; 2]),
}

impl Kernel {
    /// How many operands it takes.
    pub(super) fn operands(self) -> usize {
        match self {
            Kernel::One(_) => 1,
            Kernel::Two(_) => 2,
            Kernel::Three(_) | Kernel::Gate(..) => 3,
        }
    }

    /// Runs the loop over its operands' bytes.
    #[inline(always)]
    pub(super) fn run<'a>(self, operand: impl Fn(usize) -> &'a [u8], out: &mut [u8]) {
        match self {
            Kernel::One(kernel) => kernel(operand(0), out),
            Kernel::Two(kernel) => kernel(operand(0), operand(1), out),
            Kernel::Three(kernel) => kernel(operand(0), operand(1), operand(2), out),
            Kernel::Gate(kernel, bounds) => kernel(operand(0), operand(1), operand(2), bounds, out),
        }
    }
}

/// What is known of the result when operands are consecutive numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    None,
    Add,
    Sub,
    Lt,
    Ge,
    Same,
}

/// An operation on lanes.
pub(super) struct Apply {
    pub(super) kernel: Kernel,
    pub(super) to: u32,
    pub(super) from: [u32; 3],
    pub(super) count: usize,
    /// Operands are 16-bit floats, which the loop takes as f32.
    pub(super) widen: bool,
    /// The result is a half, which the loop gives as f32.
    pub(super) narrow: bool,
    pub(super) rule: Rule,
    pub(super) blend: bool,
    /// The next step stores the result, and nothing else uses it: memory and index.
    pub(super) stored: Option<(u32, u32)>,
}

/// One step. `blend`: lanes that do not take part keep their values.
pub(super) enum Step {
    Apply(Apply),
    Position {
        to: u32,
        position: Position,
        blend: bool,
    },
    Load {
        to: u32,
        memory: u32,
        index: u32,
        blend: bool,
    },
    Store {
        memory: u32,
        index: u32,
        value: u32,
    },
    Atomic {
        op: Option<Atomic>,
        to: Option<u32>,
        memory: u32,
        index: u32,
        expected: u32,
        value: u32,
        blend: bool,
    },
    Reduce {
        scope: Scope,
        kernel: Two,
        half: bool,
        to: u32,
        a: u32,
        blend: bool,
    },
    Shuffle {
        kind: Shuffle,
        to: u32,
        a: u32,
        by: u32,
        blend: bool,
    },
    If {
        condition: u32,
        otherwise: usize,
        has_else: bool,
    },
    Else {
        end: usize,
    },
    EndIf,
    Loop {
        bound: Option<u32>,
    },
    While {
        condition: u32,
    },
    Break,
    Continue,
    EndLoop {
        start: usize,
    },
    Exit,
    Fence,
    /// Lockstep keeps it by itself.
    Barrier,
    /// What the next step does too.
    Nothing,
}

/// A prepared program.
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    /// Where each step is written: the function's number, the kernel after all others, and the instruction's.
    pub(super) sites: Vec<(u32, u32)>,
    /// The type of each slot: registers, then scalars and constants.
    pub(super) slots: Vec<DType>,
    pub(super) registers: usize,
    pub(super) constants: Vec<(u32, u64)>,
    /// Slots of scalar parameters and their numbers.
    pub(super) scalars: Vec<(u32, u32)>,
    /// Whether threads of different blocks may be lanes of one strip.
    pub(super) merges: bool,
    /// Registers whose values nothing uses after each step.
    pub(super) dead: Vec<Vec<u32>>,
    /// Bytes of the widest lane.
    pub(super) width: usize,
    /// Where the straight line of operations, loads and stores ends that each step is part of, outside loops; zero for other steps.
    pub(super) until: Vec<usize>,
    /// Whether nothing else takes lanes in memory, so that strips may be long.
    pub(super) straight: bool,
}
