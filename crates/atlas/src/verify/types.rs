//! Operands exist, have the types their instructions take, and memory is used as its access allows.

use elinvar_core::{Access, DType, Result};

use super::place::at;
use crate::program::{Binary, Compare, Function, Instruction, Memory, Operand, Program, Scope};

/// Checks a function, which may call the `callees` first functions.
pub(super) fn check(program: &Program, function: &Function, callees: usize) -> Result<()> {
    for (index, instruction) in function.body.iter().enumerate() {
        Checker { program, function, callees }.instruction(instruction).map_err(|message| at(function, index, message))?;
    }
    if let Some(result) = function.result {
        Checker { program, function, callees }.operand(result).map_err(|message| at(function, function.body.len(), message))?;
    }
    Ok(())
}

struct Checker<'a> {
    program: &'a Program,
    function: &'a Function,
    callees: usize,
}

type Checked<T = ()> = Result<T, String>;

impl Checker<'_> {
    fn operand(&self, operand: Operand) -> Checked<DType> {
        if let Operand::Constant(constant) = operand
            && !constant.is_valid()
        {
            return Err(format!("the bits {:#x} are no value of {}", constant.bits, constant.dtype));
        }
        self.program.dtype(self.function, operand).ok_or_else(|| match operand {
            Operand::Register(r) => format!("there is no register {r}"),
            Operand::Parameter(p) => format!("parameter {p} is no scalar"),
            Operand::Constant(_) => "no such constant".to_owned(),
        })
    }

    fn target(&self, to: u32) -> Checked<DType> {
        self.function.registers.get(to as usize).map(|r| r.dtype).ok_or_else(|| format!("there is no register {to}"))
    }

    fn expect(&self, operand: Operand, dtype: DType, what: &str) -> Checked {
        let found = self.operand(operand)?;
        if found == dtype { Ok(()) } else { Err(format!("{what} is {found}, {dtype} is expected")) }
    }

    /// All operands and the target have one type.
    fn alike(&self, to: u32, operands: &[Operand]) -> Checked<DType> {
        let dtype = self.target(to)?;
        operands.iter().try_for_each(|&operand| self.expect(operand, dtype, "an operand")).map(|()| dtype)
    }

    fn takes(&self, name: &str, dtype: DType, takes: bool) -> Checked {
        if takes { Ok(()) } else { Err(format!("'{name}' does not take {dtype}")) }
    }

    fn element(&self, memory: Memory, index: Operand, reads: bool, writes: bool) -> Checked<DType> {
        let (name, dtype) = self.program.memory(memory).ok_or_else(|| format!("there is no {memory:?}"))?;
        if self.function.result.is_some() {
            return Err(format!("functions compute on values: '{name}' can be used in the kernel alone"));
        }
        let found = self.operand(index)?;
        if !matches!(found, DType::U32 | DType::I32 | DType::U64 | DType::I64) {
            return Err(format!("the index is {found}: u32, i32, u64 or i64 is expected"));
        }
        if matches!(index, Operand::Constant(_)) && found != DType::U32 {
            return Err("a constant index is u32".to_owned());
        }
        if let Memory::Buffer(index) = memory {
            match self.program.parameters[index as usize].access {
                Some(Access::Read) if writes => return Err(format!("'{name}' is declared 'read', and this writes to it")),
                Some(Access::Write) if reads => return Err(format!("'{name}' is declared 'write', and this reads it: declare it 'update'")),
                Some(Access::Read | Access::Write | Access::ReadWrite) | None => {}
            }
        }
        Ok(dtype)
    }

    fn atomic(&self, memory: Memory, index: Operand, to: Option<u32>, values: &[Operand]) -> Checked {
        let dtype = self.element(memory, index, true, true)?;
        self.takes("an atomic", dtype, matches!(dtype, DType::I32 | DType::U32))?;
        values.iter().try_for_each(|&value| self.expect(value, dtype, "the value"))?;
        match to {
            Some(to) if self.target(to)? != dtype => Err(format!("the old value is {dtype}, its register another type")),
            _ => Ok(()),
        }
    }

    fn only_in_kernel(&self, what: &str) -> Checked {
        if self.function.result.is_some() { Err(format!("{what} can be used in the kernel alone, not in functions")) } else { Ok(()) }
    }

    fn instruction(&self, instruction: &Instruction) -> Checked {
        match *instruction {
            Instruction::Unary { op, to, a } => self.alike(to, &[a]).and_then(|dtype| self.takes(op.name(), dtype, op.takes(dtype))),
            Instruction::Binary { op, to, a, b } => self.alike(to, &[a, b]).and_then(|dtype| self.takes(op.name(), dtype, op.takes(dtype))),
            Instruction::Ternary { op, to, a, b, c } => {
                let dtype = self.alike(to, &[a, b, c])?;
                self.takes(op.name(), dtype, op.takes(dtype))
            }
            Instruction::Compare { op, to, a, b } => {
                if self.target(to)? != DType::Bool {
                    return Err("a comparison gives a bool".to_owned());
                }
                if matches!((a, b), (Operand::Constant(_), Operand::Constant(_))) {
                    return Err("two constants are compared: move the result".to_owned());
                }
                let dtype = self.operand(a)?;
                self.expect(b, dtype, "the second operand")?;
                self.takes(op.name(), dtype, dtype != DType::Bool || matches!(op, Compare::Eq | Compare::Ne))
            }
            Instruction::Select { to, condition, a, b } => {
                self.expect(condition, DType::Bool, "the condition")?;
                self.alike(to, &[a, b]).map(drop)
            }
            Instruction::Convert { to, a } => {
                self.target(to)?;
                if matches!(a, Operand::Constant(_)) {
                    return Err("a constant is converted: move one of the type".to_owned());
                }
                self.operand(a).map(drop)
            }
            Instruction::Move { to, a } => self.alike(to, &[a]).map(drop),
            Instruction::Position { to, position } => {
                self.only_in_kernel(position.name())?;
                if self.target(to)? == DType::U32 { Ok(()) } else { Err("positions are u32".to_owned()) }
            }
            Instruction::Load { to, memory, index } => {
                let (dtype, target) = (self.element(memory, index, true, false)?, self.target(to)?);
                if dtype == target { Ok(()) } else { Err(format!("elements of {dtype} are loaded into a register of {target}")) }
            }
            Instruction::Store { memory, index, value } => {
                let dtype = self.element(memory, index, false, true)?;
                self.expect(value, dtype, "the value")
            }
            Instruction::Atomic { to, memory, index, value, .. } => self.atomic(memory, index, to, &[value]),
            Instruction::CompareExchange { to, memory, index, expected, value } => self.atomic(memory, index, to, &[expected, value]),
            Instruction::Reduce { scope, op, to, a } => {
                self.only_in_kernel("a reduction")?;
                let dtype = self.alike(to, &[a])?;
                let reduces = matches!(op, Binary::Add | Binary::Mul | Binary::Min | Binary::Max | Binary::And | Binary::Or | Binary::Xor);
                self.takes(&format!("{}_{}", Scope::name(scope), op.name()), dtype, reduces && op.takes(dtype))
            }
            Instruction::Shuffle { to, a, by, .. } => {
                self.only_in_kernel("a shuffle")?;
                self.expect(by, DType::U32, "the lane")?;
                self.alike(to, &[a]).map(drop)
            }
            Instruction::Call { function, to, arguments: (first, count) } => self.call(function, to, first, count),
            Instruction::If { condition } | Instruction::While { condition } => self.expect(condition, DType::Bool, "the condition"),
            Instruction::Barrier => self.only_in_kernel("'barrier'"),
            Instruction::Fence => self.only_in_kernel("'fence'"),
            Instruction::Exit => self.only_in_kernel("'exit'"),
            Instruction::Loop { bound: Some(0) } => Err("a loop of no repetitions".to_owned()),
            Instruction::Else | Instruction::Loop { .. } | Instruction::Break | Instruction::Continue | Instruction::End => Ok(()),
        }
    }

    fn call(&self, function: u32, to: u32, first: u32, count: u32) -> Checked {
        let callee = self.program.functions.get(function as usize).filter(|_| (function as usize) < self.callees);
        let callee = callee.ok_or("functions call only those written before them")?;
        let arguments = self.function.arguments.get(first as usize..).and_then(|rest| rest.get(..count as usize));
        let arguments =
            arguments.filter(|_| count == callee.parameters).ok_or_else(|| format!("'{}' takes {} arguments", callee.name, callee.parameters))?;
        for (argument, register) in arguments.iter().zip(&callee.registers) {
            self.expect(*argument, register.dtype, &format!("'{}'", register.name))?;
        }
        let result = callee.result.and_then(|result| self.program.dtype(callee, result)).ok_or("the function returns nothing")?;
        if self.target(to)? == result { Ok(()) } else { Err(format!("'{}' returns {result}", callee.name)) }
    }
}
