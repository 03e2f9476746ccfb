//! One function's representation, rewritten for this machine.
//!
//! Address spaces go: the simulator's memory has one. Threadgroup variables are asked of the executor, as a text's are. Calls of Metal's library become
//! calls of functions that are added. Function constants get their values. What Apple's compiler promised about memory and time goes too, so that the
//! optimiser does not rely on what is to be checked. An entry point is added that hands over the arguments.
//!
//! Lines are those of the disassembly, for findings, unless the library has line tables of its own.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
};

use elinvar_core::{ConstantValue, Error, Result};
use elinvar_metallib::disassembly;
use elinvar_msl::{Parameter, ParameterKind};

use super::{
    intrinsics::{Call, Intrinsics, is_sited},
    types::{balanced, name_at, name_end, operand, operands, take_type, vector},
};
use crate::{Math, symbols::COMPILATION_FOLDER};

/// The entry point's symbol.
pub(crate) const ENTRY: &str = "elv_entry_0";

/// What is to be rewritten, and how.
pub(crate) struct Request<'a> {
    /// What messages and findings call the library.
    pub(crate) library: &'a str,
    pub(crate) function: &'a str,
    pub(crate) parameters: &'a [Parameter],
    pub(crate) constants: &'a [(u32, ConstantValue)],
    pub(crate) checked: bool,
    pub(crate) math: Math,
    /// The functions that the runtime defines.
    pub(crate) runtime: &'a HashSet<String>,
}

impl Request<'_> {
    fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(format!("{}, function `{}`: {what}", self.library, self.function))
    }
}

/// A variable in threadgroup memory.
struct Shared<'a> {
    number: usize,
    /// In the source.
    name: String,
    kind: &'a str,
    alignment: &'a str,
}

/// Flags that let arithmetic be changed.
const FAST_FLAGS: &[&str] = &[" fast", " reassoc", " nnan", " ninf", " nsz", " arcp", " contract", " afn"];
/// Functions that only promise something.
const PROMISES: &[&str] = &["@llvm.lifetime.", "@llvm.assume(", "@llvm.experimental.noalias.scope.decl("];
const CONSTANT: &str = ".MTL_FC_INIT_";

/// The module, rewritten.
///
/// # Errors
/// What the simulator does not execute: textures, functions that it does not know.
pub(crate) fn lower(module: &str, request: &Request<'_>) -> Result<String> {
    let shared: HashMap<&str, Shared<'_>> =
        module.lines().filter(|line| line.starts_with('@')).filter_map(shared).enumerate().map(numbered).collect();
    let defined = module.lines().filter(|line| line.starts_with("define ")).filter_map(|line| Some(name_at(line, line.find('@')?))).collect();
    let mut lowering = Lowering {
        request,
        shared,
        defined,
        shrinks: shrinks(module),
        has_lines: module.contains("\n!llvm.dbg.cu = "),
        intrinsics: Intrinsics::new(request.runtime),
        declared: BTreeSet::new(),
        out: String::with_capacity(2 * module.len()),
        functions: Vec::new(),
        lines: BTreeSet::new(),
        masks: 0,
    };
    lowering.module(module)?;
    lowering.finish(module)
}

fn numbered<'a>((number, (name, shared)): (usize, (&'a str, Shared<'a>))) -> (&'a str, Shared<'a>) {
    (name, Shared { number, ..shared })
}

/// `@name = internal unnamed_addr addrspace(3) global [32 x float] undef, align 4`.
fn shared(line: &str) -> Option<(&str, Shared<'_>)> {
    let (name, definition) = line.split_once(" = ")?;
    let (kind, rest) = take_type(definition.split_once("addrspace(3) global ")?.1)?;
    let alignment = rest.rsplit_once("align ").map_or("16", |(_, alignment)| alignment.split([',', ' ']).next().unwrap_or(alignment));
    Some((name, Shared { number: 0, name: source_name(name), kind, alignment }))
}

/// The variable's name in a mangled one: `_ZZ7softmaxvE9local_max` has `local_max`.
fn source_name(mangled: &str) -> String {
    let plain = mangled.trim_matches(['@', '"']);
    let plain = plain.rsplit_once('.').filter(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_digit())).map_or(plain, |(name, _)| name);
    let mut named = plain.match_indices('E').filter_map(|(at, _)| {
        let rest = &plain[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = rest[..digits].parse().ok()?;
        // A discriminator may follow: `_0`.
        rest.get(digits..digits + length).filter(|_| rest[digits + length..].bytes().all(|byte| byte == b'_' || byte.is_ascii_digit()))
    });
    named.next_back().unwrap_or(plain).to_owned()
}

