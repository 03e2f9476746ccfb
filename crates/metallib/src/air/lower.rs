//! One function's representation, rewritten for a device: what all devices share.
//!
//! Address spaces go: the simulator's memory has one, and LLVM finds out for itself which memory a pointer is to on a GPU. Calls of Metal's library become
//! calls of functions that are added. Function constants get their values. What Apple's compiler promised about memory and time goes too, so that the
//! optimiser does not rely on what is to be checked. An entry point is added that hands over the arguments.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
};

use elinvar_core::{ConstantValue, Error, Result};
use elinvar_msl::Kernel;

use super::{
    constants::literal,
    instructions::{bare, call, callee, intrinsic_name, linkage, without_attributes, without_flags, without_section},
    intrinsics::{Call, Intrinsics, Site},
    lanes,
    matrices::{shrinks, shrunk},
    nvidia::Nvidia,
    simulator::Simulator,
    tensors,
    types::{balanced, name_at, operand, operands, take_type, vector},
};

/// What is to be rewritten, and how.
pub struct Request<'a> {
    /// What messages and findings call the library.
    pub library: &'a str,
    /// The function, as the library describes it.
    pub kernel: &'a Kernel,
    /// Values of function constants by index.
    pub constants: &'a [(u32, ConstantValue)],
    /// Whether products and sums may be contracted to fused multiply-adds.
    pub contracted: bool,
    /// What it is for.
    pub machine: Machine<'a>,
    /// The functions that the device's runtime defines.
    pub runtime: &'a HashSet<String>,
}

/// The device that a function is rewritten for.
#[derive(Clone, Copy, Debug)]
pub enum Machine<'a> {
    /// The simulator, on this machine.
    Simulator(Simulator<'a>),
    /// An NVIDIA GPU.
    Nvidia(Nvidia),
}

impl Machine<'_> {
    fn name(&self) -> &'static str {
        match self {
            Machine::Simulator(_) => "the simulator",
            Machine::Nvidia(_) => "the CUDA device",
        }
    }

    /// Attributes of functions that are added.
    pub(super) fn attributes(&self) -> &'static str {
        match self {
            Machine::Simulator(_) => "alwaysinline nounwind sanitize_thread",
            Machine::Nvidia(_) => "alwaysinline nounwind convergent",
        }
    }
}

impl Request<'_> {
    pub(super) fn function_name(&self) -> &str {
        &self.kernel.name
    }

    pub(super) fn unsupported(&self, what: &str) -> Error {
        Error::unsupported(format!("{}, function `{}`: {what}", self.library, self.function_name()))
    }
}

/// A variable in threadgroup memory.
pub(super) struct Shared<'a> {
    pub(super) number: usize,
    /// In the source.
    pub(super) name: String,
    pub(super) kind: &'a str,
    pub(super) alignment: &'a str,
}

/// Functions that only promise something.
const PROMISES: &[&str] = &["@llvm.lifetime.", "@llvm.assume(", "@llvm.experimental.noalias.scope.decl("];
const CONSTANT: &str = ".MTL_FC_INIT_";

/// The module, rewritten.
///
/// # Errors
/// What the device does not execute: textures, functions that it does not know.
pub fn lower(module: &str, request: &Request<'_>) -> Result<String> {
    let shared: HashMap<&str, Shared<'_>> =
        module.lines().filter(|line| line.starts_with('@')).filter_map(shared).enumerate().map(numbered).collect();
    let defined = module.lines().filter(|line| line.starts_with("define ")).filter_map(|line| Some(name_at(line, line.find('@')?))).collect();
    let mut lowering = Lowering {
        request,
        shared,
        together: lanes::together(module, &request.machine),
        defined,
        shrinks: shrinks(module),
        has_lines: matches!(request.machine, Machine::Simulator(_)) && module.contains("\n!llvm.dbg.cu = "),
        intrinsics: Intrinsics::new(request.runtime, &request.machine),
        declared: BTreeSet::new(),
        out: String::with_capacity(2 * module.len()),
        has_entry: false,
        functions: Vec::new(),
        lines: BTreeSet::new(),
        masks: 0,
        wide: 0,
    };
    lowering.module(module)?;
    if !lowering.has_entry {
        return Err(request.unsupported("it is not in its own bitcode"));
    }
    match request.machine {
        Machine::Simulator(simulator) => Ok(lowering.for_simulator(&simulator, module)),
        Machine::Nvidia(_) => Ok(lowering.for_nvidia()),
    }
}

fn numbered<'a>((number, (name, shared)): (usize, (&'a str, Shared<'a>))) -> (&'a str, Shared<'a>) {
    (name, Shared { number, ..shared })
}

