//! Makes programs in Rust.

use elinvar_core::{Access, DType};

use crate::program::{
    Atomic, Binary, Bounds, Compare, Constant, Function, Instruction, Memory, Operand, Parameter, Position, Program, Register, Scope, Shared,
    Shuffle, Ternary, Unary,
};

/// Makes a program statement by statement. It checks nothing: [`verify`](crate::verify) does.
///
/// ```
/// use elinvar_atlas::{Binary, Builder, Compare, Limits, Position, verify};
/// use elinvar_core::{Access, DType};
///
/// let mut b = Builder::new("scale");
/// let x = b.buffer("x", DType::F32, Access::ReadWrite);
/// let (a, n) = (b.scalar("a", DType::F32), b.scalar("n", DType::U32));
/// let i = b.position(Position::GlobalX);
/// let inside = b.compare(Compare::Lt, i, n);
/// b.begin_if(inside);
/// let v = b.load(x, i);
/// let scaled = b.binary(Binary::Mul, v, a);
/// b.store(x, i, scaled);
/// b.end();
/// let program = verify(b.finish(), &Limits::default())?;
/// # Ok::<(), elinvar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    program: Program,
}

impl Builder {
    /// A program of that name, without parameters or statements.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { program: Program { kernel: Function { name: name.clone(), ..Function::default() }, name, ..Program::default() } }
    }

    /// The program.
    pub fn finish(self) -> Program {
        self.program
    }

    /// What happens outside buffers.
    pub fn bounds(&mut self, bounds: Bounds) {
        self.program.bounds = bounds;
    }

    /// The only size of blocks that will do.
    pub fn block(&mut self, block: [u32; 3]) {
        self.program.block = Some(block);
    }

    fn parameter(&mut self, name: &str, dtype: DType, access: Option<Access>) -> u32 {
        self.program.parameters.push(Parameter { name: name.to_owned(), dtype, access });
        self.program.parameters.len() as u32 - 1
    }

    /// A buffer.
    pub fn buffer(&mut self, name: &str, dtype: DType, access: Access) -> Memory {
        Memory::Buffer(self.parameter(name, dtype, Some(access)))
    }

    /// A scalar.
    pub fn scalar(&mut self, name: &str, dtype: DType) -> Operand {
        Operand::Parameter(self.parameter(name, dtype, None))
    }

    /// An array that the threads of a block share.
    pub fn shared(&mut self, name: &str, dtype: DType, length: u32) -> Memory {
        self.program.shared.push(Shared { name: name.to_owned(), dtype, length });
        Memory::Shared(self.program.shared.len() as u32 - 1)
    }

    /// A register that is assigned with [`Builder::assign`].
    pub fn register(&mut self, name: &str, dtype: DType) -> Operand {
        self.program.kernel.registers.push(Register { name: name.to_owned(), dtype });
        Operand::Register(self.program.kernel.registers.len() as u32 - 1)
    }

    /// A register for a result, named by its number.
    fn result(&mut self, dtype: DType) -> (u32, Operand) {
        let number = self.program.kernel.registers.len() as u32;
        (number, self.register(&format!("r{number}"), dtype))
    }

    fn dtype(&self, operand: Operand) -> DType {
        self.program.dtype(&self.program.kernel, operand).unwrap_or(DType::Bool)
    }

    fn element(&self, memory: Memory) -> DType {
        self.program.memory(memory).map_or(DType::Bool, |(_, dtype)| dtype)
    }

    /// Any statement.
    pub fn push(&mut self, instruction: Instruction) {
        self.program.kernel.body.push(instruction);
    }

    fn push_to(&mut self, dtype: DType, instruction: impl FnOnce(u32) -> Instruction) -> Operand {
        let (to, operand) = self.result(dtype);
        self.push(instruction(to));
        operand
    }

    /// `register = move a`; nothing if it is no register.
    pub fn assign(&mut self, register: Operand, a: Operand) {
        if let Operand::Register(to) = register {
            self.push(Instruction::Move { to, a });
        }
    }

    /// A function of one value.
    pub fn unary(&mut self, op: Unary, a: Operand) -> Operand {
        self.push_to(self.dtype(a), |to| Instruction::Unary { op, to, a })
    }

    /// A function of two values.
    pub fn binary(&mut self, op: Binary, a: Operand, b: Operand) -> Operand {
        self.push_to(self.dtype(a), |to| Instruction::Binary { op, to, a, b })
    }

    /// A function of three values.
    pub fn ternary(&mut self, op: Ternary, a: Operand, b: Operand, c: Operand) -> Operand {
        self.push_to(self.dtype(a), |to| Instruction::Ternary { op, to, a, b, c })
    }

    /// A comparison.
    pub fn compare(&mut self, op: Compare, a: Operand, b: Operand) -> Operand {
        self.push_to(DType::Bool, |to| Instruction::Compare { op, to, a, b })
    }

    /// `a` where the condition holds, else `b`.
    pub fn select(&mut self, condition: Operand, a: Operand, b: Operand) -> Operand {
        self.push_to(self.dtype(a), |to| Instruction::Select { to, condition, a, b })
    }

    /// A value as another type.
    pub fn convert(&mut self, dtype: DType, a: Operand) -> Operand {
        self.push_to(dtype, |to| Instruction::Convert { to, a })
    }

    /// Where the thread is.
    pub fn position(&mut self, position: Position) -> Operand {
        self.push_to(DType::U32, |to| Instruction::Position { to, position })
    }

    /// An element of memory.
    pub fn load(&mut self, memory: Memory, index: Operand) -> Operand {
        self.push_to(self.element(memory), |to| Instruction::Load { to, memory, index })
    }

    /// Stores an element.
    pub fn store(&mut self, memory: Memory, index: Operand, value: Operand) {
        self.push(Instruction::Store { memory, index, value });
    }

    /// Changes an element in one step; gives its old value.
    pub fn atomic(&mut self, op: Atomic, memory: Memory, index: Operand, value: Operand) -> Operand {
        self.push_to(self.element(memory), |to| Instruction::Atomic { op, to: Some(to), memory, index, value })
    }

    /// A reduction over a simdgroup or the block.
    pub fn reduce(&mut self, scope: Scope, op: Binary, a: Operand) -> Operand {
        self.push_to(self.dtype(a), |to| Instruction::Reduce { scope, op, to, a })
    }

    /// The value of another lane.
    pub fn shuffle(&mut self, kind: Shuffle, a: Operand, by: Operand) -> Operand {
        self.push_to(self.dtype(a), |to| Instruction::Shuffle { kind, to, a, by })
    }

    /// A function of values that calls may name; `body` computes its result from its parameters.
    pub fn function(&mut self, name: &str, parameters: &[(&str, DType)], body: impl FnOnce(&mut Self, &[Operand]) -> Operand) -> u32 {
        let registers = parameters.iter().map(|(name, dtype)| Register { name: (*name).to_owned(), dtype: *dtype }).collect();
        let function = Function { name: name.to_owned(), registers, parameters: parameters.len() as u32, ..Function::default() };
        let kernel = std::mem::replace(&mut self.program.kernel, function);
        let given: Vec<_> = (0..parameters.len() as u32).map(Operand::Register).collect();
        let result = body(self, &given);
        let mut function = std::mem::replace(&mut self.program.kernel, kernel);
        function.result = Some(result);
        self.program.functions.push(function);
        self.program.functions.len() as u32 - 1
    }

    /// What a function returns.
    pub fn call(&mut self, function: u32, arguments: &[Operand]) -> Operand {
        let known = &mut self.program.kernel.arguments;
        let range = (known.len() as u32, arguments.len() as u32);
        known.extend_from_slice(arguments);
        let callee = self.program.functions.get(function as usize);
        let dtype = callee.and_then(|callee| callee.result.and_then(|result| self.program.dtype(callee, result)));
        self.push_to(dtype.unwrap_or(DType::Bool), |to| Instruction::Call { function, to, arguments: range })
    }

    /// `barrier`
    pub fn barrier(&mut self) {
        self.push(Instruction::Barrier);
    }

    /// `if condition`
    pub fn begin_if(&mut self, condition: Operand) {
        self.push(Instruction::If { condition });
    }

    /// `else`
    pub fn begin_else(&mut self) {
        self.push(Instruction::Else);
    }

    /// `loop`, at most `bound` times if there is one.
    pub fn begin_loop(&mut self, bound: Option<u32>) {
        self.push(Instruction::Loop { bound });
    }

    /// `while condition`: leaves the innermost loop unless it holds.
    pub fn continue_while(&mut self, condition: Operand) {
        self.push(Instruction::While { condition });
    }

    /// `end` of the innermost block.
    pub fn end(&mut self) {
        self.push(Instruction::End);
    }
}

impl From<Constant> for Operand {
    fn from(constant: Constant) -> Self {
        Operand::Constant(constant)
    }
}