/// Whether matrices can be kept as the two elements that a lane has: none of them lies in memory, whose layout they are part of.
fn shrinks(module: &str) -> bool {
    let mut matrices: Vec<&str> = vec!["<64 x "];
    for (name, definition) in module.lines().filter(|line| line.starts_with('%')).filter_map(|line| line.split_once(" = type ")) {
        if matrices.iter().any(|matrix| definition.contains(matrix)) {
            matrices.push(name);
        }
    }
    let in_memory = |line: &str| ["alloca ", " global ", "getelementptr ", " load ", " store "].iter().any(|word| line.contains(word));
    module.contains("<64 x ") && !module.lines().filter(|line| in_memory(line)).any(|line| matrices.iter().any(|matrix| line.contains(matrix)))
}

struct Lowering<'a> {
    request: &'a Request<'a>,
    shared: HashMap<&'a str, Shared<'a>>,
    /// The module's own functions.
    defined: HashSet<&'a str>,
    shrinks: bool,
    /// The library has line tables of its own.
    has_lines: bool,
    intrinsics: Intrinsics<'a>,
    declared: BTreeSet<String>,
    out: String,
    /// The first line of each.
    functions: Vec<usize>,
    /// Of which there are places: function, line.
    lines: BTreeSet<(usize, usize)>,
    masks: usize,
}

