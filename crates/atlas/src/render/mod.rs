//! Writes programs in Metal Shading Language, with their own names. Every other device has the text lowered like any kernel's.

mod block;
mod body;
mod context;
mod expressions;
mod faults;
mod names;
mod statements;
mod words;

use std::fmt::Write;

use elinvar_core::{Access, DType, METAL_VERSION};
use elinvar_math::functions;

use crate::{
    program::{Binary, Bounds, Function, Instruction, Operand, Position, Program, Scope},
    verify::Verified,
};
use body::Body;
use context::Context;
use faults::Faults;
use names::{element_name, held, length_of, own, zero};
use words::words;

pub use block::{Field, ParameterBlock};

/// What programs use of Metal.
const PRELUDE: &str = include_str!("atlas.metal");

/// A program in Metal.
#[derive(Clone, Debug)]
pub struct MetalProgram {
    /// The text, which needs nothing but Metal's own headers.
    pub text: String,
    /// The kernel's name.
    pub kernel: String,
    /// The version of Metal that it needs, as `__METAL_VERSION__` has it: fences came with 3.2.
    pub version: u32,
    /// What its launch fails with, by the number that the kernel reports, as a [`Metal::rejected`](elinvar_core::Metal::rejected) does.
    pub rejections: Vec<String>,
    /// Whether it is for buffers that begin at multiples of 16 bytes, and for no others.
    pub is_aligned: bool,
}

/// Writes a program in Metal: if its buffers begin at multiples of 16 bytes (`aligned`), with neighbouring elements in one access.
pub fn metal(verified: &Verified, aligned: bool) -> MetalProgram {
    let program = verified.program();
    let checked = program.bounds != Bounds::Unchecked;
    let block = ParameterBlock::of(program);
    // The one name that another may have as well.
    let kernel = format!("program_{}", program.name);
    let parameters = program.parameters.iter().map(|p| own(&p.name)).collect();
    let shared = program.shared.iter().map(|s| own(&s.name)).collect();
    let functions = program.functions.iter().map(|f| own(&f.name)).collect();
    let faults = Faults::new(verified);
    let words = if aligned { words(program, &faults) } else { vec![None; program.kernel.body.len()] };
    let is_aligned = words.iter().any(Option::is_some);
    let context = Context {
        program,
        parameters,
        shared,
        functions,
        checked,
        has_block: block.size() > 0,
        faults,
        words,
        steps: verified.limits().steps.unwrap_or(0),
    };

    let mut text = String::from("#include <metal_stdlib>\nusing namespace metal;\n\n");
    if uses_functions(program) {
        text += elinvar_math::METAL.text;
        text.push('\n');
    }
    text += functions::METAL.text;
    text += PRELUDE;
    for op in Binary::ALL.iter().filter(|op| reduces(program, **op)) {
        text += op.definition().text;
    }
    if block.size() > 0 {
        text += "\nstruct AtlasParameters {\n";
        for field in block.fields() {
            let _ = match *field {
                Field::Length(parameter) => writeln!(text, "    ulong length_{};", program.parameters[parameter].name),
                Field::Shared(array) => writeln!(text, "    ulong length_{};", program.shared[array].name),
                Field::Scalar(parameter, dtype) => writeln!(text, "    {} {};", element_name(dtype), context.parameters[parameter]),
            };
        }
        text += "};\n";
    }
    if !program.functions.is_empty() {
        text += "\nnamespace program {\n";
        for (number, name) in context.functions.iter().enumerate() {
            context.function(number, name, &mut text);
        }
        text += "\n}  // namespace program\n";
    }
    context.kernel(&kernel, &mut text);
    let has_fence = all_functions(program).flat_map(|f| &f.body).any(|instruction| matches!(instruction, Instruction::Fence));
    let version = if has_fence { 320 } else { METAL_VERSION };
    MetalProgram { text, kernel, version, rejections: context.faults.messages, is_aligned }
}

/// Whether the library's strict functions are needed: those that approximate.
fn uses_functions(program: &Program) -> bool {
    all_functions(program).flat_map(|f| &f.body).any(|instruction| match *instruction {
        Instruction::Unary { op, .. } => op.error().ulp > 0.0,
        Instruction::Binary { op, .. } => op.error().ulp > 0.0,
        Instruction::Ternary { op, .. } => op.error().ulp > 0.0,
        Instruction::Compare { .. } | Instruction::Select { .. } | Instruction::Convert { .. } | Instruction::Move { .. } => false,
        Instruction::Position { .. } | Instruction::Load { .. } | Instruction::Store { .. } | Instruction::Atomic { .. } => false,
        Instruction::CompareExchange { .. } | Instruction::Reduce { .. } | Instruction::Shuffle { .. } | Instruction::Call { .. } => false,
        Instruction::Barrier | Instruction::Fence | Instruction::If { .. } | Instruction::Else | Instruction::Loop { .. } => false,
        Instruction::While { .. } | Instruction::Break | Instruction::Continue | Instruction::End | Instruction::Exit => false,
    })
}

/// Whether threads reduce by that function.
fn reduces(program: &Program, by: Binary) -> bool {
    program.kernel.body.iter().any(|instruction| matches!(instruction, Instruction::Reduce { op, .. } if *op == by))
}

fn all_functions(program: &Program) -> impl Iterator<Item = &Function> {
    program.functions.iter().chain([&program.kernel])
}

