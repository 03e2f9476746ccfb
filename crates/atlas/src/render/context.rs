//! What statements refer to.

use super::{faults::Faults, names::exchanged, words::Part};
use crate::program::{Instruction, Program, Scope};

/// What the text of a program's functions refers to.
pub(super) struct Context<'a> {
    pub(super) program: &'a Program,
    /// Names of parameters, shared arrays and functions.
    pub(super) parameters: Vec<String>,
    pub(super) shared: Vec<String>,
    pub(super) functions: Vec<String>,
    pub(super) checked: bool,
    pub(super) has_block: bool,
    pub(super) faults: Faults,
    /// Of each instruction of the kernel, the part of a word that it is.
    pub(super) words: Vec<Option<Part>>,
    /// Steps that a thread's loops may take.
    pub(super) steps: u32,
}

impl Context<'_> {
    /// What the simdgroups of a block exchange for a reduction.
    pub(super) fn reduced_type(&self, instruction: &Instruction) -> Option<&'static str> {
        let Instruction::Reduce { scope: Scope::Group, to, .. } = *instruction else { return None };
        Some(exchanged(self.program.kernel.registers[to as usize].dtype))
    }
}