impl<'a> Lowering<'a> {
    fn module(&mut self, module: &'a str) -> Result<()> {
        let mut lines = module.lines().enumerate().map(|(at, line)| (at + 1, line));
        while let Some((number, line)) = lines.next() {
            match line.as_bytes().first() {
                Some(b'@') => self.global(line)?,
                Some(b'%') => self.push(&self.plain(line)),
                Some(b'!') if self.has_lines => self.push(&self.plain(line)),
                Some(b'd') if line.starts_with("declare ") => self.declaration(line),
                Some(b'd') if line.starts_with("define ") => {
                    let body: Vec<_> = lines.by_ref().take_while(|(_, line)| *line != "}").collect();
                    self.function(number, line, &body)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn push(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    /// Without address spaces, and with matrices of two elements.
    fn plain(&self, line: &str) -> String {
        let mut plain = line.replace("addrspacecast", "bitcast");
        for space in [" addrspace(1)", " addrspace(2)", " addrspace(3)"] {
            plain = plain.replace(space, "");
        }
        if self.shrinks && plain.contains("<64 x ") { shrunk(&plain) } else { plain }
    }

    fn global(&mut self, line: &str) -> Result<()> {
        const LISTS: &[&str] = &["@llvm.used", "@llvm.compiler.used", "@llvm.global_dtors"];
        let Some((name, definition)) = line.split_once(" = ") else { return Ok(()) };
        if self.shared.contains_key(name) || LISTS.contains(&name) {
            return Ok(());
        }
        if [" external ", " extern_weak ", " ifunc "].iter().any(|word| format!(" {definition}").contains(word)) {
            return Err(self.request.unsupported(&format!("it uses `{}`, which is not in the library", name.trim_matches(['@', '"']))));
        }
        let value = self.constant(name, definition).unwrap_or_else(|| {
            let plain = without_section(&self.plain(definition).replace(" externally_initialized", ""));
            format!("{name} = {}", plain.split(", !").next().unwrap_or(&plain))
        });
        self.push(&value);
        Ok(())
    }

    /// `@_Z8has_mask.MTL_FC_INIT_20_b = … externally_initialized constant i8 undef, …`: the function constant 20, with its value.
    fn constant(&self, name: &str, definition: &str) -> Option<String> {
        let (index, kind) = name.trim_matches('"').split_once(CONSTANT)?.1.split_once('_')?;
        let index: u32 = index.parse().ok()?;
        let (stored, _) = take_type(definition.split_once(" constant ")?.1)?;
        let given = self.request.constants.iter().find(|(given, _)| *given == index).map(|(_, value)| *value);
        Some(format!("{name} = internal constant {stored} {}", given.map_or("zeroinitializer".to_owned(), |value| literal(value, stored, kind))))
    }

    fn declaration(&mut self, line: &str) {
        let name = line.find('@').map_or("", |at| name_at(line, at));
        if name.starts_with("@llvm.") && !PROMISES.iter().any(|promise| format!("{name}(").contains(promise)) && !name.starts_with("@llvm.dbg.") {
            let plain = intrinsic_name(&self.plain(line));
            let end = plain.find('(').and_then(|at| Some(at + balanced(&plain[at..])?)).unwrap_or(plain.len());
            self.declared.insert(plain[..end].to_owned());
        }
    }

    fn function(&mut self, number: usize, line: &'a str, body: &[(usize, &'a str)]) -> Result<()> {
        let name = line.find('@').map_or("", |at| name_at(line, at));
        let plain = self.plain(line);
        let start = plain.find(name).unwrap_or(0) + name.len();
        let end = start + balanced(&plain[start..]).ok_or_else(|| Error::internal(format!("a function whose parameters do not end: {line}")))?;
        let is_entry = name.trim_matches(['@', '"']) == self.request.function;
        let (result, parameters) = if is_entry {
            ("internal void ".to_owned(), bare(&plain[start + 1..end - 1]))
        } else {
            (linkage(&plain[..plain.find(name).unwrap_or(0)]), plain[start + 1..end - 1].to_owned())
        };
        let lines = if self.has_lines {
            line.rsplit_once(" !dbg ").map_or(String::new(), |(_, at)| format!(" !dbg {}", at.trim_end_matches([' ', '{'])))
        } else {
            format!(" !dbg !{}", FIRST_FUNCTION + self.functions.len())
        };
        self.functions.push(number);
        self.push(&format!("\ndefine {result}{name}({parameters}) #0{lines} {{"));
        let label = body.first().is_some_and(|(_, line)| line.ends_with(':') && !line.starts_with(' '));
        let (label, body) = body.split_at(usize::from(label));
        label.iter().for_each(|(_, line)| self.push(line));
        let mut function = Function { hoisted: String::new(), used: BTreeSet::new(), expressions: 0 };
        let outer = std::mem::take(&mut self.out);
        for (at, line) in body {
            self.line(*at, line, &mut function)?;
        }
        let rewritten = std::mem::replace(&mut self.out, outer);
        let place = self.place(number, "");
        let mut shared: Vec<&Shared<'_>> = self.shared.values().filter(|shared| function.used.contains(&shared.number)).collect();
        shared.sort_by_key(|shared| shared.number);
        for Shared { number, kind, alignment, .. } in shared {
            let _ = write!(
                self.out,
                "  %elv.at.{number} = call i64 @elv_threadgroup_variable(i32 {number}, ptr @elv.function, ptr @elv.name.{number}, \
                 i64 ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64), i64 {alignment}){place}\n  \
                 %elv.shared.{number} = inttoptr i64 %elv.at.{number} to ptr\n"
            );
        }
        self.push(function.hoisted.trim_end_matches('\n'));
        self.out.push_str(&rewritten);
        self.push("}");
        if is_entry { self.entry(name, &parameters) } else { Ok(()) }
    }

    /// The end of an instruction: its place.
    fn place(&mut self, number: usize, line: &str) -> String {
        if self.has_lines {
            return line.rsplit_once("!dbg ").map_or(String::new(), |(_, at)| format!(", !dbg {}", at.split(',').next().unwrap_or(at)));
        }
        self.lines.insert((self.functions.len() - 1, number));
        format!(", !dbg !{}", FIRST_LINE + number)
    }

    fn line(&mut self, number: usize, line: &str, function: &mut Function) -> Result<()> {
        let is_instruction = line.starts_with("  ") && !line.starts_with("    ");
        if !is_instruction {
            self.push(line);
            return Ok(());
        }
        if PROMISES.iter().any(|promise| line.contains(promise)) || line.contains("@llvm.dbg.") {
            return Ok(());
        }
        let operation = line.split_once(", !").map_or(line, |(operation, _)| operation);
        let operation = without_attributes(operation);
        if operation.ends_with('[') {
            // A switch, whose place stands at its end.
            self.push(&self.plain(operation));
            return Ok(());
        }
        let place = self.place(number, line);
        let mut plain = self.plain(operation);
        if plain.contains('@') {
            plain = self.memory(plain, function);
        }
        if let Some((call, start)) = call(&plain) {
            plain = self.call(number, &plain, call, start)?;
        } else {
            plain = self.shift(without_flags(&plain), &place);
            if self.request.checked {
                self.alignment(&plain, &place);
            }
        }
        self.push(&format!("{plain}{place}"));
        Ok(())
    }

    /// Threadgroup variables by their addresses; what is computed of them in a constant expression is computed where the function begins.
    fn memory(&self, mut line: String, function: &mut Function) -> String {
        while let Some((start, end, expression)) = self.expression(&line) {
            let name = format!("%elv.computed.{}", function.expressions);
            function.expressions += 1;
            let computed = self.addresses(&expression, function);
            let _ = writeln!(function.hoisted, "  {name} = {computed}");
            line.replace_range(start..end, &name);
        }
        self.addresses(&line, function)
    }

    /// The innermost constant expression over a threadgroup variable, as an instruction.
    fn expression(&self, line: &str) -> Option<(usize, usize, String)> {
        const OPERATIONS: &[&str] = &["getelementptr", "bitcast", "ptrtoint", "inttoptr"];
        let found = OPERATIONS.iter().flat_map(|operation| line.match_indices(operation)).filter_map(|(start, operation)| {
            let open = start + line[start..].find('(')?;
            let flags = &line[start + operation.len()..open];
            let end = open + balanced(&line[open..])?;
            let inner = &line[open + 1..end - 1];
            (flags.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b' ') && self.mentions(inner))
                .then(|| (start, end, format!("{operation}{flags}{inner}")))
        });
        found.max_by_key(|(start, ..)| *start)
    }

    fn mentions(&self, text: &str) -> bool {
        text.match_indices('@').any(|(at, _)| self.shared.contains_key(name_at(text, at)))
    }

    fn addresses(&self, line: &str, function: &mut Function) -> String {
        let (mut out, mut rest) = (String::with_capacity(line.len()), line);
        while let Some(at) = rest.find('@') {
            let name = name_at(rest, at);
            out.push_str(&rest[..at]);
            match self.shared.get(name) {
                Some(shared) => {
                    function.used.insert(shared.number);
                    let _ = write!(out, "%elv.shared.{}", shared.number);
                }
                None => out.push_str(name),
            }
            rest = &rest[at + name.len()..];
        }
        out + rest
    }

    /// A call: of Metal's library, of LLVM's own, or of another function of the module.
    fn call(&mut self, number: usize, line: &str, call: usize, start: usize) -> Result<String> {
        // What is called stands before the arguments: a name, or a pointer, or assembly.
        let unknown = |what: &str| self.request.unsupported(&format!("it calls {what}, which the simulator does not have"));
        let Some((result, at)) = callee(&line[start..]).map(|(result, at)| (result, start + at)) else { return Err(unknown("what has no name")) };
        let name = name_at(line, at);
        let after = at + name.len();
        let Some(end) = balanced(&line[after..]).map(|end| after + end).filter(|_| line[after..].starts_with('(')) else {
            return Err(unknown("what has no name"));
        };
        let function = name.trim_matches(['@', '"']);
        if function.starts_with("llvm.fmuladd.") && self.request.math == Math::Safe {
            return Ok(self.separate(line, function));
        }
        if function.starts_with("llvm.") {
            return Ok(intrinsic_name(line));
        }
        if self.defined.contains(name) {
            return Ok(line.to_owned());
        }
        let arguments: Vec<_> = operands(&line[after + 1..end - 1]).into_iter().filter_map(operand).collect();
        let parameters = arguments.iter().map(|(kind, _)| *kind).collect();
        if !function.starts_with("air.") || !self.intrinsics.need(&Call { name: function, result, parameters }) {
            return Err(self.request.unsupported(&format!("it calls `{function}`, which the simulator does not have")));
        }
        let mut arguments: Vec<String> = arguments.iter().map(|(kind, value)| format!("{kind} {value}")).collect();
        if is_sited(function) {
            arguments.extend(["ptr @elv.file".to_owned(), format!("i32 {number}")]);
        }
        Ok(format!("{}call {result} {name}({})", &line[..call], arguments.join(", ")))
    }

    /// A product and a sum, which may be contracted but are not.
    fn separate(&mut self, line: &str, function: &str) -> String {
        let kind = operands(&line[line.find('(').map_or(0, |at| at + 1)..])
            .first()
            .and_then(|first| take_type(first))
            .map_or("float", |(kind, _)| kind)
            .to_owned();
        let name = function.replace("llvm.", "elv.");
        self.declared.insert(format!(
            "define internal {kind} @{name}({kind} %a, {kind} %b, {kind} %c) alwaysinline nounwind sanitize_thread {{\n  %p = fmul {kind} %a, %b\n  %s = fadd {kind} %p, %c\n  ret {kind} %s\n}}"
        ));
        without_flags(&line.replace(function, &name))
    }

    /// `%3 = shl i32 %1, %2`: an amount that is not less than the width is taken modulo the width, and found by the check of such masks.
    fn shift(&mut self, line: String, place: &str) -> String {
        let Some((name, operation)) = line.trim_start().split_once(" = ") else { return line };
        let Some(code) = ["shl", "lshr", "ashr"].into_iter().find(|code| operation.strip_prefix(code).is_some_and(|rest| rest.starts_with(' ')))
        else {
            return line;
        };
        let Some((before, amount)) = operation.rsplit_once(", ") else { return line };
        let Some(kind) = before.split(' ').find(|word| matches!(*word, "i8" | "i16" | "i32" | "i64")) else { return line };
        if !amount.starts_with('%') {
            return line;
        }
        let most = kind[1..].parse::<u32>().unwrap_or(32) - 1;
        let mask = format!("%{}.mask.{}", if code == "shl" { "shl" } else { "shr" }, self.masks);
        self.masks += 1;
        self.push(&format!("  {mask} = and {kind} {amount}, {most}{place}"));
        format!("  {name} = {before}, {mask}")
    }

    /// Checks the address of a load or store against its alignment.
    fn alignment(&mut self, line: &str, place: &str) {
        let is_access = line.contains(" = load ") || line.trim_start().starts_with("store ");
        let Some((rest, alignment)) = line.rsplit_once(", align ").filter(|_| is_access) else { return };
        let (Some((_, pointer)), Ok(alignment @ 2..)) = (rest.rsplit_once("ptr "), alignment.parse::<u64>()) else { return };
        if pointer.starts_with('%') && name_end(pointer) == pointer.len() {
            self.push(&format!("  call void @elv.aligned(ptr {pointer}, i64 {}){place}", alignment - 1));
        }
    }

    /// The function that takes the tables of arguments apart.
    fn entry(&mut self, name: &str, parameters: &str) -> Result<()> {
        let kinds: Vec<&str> = operands(parameters).into_iter().filter_map(take_type).map(|(kind, _)| kind).collect();
        let (mut body, mut arguments) = (String::new(), Vec::new());
        if kinds.len() != self.request.parameters.len() {
            return Err(self.request.unsupported(&format!("{} of its {} parameters are described", self.request.parameters.len(), kinds.len())));
        }
        for (at, (kind, parameter)) in kinds.iter().zip(self.request.parameters).enumerate() {
            argument(at, kind, &parameter.kind, &mut body);
            arguments.push(format!("{kind} %a{at}"));
        }
        self.push(&format!(
            "\ndefine void @{ENTRY}(ptr %buffers, ptr %threadgroup, ptr %positions) #1 {{\n{body}  call void {name}({})\n  ret void\n}}",
            arguments.join(", ")
        ));
        Ok(())
    }

    fn finish(mut self, module: &str) -> Result<String> {
        if !self.out.contains(&format!("@{ENTRY}(")) {
            return Err(self.request.unsupported("it is not in its own bitcode"));
        }
        let Request { library, function, .. } = self.request;
        let file = disassembly(library, function);
        let mut shared: Vec<&Shared<'_>> = self.shared.values().collect();
        shared.sort_by_key(|shared| shared.number);
        let mut texts = vec![("elv.file".to_owned(), file.as_str()), ("elv.function".to_owned(), *function)];
        texts.extend(shared.iter().map(|shared| (format!("elv.name.{}", shared.number), shared.name.as_str())));
        let mut out = String::with_capacity(self.out.len() + 4096);
        for (name, text) in texts {
            let escaped: String = text.bytes().map(|byte| format!("\\{byte:02X}")).collect();
            let _ = writeln!(out, "@{name} = private unnamed_addr constant [{} x i8] c\"{escaped}\\00\"", text.len() + 1);
        }
        out.push_str("declare i64 @elv_threadgroup_variable(i32, ptr, ptr, i64, i64)\n");
        for declared in &self.declared {
            let _ = writeln!(out, "{declared}");
        }
        out.push_str(&self.out);
        out.push_str(&std::mem::replace(&mut self.intrinsics, Intrinsics::new(self.request.runtime)).text());
        out.push_str(ATTRIBUTES);
        if !self.has_lines {
            self.line_tables(&file, module, &mut out);
        }
        Ok(out)
    }

    fn line_tables(&self, file: &str, module: &str, out: &mut String) {
        let quoted = file.replace(['\\', '"'], "_");
        let _ = write!(
            out,
            "!llvm.module.flags = !{{!0}}\n!llvm.dbg.cu = !{{!1}}\n!0 = !{{i32 2, !\"Debug Info Version\", i32 3}}\n\
             !1 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !2, isOptimized: true, emissionKind: LineTablesOnly)\n\
             !2 = !DIFile(filename: \"{quoted}\", directory: \"{COMPILATION_FOLDER}\")\n!3 = !DISubroutineType(types: !4)\n!4 = !{{}}\n"
        );
        for (at, line) in self.functions.iter().enumerate() {
            let name =
                module.lines().nth(line - 1).and_then(|line| Some(name_at(line, line.find('@')?))).unwrap_or_default().trim_matches(['@', '"']);
            let _ = writeln!(
                out,
                "!{} = distinct !DISubprogram(name: \"{name}\", scope: !2, file: !2, line: {line}, type: !3, unit: !1, spFlags: DISPFlagDefinition | DISPFlagOptimized)",
                FIRST_FUNCTION + at
            );
        }
        for (function, line) in &self.lines {
            let _ = writeln!(out, "!{} = !DILocation(line: {line}, column: 1, scope: !{})", FIRST_LINE + line, FIRST_FUNCTION + function);
        }
    }
}

/// Numbers of metadata.
const FIRST_FUNCTION: usize = 10;
const FIRST_LINE: usize = 100_000;

/// `#0`: what the library's functions are compiled with, as a text's are. `#1`: the entry point, whose accesses are not the kernel's.
const ATTRIBUTES: &str = "
attributes #0 = { nounwind sanitize_thread \"frame-pointer\"=\"all\" \"probe-stack\"=\"inline-asm\" \"no-builtins\" }
attributes #1 = { nounwind \"frame-pointer\"=\"all\" \"probe-stack\"=\"inline-asm\" }
";

/// What a function's lines share.
struct Function {
    /// Computed before anything else.
    hoisted: String,
    /// The threadgroup variables.
    used: BTreeSet<usize>,
    expressions: usize,
}

/// Reads the argument `%a…` from its table: an address, or the numbers of a position.
fn argument(at: usize, kind: &str, bound: &ParameterKind, body: &mut String) {
    let (table, index) = match bound {
        ParameterKind::Buffer { index, .. } => ("buffers", *index),
        ParameterKind::Threadgroup { index, .. } => ("threadgroup", *index),
        ParameterKind::Position(position) => {
            let (lanes, element) = vector(kind).unwrap_or((1, kind));
            let mut made = "poison".to_owned();
            for lane in 0..lanes {
                let row = *position as u32 * 3 + lane;
                let _ = writeln!(
                    body,
                    "  %at{at}.{lane} = getelementptr i32, ptr %positions, i64 {row}\n  %v{at}.{lane} = load i32, ptr %at{at}.{lane}, align 4"
                );
                let mut value = format!("%v{at}.{lane}");
                if element != "i32" {
                    let _ = writeln!(body, "  %n{at}.{lane} = trunc i32 {value} to {element}");
                    value = format!("%n{at}.{lane}");
                }
                if vector(kind).is_some() {
                    let _ = writeln!(body, "  %i{at}.{lane} = insertelement {kind} {made}, {element} {value}, i32 {lane}");
                    value = format!("%i{at}.{lane}");
                }
                made = value;
            }
            let _ = writeln!(body, "  %a{at} = freeze {kind} {made}");
            return;
        }
    };
    let _ = writeln!(body, "  %at{at} = getelementptr i64, ptr %{table}, i64 {index}\n  %a{at} = load ptr, ptr %at{at}, align 8");
}

/// The parameters without attributes.
fn bare(parameters: &str) -> String {
    operands(parameters).into_iter().filter_map(operand).map(|(kind, value)| format!("{kind} {value}")).collect::<Vec<_>>().join(", ")
}

/// `weak_odr fastcc zeroext i1 `, with linkage within the module.
fn linkage(before: &str) -> String {
    const LINKAGES: &[&str] = &[
        "define",
        "internal",
        "private",
        "weak_odr",
        "weak",
        "linkonce_odr",
        "linkonce",
        "dso_local",
        "hidden",
        "protected",
        "local_unnamed_addr",
        "unnamed_addr",
    ];
    let kept: Vec<&str> = before.split_whitespace().skip_while(|word| LINKAGES.contains(word)).collect();
    format!("internal {} ", kept.join(" "))
}

/// Where a call begins, and what follows the word: `  %3 = tail call float @f(float %2)`.
fn call(line: &str) -> Option<(usize, usize)> {
    let indented = line.len() - line.trim_start().len();
    let value = if line[indented..].starts_with('%') { indented + line[indented..].find(" = ")? + 3 } else { indented };
    let word = ["tail ", "musttail ", "notail "].into_iter().find(|word| line[value..].starts_with(word)).unwrap_or_default();
    line[value + word.len()..].starts_with("call ").then_some((value, value + word.len() + "call ".len()))
}

/// A call's type and where the name of its function begins: `fast float @f(…`, `fastcc noundef zeroext i1 @f(…`.
fn callee(text: &str) -> Option<(&str, usize)> {
    let mut at = text.trim_start();
    loop {
        let word = at.split(' ').next()?;
        let is_number = |word: &str| word.strip_prefix('i').is_some_and(|bits| bits.parse::<u32>().is_ok());
        if at.starts_with(['<', '[', '{', '%']) || matches!(word, "float" | "half" | "bfloat" | "void" | "ptr") || is_number(word) {
            let (result, rest) = take_type(at)?;
            return rest.starts_with('@').then(|| (result, text.len() - rest.len()));
        }
        at = at.get(word.len()..)?.trim_start();
        if at.is_empty() {
            return None;
        }
    }
}

/// Without leave to change arithmetic.
fn without_flags(operation: &str) -> String {
    FAST_FLAGS.iter().fold(operation.to_owned(), |operation, flag| operation.replace(&format!("{flag} "), " "))
}

/// Without the numbers of attributes that a call ends with.
fn without_attributes(operation: &str) -> &str {
    match operation.rsplit_once(" #") {
        Some((operation, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => operation,
        _ => operation,
    }
}

fn without_section(definition: &str) -> String {
    let Some((before, rest)) = definition.split_once(", section \"") else { return definition.to_owned() };
    format!("{before}{}", rest.split_once('"').map_or("", |(_, rest)| rest))
}

/// The names of LLVM's own functions say which address spaces they are for: `llvm.memcpy.p1.p0.i64`.
fn intrinsic_name(line: &str) -> String {
    let Some(at) = line.find("@llvm.") else { return line.to_owned() };
    let name = name_at(line, at);
    let plain: Vec<&str> = name.split('.').map(|part| if matches!(part, "p1" | "p2" | "p3") { "p0" } else { part }).collect();
    line.replacen(name, &plain.join("."), 1)
}

/// A constant's value as the global variable of type `stored` holds it.
fn literal(value: ConstantValue, stored: &str, kind: &str) -> String {
    let float = |value: f32| match stored {
        "half" => format!("0xH{:04X}", half::f16::from_f32(value).to_bits()),
        _ => format!("0x{:016X}", f64::from(value).to_bits()),
    };
    let is_float = matches!(stored, "float" | "half");
    match value {
        ConstantValue::Bool(value) if is_float => float(f32::from(u8::from(value))),
        ConstantValue::Bool(value) => u8::from(value).to_string(),
        ConstantValue::Int(value) if is_float => float(value as f32),
        ConstantValue::Uint(value) if is_float => float(value as f32),
        // A bool is a byte that holds 0 or 1.
        ConstantValue::Int(value) if kind == "b" => u8::from(value != 0).to_string(),
        ConstantValue::Uint(value) if kind == "b" => u8::from(value != 0).to_string(),
        ConstantValue::Int(value) => wrapped(value as u64, stored),
        ConstantValue::Uint(value) => wrapped(value, stored),
        ConstantValue::Float(value) if is_float => float(value),
        ConstantValue::Float(value) => wrapped(value as i64 as u64, stored),
    }
}

fn wrapped(value: u64, stored: &str) -> String {
    match stored {
        "i8" => (value as i8).to_string(),
        "i16" => (value as i16).to_string(),
        "i32" => (value as i32).to_string(),
        _ => (value as i64).to_string(),
    }
}

/// A line about matrices of 64 elements, about the two that a lane has.
fn shrunk(line: &str) -> String {
    if let Some((before, rest)) = line.split_once("shufflevector ") {
        let parts = operands(rest);
        if let [first, _, mask] = parts.as_slice()
            && let Some((source, _)) = take_type(first).and_then(|(kind, _)| vector(kind))
            && let Some((mask_kind, indices)) = take_type(mask)
            && let Some((lanes, _)) = vector(mask_kind)
            && let Some(list) = indices.strip_prefix('<').and_then(|list| list.strip_suffix('>'))
        {
            let kept = if lanes == 64 { 2 } else { lanes as usize };
            let index = |index: &str| match index.trim_start_matches("i32 ").parse::<u32>() {
                Ok(at) if source == 64 && at >= 64 => format!("i32 {}", at - 62),
                Ok(at) => format!("i32 {at}"),
                Err(_) => index.to_owned(),
            };
            let mask: Vec<String> = operands(list).into_iter().take(kept).map(index).collect();
            let sources = shorter(&parts[..2].join(", "));
            return format!("{before}shufflevector {sources}, <{kept} x i32> <{}>", mask.join(", "));
        }
    }
    shorter(line)
}

/// Types of 64 elements, and lists of as many, with two.
fn shorter(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('<') {
        let Some(end) = balanced(&rest[at..]).map(|end| at + end) else { break };
        out.push_str(&rest[..at]);
        let group = &rest[at..end];
        let elements = operands(&group[1..group.len() - 1]);
        match group.strip_prefix("<64 x ") {
            Some(element) => out.extend(["<2 x ", element]),
            None if elements.len() == 64 => out.extend(["<", &elements[..2].join(", "), ">"]),
            None => out.push_str(group),
        }
        rest = &rest[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_keep_the_elements_of_a_lane() {
        let list = |element: &dyn Fn(usize) -> String| (0..64).map(element).collect::<Vec<_>>().join(", ");
        let zeros = list(&|_| "float 0.000000e+00".to_owned());
        let phi = format!("  %9 = phi <64 x float> [ <{zeros}>, %3 ], [ %8, %7 ]");
        assert_eq!(shrunk(&phi), "  %9 = phi <2 x float> [ <float 0.000000e+00, float 0.000000e+00>, %3 ], [ %8, %7 ]");
        let mask = list(&|at| format!("i32 {}", if at < 2 { at } else { at + 64 }));
        let joined = format!("  %3 = shufflevector <64 x float> %1, <64 x float> %2, <64 x i32> <{mask}>");
        assert_eq!(shrunk(&joined), "  %3 = shufflevector <2 x float> %1, <2 x float> %2, <2 x i32> <i32 0, i32 1>");
        let constant = format!("  %3 = shufflevector <64 x float> %1, <64 x float> <{zeros}>, <64 x i32> <{mask}>");
        let pair = "<float 0.000000e+00, float 0.000000e+00>";
        assert_eq!(shrunk(&constant), format!("  %3 = shufflevector <2 x float> %1, <2 x float> {pair}, <2 x i32> <i32 0, i32 1>"));
        let narrow = "  %4 = shufflevector <64 x half> %3, <64 x half> poison, <2 x i32> <i32 0, i32 65>";
        assert_eq!(shrunk(narrow), "  %4 = shufflevector <2 x half> %3, <2 x half> poison, <2 x i32> <i32 0, i32 3>");
        assert_eq!(shrunk("  %5 = icmp slt i32 %4, 64"), "  %5 = icmp slt i32 %4, 64");
    }

    #[test]
    fn variables_have_their_names_in_the_source() {
        assert_eq!(source_name("@_ZZ18softmax_single_rowIffLi4EEvPU9MTLdeviceKT_jE9local_max"), "local_max");
        assert_eq!(source_name("@_ZZ14rms_single_rowIfLi4EEvPU9MTLdeviceKTE14local_inv_mean.0"), "local_inv_mean");
        assert_eq!(source_name("@\"shared memory\""), "shared memory");
    }

    #[test]
    fn calls_are_told_from_what_mentions_them() {
        assert_eq!(call("  tail call void @f()"), Some((2, 12)));
        assert_eq!(call("  %3 = call fast float @f(float %2)"), Some((7, 12)));
        assert_eq!(call("  store ptr @\"call @f\", ptr %1"), None);
        assert_eq!(callee("fast noundef zeroext i1 @f(i1 %2)"), Some(("i1", 24)));
        assert_eq!(callee("fastcc %\"struct.a::array.5\" @f()"), Some(("%\"struct.a::array.5\"", 28)));
        assert_eq!((callee("void %3()"), callee("void asm sideeffect \"@nop\", \"\"()")), (None, None));
        assert_eq!(linkage("define linkonce_odr hidden fastcc zeroext i1 "), "internal fastcc zeroext i1 ");
    }
}
