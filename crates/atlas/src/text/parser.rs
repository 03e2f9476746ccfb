//! Reads a program: its header, its functions, its kernel.

use std::collections::HashMap;

use elinvar_core::{Access, DType, Result};

use super::{
    lexer::{Kind, Token, error_at, tokens},
    statement,
};
use crate::program::{self, Bounds, Function, Location, Memory, Operand, Parameter, Program, Register, Shared};

/// The version of the text form that this crate reads.
const VERSION: &str = "1";

/// The tokens of a line, taken one after the other.
pub(super) struct Line {
    tokens: std::vec::IntoIter<Token>,
    /// Where the line ends.
    end: Location,
}

impl Line {
    pub(super) fn at(&self) -> Location {
        self.tokens.as_slice().first().map_or(self.end, |t| t.at)
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.as_slice().first()
    }

    pub(super) fn next(&mut self, what: &str) -> Result<Token> {
        let end = self.end;
        self.tokens.next().ok_or_else(|| error_at(end, format_args!("the line ends where {what} is expected")))
    }

    pub(super) fn name(&mut self, what: &str) -> Result<(String, Location)> {
        let token = self.next(what)?;
        match token.kind {
            Kind::Name(name) => Ok((name, token.at)),
            _ => Err(error_at(token.at, format_args!("'{}' where {what} is expected", token.text()))),
        }
    }

    pub(super) fn mark(&mut self, mark: &str) -> Result<()> {
        let token = self.next(&format!("'{mark}'"))?;
        if token.kind != Kind::Mark(MARK_NAMES.iter().find(|m| **m == mark).copied().unwrap_or("")) {
            return Err(error_at(token.at, format_args!("'{}' where '{mark}' is expected", token.text())));
        }
        Ok(())
    }

    pub(super) fn takes(&mut self, mark: &str) -> bool {
        let found = self.peek().is_some_and(|t| matches!(t.kind, Kind::Mark(m) if m == mark));
        if found {
            self.tokens.next();
        }
        found
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let (name, at) = self.name("a type")?;
        DType::of_program(&name).map_err(|error| error_at(at, error))
    }

    pub(super) fn count(&mut self, what: &str) -> Result<u32> {
        let token = self.next(what)?;
        token.text().parse().map_err(|_| error_at(token.at, format_args!("'{}' where {what} is expected", token.text())))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        match self.tokens.next() {
            Some(token) => Err(error_at(token.at, format_args!("'{}' where the line should end", token.text()))),
            None => Ok(()),
        }
    }
}

const MARK_NAMES: &[&str] = &["->", ":", "=", "[", "]", "(", ")", ","];

/// What a name of a function's text means.
pub(super) struct Scope<'a> {
    pub(super) program: &'a Program,
    globals: &'a HashMap<String, Global>,
    registers: HashMap<String, u32>,
    pub(super) function: Function,
}

