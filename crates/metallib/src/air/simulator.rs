//! For the simulator: threadgroup variables are asked of the executor, as a text's are, and instructions have places for findings. Lines are those of the
//! disassembly, unless the library has line tables of its own.

use std::{collections::BTreeSet, fmt::Write};

use elinvar_msl::ParameterKind;

use super::{
    lower::{Lowering, Shared, coordinates},
    types::{name_at, name_end},
};
use crate::kernels::disassembly;

/// The entry point's symbol.
pub const SIMULATOR_ENTRY: &str = "elv_entry_0";

/// How the simulator is to run a function.
#[derive(Clone, Copy, Debug)]
pub struct Simulator<'a> {
    /// Whether checks are added.
    pub checked: bool,
    /// What line tables call the folder of the compiler's run.
    pub folder: &'a str,
}

/// Numbers of metadata.
const FIRST_FUNCTION: usize = 10;
const FIRST_LINE: usize = 100_000;

/// `#0`: what the library's functions are compiled with, as a text's are. `#1`: the entry point, whose accesses are not the kernel's.
const ATTRIBUTES: &str = "
attributes #0 = { nounwind sanitize_thread \"frame-pointer\"=\"all\" \"probe-stack\"=\"inline-asm\" \"no-builtins\" }
attributes #1 = { nounwind \"frame-pointer\"=\"all\" \"probe-stack\"=\"inline-asm\" }
";

