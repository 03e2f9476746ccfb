//! Statements: one line, one instruction.

use elinvar_core::{DType, Result};

use super::{
    lexer::{Kind, Token, error_at},
    line::Line,
    literal,
    scope::Scope,
};
use crate::program::{
    Atomic, Binary, Compare, Constant, Instruction, Location, Memory, Operand, Position, Scope as Sharing, Shuffle, Ternary, Unary,
};

/// How many blocks an instruction opens.
pub(super) fn opens(instruction: &Instruction) -> u32 {
    u32::from(matches!(instruction, Instruction::If { .. } | Instruction::Loop { .. }))
}

/// How many it closes.
pub(super) fn closes(instruction: &Instruction) -> u32 {
    u32::from(matches!(instruction, Instruction::End))
}

/// An operand whose type may still be open.
enum Raw {
    Known(Operand, DType, Location),
    Literal(Token),
}

impl Raw {
    fn dtype(&self) -> Option<DType> {
        match self {
            Raw::Known(_, dtype, _) => Some(*dtype),
            Raw::Literal(_) => None,
        }
    }

    /// The operand, which must be of that type.
    fn of(self, dtype: DType) -> Result<Operand> {
        match self {
            Raw::Known(operand, known, _) if known == dtype => Ok(operand),
            Raw::Known(_, known, at) => Err(error_at(at, format_args!("{known} where {dtype} is expected: convert it"))),
            Raw::Literal(token) => literal::parse(token.text(), dtype, token.at).map(Operand::Constant),
        }
    }

    /// The operand, a u32 if it is a constant.
    fn index(self) -> Result<Operand> {
        let dtype = self.dtype().unwrap_or(DType::U32);
        self.of(dtype)
    }
}

fn raw(line: &mut Line, scope: &Scope<'_>) -> Result<Raw> {
    let token = line.next("an operand")?;
    match &token.kind {
        Kind::Number(_) => Ok(Raw::Literal(token)),
        Kind::Name(name) if literal::is_literal(name) => Ok(Raw::Literal(token)),
        Kind::Name(name) => {
            let operand = scope.operand(name, token.at)?;
            let dtype = scope.program.dtype(&scope.function, operand).ok_or_else(|| error_at(token.at, "no such value"))?;
            Ok(Raw::Known(operand, dtype, token.at))
        }
        Kind::Mark(mark) => Err(error_at(token.at, format_args!("'{mark}' where an operand is expected"))),
    }
}

/// The next operand, of that type.
pub(super) fn operand_of(line: &mut Line, scope: &Scope<'_>, dtype: DType) -> Result<Operand> {
    raw(line, scope)?.of(dtype)
}

/// `name[index]`.
fn element(line: &mut Line, scope: &Scope<'_>) -> Result<(Memory, DType, Operand)> {
    let (name, at) = line.name("a buffer or a shared array")?;
    let (memory, dtype) = scope.memory(&name, at)?;
    line.mark("[")?;
    let index = raw(line, scope)?.index()?;
    line.mark("]")?;
    Ok((memory, dtype, index))
}

/// A statement.
pub(super) fn parse(mut line: Line, scope: &mut Scope<'_>) -> Result<Instruction> {
    let (word, at) = line.name("a statement")?;
    let instruction = match word.as_str() {
        "if" => Instruction::If { condition: operand_of(&mut line, scope, DType::Bool)? },
        "else" => Instruction::Else,
        "loop" => Instruction::Loop { bound: if line.peek().is_some() { Some(line.count("a bound")?) } else { None } },
        "while" => Instruction::While { condition: operand_of(&mut line, scope, DType::Bool)? },
        "break" => Instruction::Break,
        "continue" => Instruction::Continue,
        "end" => Instruction::End,
        "exit" => Instruction::Exit,
        "barrier" => Instruction::Barrier,
        "fence" => Instruction::Fence,
        "store" => {
            let (memory, dtype, index) = element(&mut line, scope)?;
            Instruction::Store { memory, index, value: operand_of(&mut line, scope, dtype)? }
        }
        _ if word.starts_with("atomic_") && line.peek().is_some_and(|t| matches!(t.kind, Kind::Name(_))) => {
            atomic(&word, at, &mut line, scope)?.map_or_else(|| Err(unknown(&word, at)), |(instruction, _)| Ok(instruction))?
        }
        _ => assignment(&word, at, &mut line, scope)?,
    };
    line.finish()?;
    Ok(instruction)
}

