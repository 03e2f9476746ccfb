//! Names of a program and of a function.

use std::collections::HashMap;

use elinvar_core::{DType, Result};

use super::lexer::error_at;
use crate::program::{self, Function, Location, Memory, Operand, Program, Register};

/// What a name of a function's text means.
pub(super) struct Scope<'a> {
    pub(super) program: &'a Program,
    pub(super) globals: &'a HashMap<String, Global>,
    pub(super) registers: HashMap<String, u32>,
    pub(super) function: Function,
}

#[derive(Clone, Copy)]
pub(super) enum Global {
    Scalar(u32),
    Memory(Memory),
    Function(u32),
}

impl Scope<'_> {
    /// The operand of that name.
    pub(super) fn operand(&self, name: &str, at: Location) -> Result<Operand> {
        match (self.registers.get(name), self.globals.get(name)) {
            (Some(&register), _) => Ok(Operand::Register(register)),
            (None, Some(Global::Scalar(index))) => Ok(Operand::Parameter(*index)),
            (None, Some(Global::Memory(_))) => Err(error_at(at, format_args!("'{name}' is memory: load its elements"))),
            (None, Some(Global::Function(_))) => Err(error_at(at, format_args!("'{name}' is a function: call it"))),
            (None, None) => Err(error_at(at, format_args!("'{name}' is not known here: nothing was assigned to it and no parameter has that name"))),
        }
    }

    pub(super) fn memory(&self, name: &str, at: Location) -> Result<(Memory, DType)> {
        let known = match self.globals.get(name) {
            Some(Global::Memory(memory)) => self.program.memory(*memory).map(|(_, dtype)| (*memory, dtype)),
            Some(Global::Scalar(_) | Global::Function(_)) | None => None,
        };
        known.ok_or_else(|| error_at(at, format_args!("'{name}' is no buffer and no shared array")))
    }

    pub(super) fn callee(&self, name: &str, at: Location) -> Result<u32> {
        match self.globals.get(name) {
            Some(Global::Function(index)) => Ok(*index),
            Some(Global::Scalar(_) | Global::Memory(_)) | None => Err(error_at(at, format_args!("'{name}' is no function written before this one"))),
        }
    }

    pub(super) fn register(&self, name: &str) -> Option<(u32, DType)> {
        self.registers.get(name).and_then(|&r| self.function.registers.get(r as usize).map(|register| (r, register.dtype)))
    }

    /// The register of that name, made if there is none.
    pub(super) fn assign(&mut self, name: &str, dtype: DType, at: Location) -> Result<u32> {
        if let Some((register, known)) = self.register(name) {
            if known != dtype {
                return Err(error_at(at, format_args!("'{name}' is {known}, the value is {dtype}: convert it, or use another name")));
            }
            return Ok(register);
        }
        check_name(name, at)?;
        if self.globals.contains_key(name) {
            return Err(error_at(at, format_args!("'{name}' is a parameter, a shared array or a function: use another name")));
        }
        let register = self.function.registers.len() as u32;
        self.function.registers.push(Register { name: name.to_owned(), dtype });
        self.registers.insert(name.to_owned(), register);
        Ok(register)
    }
}

pub(super) fn check_name(name: &str, at: Location) -> Result<()> {
    program::check_name(name).map_err(|message| error_at(at, message))
}