impl Lowering<'_> {
    /// The end of a function's head: its place.
    pub(super) fn function_place_for_simulator(&self, line: &str) -> String {
        if self.has_lines {
            return line.rsplit_once(" !dbg ").map_or(String::new(), |(_, at)| format!(" !dbg {}", at.trim_end_matches([' ', '{'])));
        }
        format!(" !dbg !{}", FIRST_FUNCTION + self.functions.len())
    }

    /// The end of an instruction: its place.
    pub(super) fn place_for_simulator(&mut self, number: usize, line: &str) -> String {
        if self.has_lines {
            return line.rsplit_once("!dbg ").map_or(String::new(), |(_, at)| format!(", !dbg {}", at.split(',').next().unwrap_or(at)));
        }
        self.lines.insert((self.functions.len() - 1, number));
        format!(", !dbg !{}", FIRST_LINE + number)
    }

    /// The addresses of the threadgroup variables that a function uses.
    pub(super) fn threadgroup_variables(&mut self, number: usize, used: &BTreeSet<usize>) {
        let place = self.place_for_simulator(number, "");
        let mut shared: Vec<&Shared<'_>> = self.shared.values().filter(|shared| used.contains(&shared.number)).collect();
        shared.sort_by_key(|shared| shared.number);
        for Shared { number, kind, alignment, .. } in shared {
            let _ = write!(
                self.out,
                "  %elv.at.{number} = call i64 @elv_threadgroup_variable(i32 {number}, ptr @elv.function, ptr @elv.name.{number}, \
                 i64 ptrtoint (ptr getelementptr ({kind}, ptr null, i32 1) to i64), i64 {alignment}){place}\n  \
                 %elv.shared.{number} = inttoptr i64 %elv.at.{number} to ptr\n"
            );
        }
    }

    /// Checks the address of a load or store against its alignment.
    pub(super) fn alignment(&mut self, line: &str, place: &str) {
        let is_access = line.contains(" = load ") || line.trim_start().starts_with("store ");
        let Some((rest, alignment)) = line.rsplit_once(", align ").filter(|_| is_access) else { return };
        let (Some((_, pointer)), Ok(alignment @ 2..)) = (rest.rsplit_once("ptr "), alignment.parse::<u64>()) else { return };
        if pointer.starts_with('%') && name_end(pointer) == pointer.len() {
            self.push(&format!("  call void @elv.aligned(ptr {pointer}, i64 {}){place}", alignment - 1));
        }
    }

    /// Checks a division of integers before it is done, since the optimiser relies on its being defined: `%3 = sdiv exact i32 %1, %2`.
    pub(super) fn division(&mut self, line: &str, place: &str) {
        let Some((_, operation)) = line.split_once(" = ") else { return };
        let Some((code, rest)) = operation.split_once(' ').filter(|(code, _)| matches!(*code, "sdiv" | "udiv" | "srem" | "urem")) else { return };
        let Some((kind, operands)) = rest.trim_start_matches("exact ").split_once(' ') else { return };
        let Some((dividend, divisor)) = operands.split_once(", ").filter(|(_, divisor)| divisor.starts_with('%')) else { return };
        if !matches!(kind, "i8" | "i16" | "i32" | "i64") {
            return;
        }
        let (signed, extend) = if code.starts_with('s') { ("true", "sext") } else { ("false", "zext") };
        let wide = |lowering: &mut Self, value: &str| {
            if kind == "i64" || !value.starts_with('%') {
                return value.to_owned();
            }
            let name = format!("%elv.wide.{}", lowering.wide);
            lowering.wide += 1;
            lowering.push(&format!("  {name} = {extend} {kind} {value} to i64{place}"));
            name
        };
        let (dividend, divisor) = (wide(self, dividend), wide(self, divisor));
        let least = i64::MIN >> (64 - kind[1..].parse::<u32>().unwrap_or(64));
        self.push(&format!("  call void @elv.divisible(i64 {dividend}, i64 {divisor}, i64 {least}, i1 {signed}){place}"));
    }

    /// The function that takes the tables of arguments apart.
    pub(super) fn simulator_entry(&mut self, name: &str, kinds: &[&str]) {
        let (mut body, mut arguments) = (String::new(), Vec::new());
        for (at, (kind, parameter)) in kinds.iter().zip(&self.request.kernel.parameters).enumerate() {
            argument(at, kind, &parameter.kind, &mut body);
            arguments.push(format!("{kind} %a{at}"));
        }
        self.push(&format!(
            "\ndefine void @{SIMULATOR_ENTRY}(ptr %buffers, ptr %threadgroup, ptr %positions) #1 {{\n{body}  call void {name}({})\n  ret void\n}}",
            arguments.join(", ")
        ));
    }

    /// The whole module.
    pub(super) fn for_simulator(self, simulator: &Simulator<'_>, module: &str) -> String {
        let (library, function) = (self.request.library, self.request.function_name());
        let file = disassembly(library, function);
        let mut shared: Vec<&Shared<'_>> = self.shared.values().collect();
        shared.sort_by_key(|shared| shared.number);
        let mut texts = vec![("elv.file".to_owned(), file.as_str()), ("elv.function".to_owned(), function)];
        texts.extend(shared.iter().map(|shared| (format!("elv.name.{}", shared.number), shared.name.as_str())));
        let mut out = String::with_capacity(self.out.len() + 4096);
        for (name, text) in texts {
            let escaped: String = text.bytes().map(|byte| format!("\\{byte:02X}")).collect();
            let _ = writeln!(out, "@{name} = private unnamed_addr constant [{} x i8] c\"{escaped}\\00\"", text.len() + 1);
        }
        out.push_str("declare i64 @elv_threadgroup_variable(i32, ptr, ptr, i64, i64)\n");
        if !self.has_lines {
            self.line_tables(simulator.folder, &file, module, &mut out);
        }
        out.push_str(ATTRIBUTES);
        out + &self.definitions()
    }

    fn line_tables(&self, folder: &str, file: &str, module: &str, out: &mut String) {
        let quoted = file.replace(['\\', '"'], "_");
        let _ = write!(
            out,
            "!llvm.module.flags = !{{!0}}\n!llvm.dbg.cu = !{{!1}}\n!0 = !{{i32 2, !\"Debug Info Version\", i32 3}}\n\
             !1 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !2, isOptimized: true, emissionKind: LineTablesOnly)\n\
             !2 = !DIFile(filename: \"{quoted}\", directory: \"{folder}\")\n!3 = !DISubroutineType(types: !4)\n!4 = !{{}}\n"
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

/// Reads the argument `%a…` from its table: an address, or the numbers of a position.
fn argument(at: usize, kind: &str, bound: &ParameterKind, body: &mut String) {
    let (table, index) = match bound {
        ParameterKind::Buffer { index, .. } => ("buffers", *index),
        ParameterKind::Threadgroup { index, .. } => ("threadgroup", *index),
        ParameterKind::Position(position) => {
            return coordinates(at, kind, body, |lane| {
                let row = *position as u32 * 3 + lane;
                format!("  %at{at}.{lane} = getelementptr i32, ptr %positions, i64 {row}\n  %v{at}.{lane} = load i32, ptr %at{at}.{lane}, align 4\n")
            });
        }
    };
    let _ = writeln!(body, "  %at{at} = getelementptr i64, ptr %{table}, i64 {index}\n  %a{at} = load ptr, ptr %at{at}, align 8");
}