fn unknown(word: &str, at: Location) -> elinvar_core::Error {
    error_at(at, format_args!("'{word}' is no instruction: docs/atlas.md lists them"))
}

/// An atomic without its target, and the type of its elements.
fn atomic(word: &str, at: Location, line: &mut Line, scope: &Scope<'_>) -> Result<Option<(Instruction, DType)>> {
    let op = Atomic::of_name(word);
    if op.is_none() && word != "atomic_cas" {
        return Ok(None);
    }
    let (memory, dtype, index) = element(line, scope)?;
    if !matches!(dtype, DType::I32 | DType::U32) {
        return Err(error_at(at, format_args!("atomics are for elements of i32 and u32, not {dtype}")));
    }
    let value = operand_of(line, scope, dtype)?;
    let instruction = match op {
        Some(op) => Instruction::Atomic { op, to: None, memory, index, value },
        None => Instruction::CompareExchange { to: None, memory, index, expected: value, value: operand_of(line, scope, dtype)? },
    };
    Ok(Some((instruction, dtype)))
}

/// `name = operation …` or `name: type = operation …`.
fn assignment(name: &str, at: Location, line: &mut Line, scope: &mut Scope<'_>) -> Result<Instruction> {
    let annotated = if line.takes(":") { Some(line.dtype()?) } else { None };
    if line.peek().is_none_or(|t| t.text() != "=") {
        return Err(unknown(name, at));
    }
    line.mark("=")?;
    let wanted = annotated.or_else(|| scope.register(name).map(|(_, dtype)| dtype));
    let (op, op_at) = line.name("an operation")?;
    let (mut instruction, dtype) = operation(&op, op_at, wanted, line, scope)?;
    if let Some(annotated) = annotated.filter(|&a| a != dtype) {
        return Err(error_at(at, format_args!("'{name}' is declared {annotated}, the value is {dtype}")));
    }
    let register = scope.assign(name, dtype, at)?;
    set_target(&mut instruction, register);
    Ok(instruction)
}

fn set_target(instruction: &mut Instruction, register: u32) {
    use Instruction as I;
    match instruction {
        I::Unary { to, .. } | I::Binary { to, .. } | I::Ternary { to, .. } | I::Compare { to, .. } | I::Select { to, .. } => *to = register,
        I::Convert { to, .. } | I::Move { to, .. } | I::Position { to, .. } | I::Load { to, .. } | I::Reduce { to, .. } => *to = register,
        I::Shuffle { to, .. } | I::Call { to, .. } => *to = register,
        I::Atomic { to, .. } | I::CompareExchange { to, .. } => *to = Some(register),
        I::Store { .. } | I::Barrier | I::Fence | I::If { .. } | I::Else | I::Loop { .. } | I::While { .. } => {}
        I::Break | I::Continue | I::End | I::Exit => {}
    }
}

/// Operands of one type: that of those whose type is known, or the one that is wanted of the result.
fn alike<const N: usize>(line: &mut Line, scope: &Scope<'_>, wanted: Option<DType>, at: Location) -> Result<([Operand; N], DType)> {
    let mut raws = Vec::with_capacity(N);
    for _ in 0..N {
        raws.push(raw(line, scope)?);
    }
    let dtype = raws.iter().find_map(Raw::dtype).or(wanted);
    let dtype = dtype.ok_or_else(|| error_at(at, "no operand gives the type: write it after the name, as in 'x: f32 = …'"))?;
    let mut operands = [Operand::Constant(Constant::bool(false)); N];
    for (operand, raw) in operands.iter_mut().zip(raws) {
        *operand = raw.of(dtype)?;
    }
    Ok((operands, dtype))
}