/// The thread's places that a kernel takes, beside its buffers.
fn attributes(program: &Program) -> Vec<&'static str> {
    use Position as P;
    let positions =
        |wanted: &[Position]| program.kernel.body.iter().any(|i| matches!(i, Instruction::Position { position, .. } if wanted.contains(position)));
    let any = |test: fn(&Instruction) -> bool| program.kernel.body.iter().any(test);
    let group = any(|i| matches!(i, Instruction::Reduce { scope: Scope::Group, .. }));
    let together = any(|i| matches!(i, Instruction::Reduce { .. } | Instruction::Shuffle { .. }));
    let shared = !program.shared.is_empty();
    [
        (positions(&[P::GlobalX, P::GlobalY, P::GlobalZ]), "uint3 atlas_position [[thread_position_in_grid]]"),
        (positions(&[P::LocalX, P::LocalY, P::LocalZ]), "uint3 atlas_local [[thread_position_in_threadgroup]]"),
        (positions(&[P::BlockX, P::BlockY, P::BlockZ]), "uint3 atlas_block [[threadgroup_position_in_grid]]"),
        (positions(&[P::BlockSizeX, P::BlockSizeY, P::BlockSizeZ]) || shared || group, "uint3 atlas_block_size [[threads_per_threadgroup]]"),
        (positions(&[P::GridSizeX, P::GridSizeY, P::GridSizeZ]), "uint3 atlas_grid_size [[threadgroups_per_grid]]"),
        (positions(&[P::LocalIndex, P::Lane, P::Simdgroup]) || shared || together, "uint atlas_index [[thread_index_in_threadgroup]]"),
    ]
    .into_iter()
    .filter_map(|(needed, text)| needed.then_some(text))
    .collect()
}

impl Context<'_> {
    fn function(&self, number: usize, name: &str, text: &mut String) {
        let function = &self.program.functions[number];
        let mut body = Body::new(self, number);
        let taken: Vec<_> = function
            .registers
            .iter()
            .enumerate()
            .take(function.parameters as usize)
            .map(|(r, p)| format!("{} {}", held(p.dtype), body.register(r as u32)))
            .collect();
        let block = self.has_block.then(|| "constant AtlasParameters& atlas_parameters".to_owned());
        let counter = self.faults.counts(number).then(|| "thread uint& atlas_left, device atomic_uint* atlas_fault".to_owned());
        let taken: Vec<_> = taken.into_iter().chain(block).chain(counter).collect();
        let result = function.result.and_then(|result| self.program.dtype(function, result)).unwrap_or(DType::F32);
        let _ = writeln!(text, "\ninline {} {name}({}) {{", held(result), taken.join(", "));
        body.write(text);
        let result = function.result.map_or_else(String::new, |result: Operand| body.operand(result));
        let _ = writeln!(text, "    return {result};\n}}");
    }

    fn kernel(&self, name: &str, text: &mut String) {
        let program = self.program;
        let buffers: Vec<_> =
            program.parameters.iter().zip(&self.parameters).filter_map(|(p, name)| p.access.map(|access| (p.dtype, access, name))).collect();
        let mut taken = Vec::new();
        for (index, (dtype, access, name)) in buffers.iter().enumerate() {
            let constant = if *access == Access::Read { "const " } else { "" };
            taken.push(format!("device {constant}{}* {name} [[buffer({index})]]", element_name(*dtype)));
        }
        if self.has_block {
            taken.push(format!("constant AtlasParameters& atlas_parameters [[buffer({})]]", buffers.len()));
        }
        if self.faults.any() {
            taken.push(format!("device atomic_uint* atlas_fault [[buffer({})]]", buffers.len() + usize::from(self.has_block)));
        }
        let shared = || program.shared.iter().zip(&self.shared);
        for (given, name) in shared().filter(|(s, _)| s.length == 0) {
            taken.push(format!("threadgroup {}* {name} [[threadgroup(0)]]", element_name(given.dtype)));
        }
        taken.extend(attributes(program).into_iter().map(str::to_owned));
        let _ = writeln!(text, "\n[[kernel]] void {name}(\n    {})\n{{", taken.join(",\n    "));
        for (shared, name) in shared().filter(|(s, _)| s.length > 0) {
            let _ = writeln!(text, "    threadgroup {} {name}[{}];", element_name(shared.dtype), shared.length);
        }
        let mut reduced: Vec<_> = self.program.kernel.body.iter().filter_map(|i| self.reduced_type(i)).collect();
        reduced.sort_unstable();
        reduced.dedup();
        for name in reduced {
            let _ = writeln!(text, "    threadgroup {name} atlas_partial_{name}[32];");
        }
        if !program.shared.is_empty() {
            text.push_str("    const uint atlas_threads = atlas_block_size.x * atlas_block_size.y * atlas_block_size.z;\n");
            for (array, name) in shared() {
                let (length, zero) = (length_of(array), zero(array.dtype));
                let _ = writeln!(text, "    for (uint atlas_i = atlas_index; atlas_i < {length}; atlas_i += atlas_threads) {{");
                let _ = writeln!(text, "        {name}[atlas_i] = {zero};\n    }}");
            }
            text.push_str("    threadgroup_barrier(mem_flags::mem_threadgroup);\n");
        }
        Body::new(self, program.functions.len()).write(text);
        text.push_str("}\n");
    }
}
