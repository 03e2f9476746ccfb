//! Reads a program: its header, its functions, its kernel.

use std::collections::HashMap;

use elinvar_core::{Access, DType, Result};

use super::{
    lexer::{error_at, tokens},
    line::Line,
    scope::{Global, Scope, check_name},
    statement,
};
use crate::program::{Bounds, Function, Location, Memory, Parameter, Program, Register, Shared};

/// The version of the text form that this crate reads.
const VERSION: &str = "1";

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
                return Ok(Some(Line::new(tokens, end)));
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