#[derive(Clone, Copy)]
enum Global {
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
            _ => None,
        };
        known.ok_or_else(|| error_at(at, format_args!("'{name}' is no buffer and no shared array")))
    }

    pub(super) fn callee(&self, name: &str, at: Location) -> Result<u32> {
        match self.globals.get(name) {
            Some(Global::Function(index)) => Ok(*index),
            _ => Err(error_at(at, format_args!("'{name}' is no function written before this one"))),
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

fn check_name(name: &str, at: Location) -> Result<()> {
    program::check_name(name).map_err(|message| error_at(at, message))
}

/// Reads the text form.
///
/// # Errors
/// The first thing that is wrong, with its line and column.
pub fn parse(text: &str) -> Result<Program> {
    let mut reader = Reader { lines: text.lines().enumerate(), globals: HashMap::new(), last: 1, program: Program::default() };
    reader.version()?;
    while !reader.item()? {}
    match reader.line()? {
        Some(line) => Err(error_at(line.at(), "nothing may follow the kernel")),
        None => Ok(reader.program),
    }
}

struct Reader<'a> {
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
    globals: HashMap<String, Global>,
    last: u32,
    program: Program,
}

impl Reader<'_> {
    /// The next line that has tokens.
    fn line(&mut self) -> Result<Option<Line>> {
        for (index, text) in self.lines.by_ref() {
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            self.last = number;
            let tokens = tokens(text, number)?;
            if !tokens.is_empty() {
                let end = Location { line: number, column: text.chars().count() as u32 + 1 };
                return Ok(Some(Line { tokens: tokens.into_iter(), end }));
            }
        }
        Ok(None)
    }

    fn expect_line(&mut self, what: &str) -> Result<Line> {
        let line = self.line()?;
        line.ok_or_else(|| error_at(Location { line: self.last, column: 1 }, format_args!("the text ends where {what} is expected")))
    }

    fn version(&mut self) -> Result<()> {
        let mut line = self.expect_line("'atlas 1'")?;
        let (word, at) = line.name("'atlas'")?;
        if word != "atlas" {
            return Err(error_at(at, "a program starts with the line 'atlas 1'"));
        }
        let version = line.next("a version")?;
        if version.text() != VERSION {
            return Err(error_at(version.at, format_args!("version {}: this build reads version {VERSION}", version.text())));
        }
        line.finish()
    }

    /// A line of the header, or a function, or the kernel, which ends the program.
    fn item(&mut self) -> Result<bool> {
        let mut line = self.expect_line("'kernel'")?;
        let (word, at) = line.name("an item")?;
        match word.as_str() {
            "program" => (self.program.name, self.program.header.name) = line.name("the program's name")?,
            "bounds" => {
                let (name, at) = line.name("a policy")?;
                self.program.header.bounds = at;
                self.program.bounds = Bounds::of_name(&name).ok_or_else(|| error_at(at, "bounds are checked, trap or unchecked"))?;
            }
            "block" => {
                let mut block = [line.count("the threads of a block")?, 1, 1];
                for extent in &mut block[1..] {
                    if line.peek().is_some() {
                        *extent = line.count("an extent")?;
                    }
                }
                self.program.block = Some(block);
                self.program.header.block = at;
            }
            "buffer" | "scalar" => {
                let (name, at) = line.name("a name")?;
                line.mark(":")?;
                let access = if word == "buffer" { Some(access(&mut line)?) } else { None };
                let dtype = line.dtype()?;
                let index = self.program.parameters.len() as u32;
                self.define(&name, at, if access.is_some() { Global::Memory(Memory::Buffer(index)) } else { Global::Scalar(index) })?;
                self.program.parameters.push(Parameter { name, dtype, access });
                self.program.header.parameters.push(at);
            }
            "shared" => {
                let (name, at) = line.name("a name")?;
                line.mark(":")?;
                let dtype = line.dtype()?;
                line.mark("[")?;
                // Nothing: what a launch gives.
                let length = if line.takes("]") {
                    0
                } else {
                    let length = line.count("a number of elements")?;
                    if length == 0 {
                        return Err(error_at(at, "no shared array is empty; without a number, its length is what a launch gives"));
                    }
                    line.mark("]")?;
                    length
                };
                self.define(&name, at, Global::Memory(Memory::Shared(self.program.shared.len() as u32)))?;
                self.program.shared.push(Shared { name, dtype, length });
                self.program.header.shared.push(at);
            }
            "function" => return self.function(line).map(|()| false),
            "kernel" => {
                line.finish()?;
                let name = self.program.name.clone();
                self.program.kernel = self.body(Function { name, ..Function::default() }, None)?;
                return Ok(true);
            }
            _ => {
                let items = "program, bounds, block, buffer, scalar, shared, function or kernel";
                return Err(error_at(at, format_args!("'{word}' where {items} is expected")));
            }
        }
        line.finish().map(|()| false)
    }

    fn define(&mut self, name: &str, at: Location, global: Global) -> Result<()> {
        check_name(name, at)?;
        if self.globals.insert(name.to_owned(), global).is_some() {
            return Err(error_at(at, format_args!("'{name}' is declared twice")));
        }
        Ok(())
    }

    fn function(&mut self, mut line: Line) -> Result<()> {
        let (name, at) = line.name("the function's name")?;
        let mut function = Function { name: name.clone(), ..Function::default() };
        line.mark("(")?;
        while !line.takes(")") {
            if function.parameters > 0 {
                line.mark(",")?;
            }
            let (name, at) = line.name("a parameter")?;
            check_name(&name, at)?;
            if self.globals.contains_key(&name) || function.registers.iter().any(|r| r.name == name) {
                return Err(error_at(at, format_args!("'{name}' is declared twice")));
            }
            line.mark(":")?;
            function.registers.push(Register { name, dtype: line.dtype()? });
            function.parameters += 1;
        }
        line.mark("->")?;
        let dtype = line.dtype()?;
        line.finish()?;
        let function = self.body(function, Some(dtype))?;
        self.define(&name, at, Global::Function(self.program.functions.len() as u32))?;
        self.program.functions.push(function);
        self.program.header.functions.push(at);
        Ok(())
    }

    /// The statements up to the `end` of the function, which before it returns a value of type `result`.
    fn body(&mut self, function: Function, result: Option<DType>) -> Result<Function> {
        let globals = std::mem::take(&mut self.globals);
        let program = std::mem::take(&mut self.program);
        let registers = function.registers.iter().enumerate().map(|(index, r)| (r.name.clone(), index as u32)).collect();
        let mut scope = Scope { program: &program, globals: &globals, registers, function };
        let mut depth = 0u32;
        loop {
            let mut line = self.expect_line("'end'")?;
            let at = line.at();
            let word = line.peek().map_or("", |t| t.text()).to_owned();
            if scope.function.result.is_some() && word != "end" {
                return Err(error_at(at, "'return' is the last statement of a function"));
            }
            match word.as_str() {
                "end" if depth == 0 => {
                    line.next("'end'")?;
                    line.finish()?;
                    if result.is_none() {
                        scope.function.locations.push(at);
                    }
                    if result.is_some() && scope.function.result.is_none() {
                        return Err(error_at(at, "the function returns nothing: 'return' must be its last statement"));
                    }
                    break;
                }
                "return" => {
                    line.next("'return'")?;
                    let Some(dtype) = result.filter(|_| depth == 0) else {
                        return Err(error_at(at, "'return' is for the end of functions; in the kernel 'exit' ends a thread"));
                    };
                    scope.function.result = Some(statement::operand_of(&mut line, &scope, dtype)?);
                    line.finish()?;
                    scope.function.locations.push(at);
                }
                _ => {
                    let instruction = statement::parse(line, &mut scope)?;
                    depth = depth.saturating_add(statement::opens(&instruction)).saturating_sub(statement::closes(&instruction));
                    scope.function.body.push(instruction);
                    scope.function.locations.push(at);
                }
            }
        }
        let function = scope.function;
        (self.globals, self.program) = (globals, program);
        Ok(function)
    }
}

fn access(line: &mut Line) -> Result<Access> {
    let (name, at) = line.name("read, write or update")?;
    match name.as_str() {
        "read" => Ok(Access::Read),
        "write" => Ok(Access::Write),
        "update" => Ok(Access::ReadWrite),
        _ => Err(error_at(at, format_args!("'{name}' where read, write or update is expected"))),
    }
}
