//! A function being written, and what it calls its values.

use super::{
    context::Context,
    faults::counter,
    names::{length_of, literal, loaded, own},
    words::Part,
};
use crate::{
    program::{Function, Memory, Operand},
    verify::{Shape, Variance, Variances, shape, variances},
};

/// How a register is declared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    /// Where it is first assigned.
    At(usize),
    /// At the start of a block.
    In(u32),
    /// As a parameter, or never used.
    Not,
}

/// A function being written.
pub(super) struct Body<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) function: &'a Function,
    /// Its number, the kernel's after all others.
    pub(super) number: usize,
    pub(super) names: Vec<String>,
    pub(super) shape: Shape,
    /// Of the kernel, if it counts steps.
    pub(super) variances: Option<Variances>,
    pub(super) declared: Vec<Declared>,
}

impl<'a> Body<'a> {
    pub(super) fn new(context: &'a Context<'a>, number: usize) -> Self {
        let (program, is_kernel) = (context.program, number == context.program.functions.len());
        let function = program.functions.get(number).unwrap_or(&program.kernel);
        let names = function.registers.iter().map(|r| own(&r.name)).collect();
        let shape = shape(&function.body, &function.arguments, function.registers.len(), function.parameters, function.result);
        let mut declared = vec![Declared::Not; function.registers.len()];
        for (index, instruction) in function.body.iter().enumerate() {
            if let Some(to) = instruction.target()
                && to >= function.parameters
                && declared[to as usize] == Declared::Not
            {
                let scope = shape.scope[to as usize];
                let first = shape.block_of[index] == scope;
                declared[to as usize] = if first { Declared::At(index) } else { Declared::In(scope) };
            }
        }
        let variances = (is_kernel && context.faults.counts(number)).then(|| variances(program, &shape));
        Self { context, function, number, names, shape, variances, declared }
    }

    pub(super) fn register(&self, register: u32) -> &str {
        &self.names[register as usize]
    }

    pub(super) fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(register) => self.names[register as usize].clone(),
            Operand::Parameter(parameter) => {
                let name = format!("atlas_parameters.{}", self.context.parameters[parameter as usize]);
                loaded(self.context.program.parameters[parameter as usize].dtype, name)
            }
            Operand::Constant(constant) => literal(constant),
        }
    }

    /// Names of memory and of its length.
    pub(super) fn memory(&self, memory: Memory) -> (String, String) {
        match memory {
            Memory::Buffer(index) => {
                let index = index as usize;
                (self.context.parameters[index].clone(), format!("atlas_parameters.length_{}", self.context.program.parameters[index].name))
            }
            Memory::Shared(index) => (self.context.shared[index as usize].clone(), length_of(&self.context.program.shared[index as usize])),
        }
    }

    /// The counter that instruction `index`, a loop or a call that assigns `to`, takes its steps from.
    pub(super) fn counter(&self, index: usize) -> &'static str {
        let variance = self.variances.as_ref().map_or(Variance::Thread, |variances| match self.function.body[index].target() {
            Some(to) => variances.register(to),
            None => variances.block(self.shape.opens[index]),
        });
        counter(variance)
    }

    /// The part of a word that an instruction loads or stores.
    pub(super) fn word(&self, at: usize) -> Option<Part> {
        let is_kernel = self.number == self.context.program.functions.len();
        self.context.words.get(at).copied().flatten().filter(|_| is_kernel)
    }

    /// The index of an element, which is reported where it is out of bounds and the program traps.
    pub(super) fn index(&self, at: usize, index: Operand, length: &str) -> String {
        let place = self.operand(index);
        let fault = self.context.faults.of(self.number, at);
        fault.map_or(place.clone(), |fault| format!("atlas::inside({place}, {length}, atlas_fault, {}u)", fault.number))
    }
}