/// An operation and the type of its result; its target is filled in later.
fn operation(op: &str, at: Location, wanted: Option<DType>, line: &mut Line, scope: &mut Scope<'_>) -> Result<(Instruction, DType)> {
    const TO: u32 = 0;
    if let Some(op) = Unary::of_name(op) {
        let ([a], dtype) = alike(line, scope, wanted, at)?;
        return Ok((Instruction::Unary { op, to: TO, a }, dtype));
    }
    if let Some(op) = Binary::of_name(op) {
        let ([a, b], dtype) = alike(line, scope, wanted, at)?;
        return Ok((Instruction::Binary { op, to: TO, a, b }, dtype));
    }
    if let Some(op) = Ternary::of_name(op) {
        let ([a, b, c], dtype) = alike(line, scope, wanted, at)?;
        return Ok((Instruction::Ternary { op, to: TO, a, b, c }, dtype));
    }
    if let Some(op) = Compare::of_name(op) {
        let ([a, b], _) = alike(line, scope, None, at)?;
        return Ok((Instruction::Compare { op, to: TO, a, b }, DType::Bool));
    }
    if let Some(position) = Position::of_name(op) {
        return Ok((Instruction::Position { to: TO, position }, DType::U32));
    }
    if let Some((instruction, dtype)) = atomic(op, at, line, scope)? {
        return Ok((instruction, dtype));
    }
    if let Some(kind) = Shuffle::of_name(op) {
        let ([a], dtype) = alike(line, scope, wanted, at)?;
        let by = operand_of(line, scope, DType::U32)?;
        return Ok((Instruction::Shuffle { kind, to: TO, a, by }, dtype));
    }
    if let Some((sharing, reduction)) = op.split_once('_').and_then(|(scope, op)| Some((Sharing::of_name(scope)?, Binary::of_name(op)?))) {
        let ([a], dtype) = alike(line, scope, wanted, at)?;
        return Ok((Instruction::Reduce { scope: sharing, op: reduction, to: TO, a }, dtype));
    }
    match op {
        "select" => {
            let condition = operand_of(line, scope, DType::Bool)?;
            let ([a, b], dtype) = alike(line, scope, wanted, at)?;
            Ok((Instruction::Select { to: TO, condition, a, b }, dtype))
        }
        "convert" => {
            let dtype = wanted.ok_or_else(|| error_at(at, "converted to what? Write the type after the name, as in 'x: f32 = convert …'"))?;
            match raw(line, scope)? {
                Raw::Known(a, _, _) => Ok((Instruction::Convert { to: TO, a }, dtype)),
                Raw::Literal(token) => Err(error_at(token.at, "a constant has the type it is used as: move it")),
            }
        }
        "move" => {
            let ([a], dtype) = alike(line, scope, wanted, at)?;
            Ok((Instruction::Move { to: TO, a }, dtype))
        }
        "load" => {
            let (memory, dtype, index) = element(line, scope)?;
            Ok((Instruction::Load { to: TO, memory, index }, dtype))
        }
        "call" => call(line, scope),
        _ => Err(unknown(op, at)),
    }
}

fn call(line: &mut Line, scope: &mut Scope<'_>) -> Result<(Instruction, DType)> {
    let (name, at) = line.name("a function")?;
    let index = scope.callee(&name, at)?;
    let program = scope.program;
    let callee = program.functions.get(index as usize).ok_or_else(|| error_at(at, "no such function"))?;
    let first = scope.function.arguments.len() as u32;
    for parameter in callee.registers.iter().take(callee.parameters as usize) {
        let argument = operand_of(line, scope, parameter.dtype)?;
        scope.function.arguments.push(argument);
    }
    let dtype = callee.result.and_then(|result| program.dtype(callee, result));
    let dtype = dtype.ok_or_else(|| error_at(at, format_args!("'{name}' returns nothing")))?;
    Ok((Instruction::Call { function: index, to: 0, arguments: (first, callee.parameters) }, dtype))
}