/// The argument `%a…` of a type of numbers, from what gives the value `%v….` of each lane.
pub(super) fn coordinates(at: usize, kind: &str, body: &mut String, value: impl Fn(u32) -> String) {
    let (lanes, element) = vector(kind).unwrap_or((1, kind));
    let mut made = "poison".to_owned();
    for lane in 0..lanes {
        body.push_str(&value(lane));
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

pub(super) struct Lowering<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) shared: HashMap<&'a str, Shared<'a>>,
    /// The module's own functions.
    defined: HashSet<&'a str>,
    /// Those of them that are given the lanes that call them.
    together: HashSet<&'a str>,
    shrinks: bool,
    /// The library has line tables of its own, which are kept.
    pub(super) has_lines: bool,
    pub(super) intrinsics: Intrinsics<'a>,
    pub(super) declared: BTreeSet<String>,
    pub(super) out: String,
    pub(super) has_entry: bool,
    /// The first line of each.
    pub(super) functions: Vec<usize>,
    /// Of which there are places: function, line.
    pub(super) lines: BTreeSet<(usize, usize)>,
    masks: usize,
    /// How many operands of divisions were widened.
    pub(super) wide: usize,
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

    pub(super) fn push(&mut self, line: &str) {
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
        let is_entry = name.trim_matches(['@', '"']) == self.request.function_name();
        let is_together = self.together.contains(name) && !is_entry;
        let (result, mut parameters) = if is_entry {
            ("internal void ".to_owned(), bare(&plain[start + 1..end - 1]))
        } else {
            (linkage(&plain[..plain.find(name).unwrap_or(0)]), plain[start + 1..end - 1].to_owned())
        };
        let unnamed = operands(&parameters)
            .into_iter()
            .filter_map(operand)
            .filter(|(_, value)| value.strip_prefix('%').is_some_and(|name| name.parse::<u32>().is_ok()))
            .count();
        if is_together {
            let separator = if parameters.is_empty() { "" } else { ", " };
            parameters += &format!("{separator}i32 {}", lanes::AMONG);
        }
        let place = self.function_place(line);
        self.functions.push(number);
        self.push(&format!("\ndefine {result}{name}({parameters}) #0{place} {{"));
        let label = body.first().is_some_and(|(_, line)| line.ends_with(':') && !line.starts_with(' '));
        let (label, body) = body.split_at(usize::from(label));
        label.iter().for_each(|(_, line)| self.push(line));
        let entry = label.first().map_or(format!("%{unnamed}"), |(_, line)| format!("%{}", line.split(':').next().unwrap_or_default()));
        let mut function = Function { hoisted: String::new(), used: BTreeSet::new(), expressions: 0, among: lanes::ALL.to_owned() };
        let lines: Vec<&str> = body.iter().map(|(_, line)| *line).collect();
        let lanes = lanes::find(&lines, &entry, if is_together { lanes::AMONG } else { lanes::ALL }, |name| {
            self.together.contains(name) || lanes::are_asked(name, &self.request.machine)
        });
        if lanes.are_voted() {
            self.declared.insert(lanes::VOTE.to_owned());
        }
        let outer = std::mem::take(&mut self.out);
        for (at, (number, line)) in body.iter().enumerate() {
            lanes.before(at).for_each(|added| self.push(added));
            lanes.at(at).unwrap_or(lanes::ALL).clone_into(&mut function.among);
            self.line(*number, line, &mut function)?;
        }
        let rewritten = std::mem::replace(&mut self.out, outer);
        if let Machine::Simulator(_) = self.request.machine {
            self.threadgroup_variables(number, &function.used);
        }
        self.push(function.hoisted.trim_end_matches('\n'));
        self.out.push_str(&rewritten);
        self.push("}");
        if !is_entry {
            return Ok(());
        }
        self.has_entry = true;
        let kinds: Vec<&str> = operands(&parameters).into_iter().filter_map(take_type).map(|(kind, _)| kind).collect();
        let described = self.request.kernel.parameters.len();
        if kinds.len() != described {
            return Err(self.request.unsupported(&format!("{described} of its {} parameters are described", kinds.len())));
        }
        match self.request.machine {
            Machine::Simulator(_) => self.simulator_entry(name, &kinds),
            Machine::Nvidia(nvidia) => self.nvidia_entry(&nvidia, name, &kinds),
        }
        Ok(())
    }

    /// The end of a function's head: its place, on devices that ask for it.
    fn function_place(&self, line: &str) -> String {
        match self.request.machine {
            Machine::Simulator(_) => self.function_place_for_simulator(line),
            Machine::Nvidia(_) => String::new(),
        }
    }

    /// The end of an instruction, likewise.
    fn place(&mut self, number: usize, line: &str) -> String {
        match self.request.machine {
            Machine::Simulator(_) => self.place_for_simulator(number, line),
            Machine::Nvidia(_) => String::new(),
        }
    }

    /// Everything but what a device adds.
    pub(super) fn definitions(&self) -> String {
        let declared = self.declared.iter().flat_map(|declared| [declared.as_str(), "\n"]);
        declared.chain([self.out.as_str()]).collect::<String>() + &self.intrinsics.text()
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
            plain = self.call(number, &plain, call, start, &function.among)?;
        } else {
            plain = self.shift(without_flags(&plain), &place);
            if let Machine::Simulator(Simulator { checked: true, .. }) = self.request.machine {
                self.alignment(&plain, &place);
                self.division(&plain, &place);
            }
        }
        self.push(&format!("{plain}{place}"));
        Ok(())
    }

    /// Threadgroup variables by their addresses; what is computed of them in a constant expression is computed where the function begins.
    fn memory(&self, mut line: String, function: &mut Function) -> String {
        if let Machine::Nvidia(_) = self.request.machine {
            return self.addresses(&line, function);
        }
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
                    let _ = match self.request.machine {
                        Machine::Simulator(_) => write!(out, "%elv.shared.{}", shared.number),
                        Machine::Nvidia(_) => write!(out, "addrspacecast (ptr addrspace(3) {name} to ptr)"),
                    };
                }
                None => out.push_str(name),
            }
            rest = &rest[at + name.len()..];
        }
        out + rest
    }

    /// A call: of Metal's library, of LLVM's own, or of another function of the module.
    fn call(&mut self, number: usize, line: &str, call: usize, start: usize, among: &str) -> Result<String> {
        // What is called stands before the arguments: a name, or a pointer, or assembly.
        let unknown = |what: &str| self.request.unsupported(&format!("it calls {what}, which {} does not have", self.request.machine.name()));
        let Some((result, at)) = callee(&line[start..]).map(|(result, at)| (result, start + at)) else { return Err(unknown("what has no name")) };
        let name = name_at(line, at);
        let after = at + name.len();
        let Some(end) = balanced(&line[after..]).map(|end| after + end).filter(|_| line[after..].starts_with('(')) else {
            return Err(unknown("what has no name"));
        };
        let function = name.trim_matches(['@', '"']);
        if function.starts_with("llvm.fmuladd.") && !self.request.contracted {
            return Ok(self.separate(line, function));
        }
        if function.starts_with("llvm.") {
            return Ok(intrinsic_name(line));
        }
        if self.together.contains(name) {
            let separator = if end - after > 2 { ", " } else { "" };
            return Ok(format!("{}{separator}i32 {among}{}", &line[..end - 1], &line[end - 1..]));
        }
        if self.defined.contains(name) {
            return Ok(line.to_owned());
        }
        let arguments: Vec<_> = operands(&line[after + 1..end - 1]).into_iter().filter_map(operand).collect();
        let parameters = arguments.iter().map(|(kind, _)| *kind).collect();
        if !(function.starts_with("air.") || function.starts_with(tensors::PREFIX))
            || !self.intrinsics.need(&Call { name: function, result, parameters })
        {
            return Err(unknown(&format!("`{function}`")));
        }
        let mut arguments: Vec<String> = arguments.iter().map(|(kind, value)| format!("{kind} {value}")).collect();
        match Site::of(function, &self.request.machine) {
            Site::Nothing => {}
            Site::Place => arguments.extend(["ptr @elv.file".to_owned(), format!("i32 {number}")]),
            Site::Lanes => arguments.push(format!("i32 {among}")),
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
            "define internal {kind} @{name}({kind} %a, {kind} %b, {kind} %c) {} {{\n  %p = fmul {kind} %a, %b\n  %s = fadd {kind} %p, %c\n  ret {kind} %s\n}}",
            self.request.machine.attributes()
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
}

/// What a function's lines share.
struct Function {
    /// Computed before anything else.
    hoisted: String,
    /// The threadgroup variables.
    used: BTreeSet<usize>,
    expressions: usize,
    /// The lanes that come to the line that is read.
    among: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_their_names_in_the_source() {
        assert_eq!(source_name("@_ZZ18softmax_single_rowIffLi4EEvPU9MTLdeviceKT_jE9local_max"), "local_max");
        assert_eq!(source_name("@_ZZ14rms_single_rowIfLi4EEvPU9MTLdeviceKTE14local_inv_mean.0"), "local_inv_mean");
        assert_eq!(source_name("@\"shared memory\""), "shared memory");
    }
}
