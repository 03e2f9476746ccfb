//! The functions of Metal's library as compiled code calls them, `air.*`. Each becomes a small function of the module: a few operations, or calls of
//! what `runtime/air.h` defines, lane by lane where vectors are taken.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write,
};

use super::{lower::Machine, tensors, types::vector};

/// A call of one of the functions.
pub(super) struct Call<'a> {
    /// With `air.` in front.
    pub(super) name: &'a str,
    pub(super) result: &'a str,
    /// The arguments' types.
    pub(super) parameters: Vec<&'a str>,
}

/// The functions that a module needs.
pub(super) struct Intrinsics<'a> {
    /// What the runtime defines.
    runtime: &'a HashSet<String>,
    machine: &'a Machine<'a>,
    definitions: BTreeMap<String, String>,
    declarations: BTreeMap<String, String>,
}

/// Functions that threads call together.
const TOGETHER: &[&str] = &[
    "air.simd_",
    "air.quad_",
    "air.simdgroup",
    "air.wg.barrier",
    "air.atomic.fence",
    "__tensorops_impl_matmul2d_op_run",
    "__tensorops_impl_convolution2d_op_run",
];
/// Those of them that a part of a simdgroup may call.
const OF_LANES: &[&str] = &["air.simd_", "air.quad_", "air.simdgroup.barrier"];

/// What a device is given of a call beside its arguments; it comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Site {
    Nothing,
    /// Where the call is.
    Place,
    /// The lanes that come to it.
    Lanes,
}

impl Site {
    pub(super) fn of(name: &str, machine: &Machine<'_>) -> Self {
        let is_one = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match machine {
            Machine::Simulator(_) if is_one(TOGETHER) => Site::Place,
            Machine::Nvidia(_) if is_one(OF_LANES) => Site::Lanes,
            Machine::Simulator(_) | Machine::Nvidia(_) => Site::Nothing,
        }
    }

    fn parameters(self) -> impl Iterator<Item = String> {
        let parameters: &[&str] = match self {
            Site::Nothing => &[],
            Site::Place => &["ptr %file", "i32 %line"],
            Site::Lanes => &["i32 %among"],
        };
        parameters.iter().map(|&parameter| parameter.to_owned())
    }

    fn kinds(self) -> impl Iterator<Item = String> {
        let kinds: &[&str] = match self {
            Site::Nothing => &[],
            Site::Place => &["ptr", "i32"],
            Site::Lanes => &["i32"],
        };
        kinds.iter().map(|&kind| kind.to_owned())
    }
}

impl<'a> Intrinsics<'a> {
    pub(super) fn new(runtime: &'a HashSet<String>, machine: &'a Machine<'a>) -> Self {
        Self { runtime, machine, definitions: BTreeMap::new(), declarations: BTreeMap::new() }
    }

    /// Makes the function that a call needs; false if it is not known.
    pub(super) fn need(&mut self, call: &Call<'_>) -> bool {
        if self.definitions.contains_key(call.name) {
            return true;
        }
        let body = if call.name.starts_with(tensors::PREFIX) { self.tensors(call) } else { self.body(call) };
        let Some(body) = body else { return false };
        let mut parameters: Vec<String> = call.parameters.iter().enumerate().map(|(at, kind)| format!("{kind} %x{at}")).collect();
        parameters.extend(Site::of(call.name, self.machine).parameters());
        let text =
            format!("\ndefine internal {} @{}({}) {} {{\n{body}}}\n", call.result, call.name, parameters.join(", "), self.machine.attributes());
        self.definitions.insert(call.name.to_owned(), text);
        true
    }

    /// The functions, and the runtime's that they call.
    pub(super) fn text(&self) -> String {
        self.declarations.values().chain(self.definitions.values()).map(String::as_str).collect()
    }

    fn body(&mut self, call: &Call<'_>) -> Option<String> {
        let parts: Vec<&str> = call.name.split('.').skip(1).collect();
        let result = call.result;
        let direct = |operation: &str| Some(format!("  %y = {operation}\n  ret {result} %y\n"));
        match (parts.as_slice(), call.parameters.as_slice()) {
            (["is_uniform", ..], _) => Some("  ret i1 true\n".to_owned()),
            (["normalize_function_constant_predicate", ..], [kind]) => {
                Some(format!("  %set = icmp ne {kind} %x0, 0\n  %y = zext i1 %set to {result}\n  ret {result} %y\n"))
            }
            (["get_simdgroup_size", ..], _) => Some(format!("  ret {result} 32\n")),
            (["convert", to, _, from, ..], [kind]) => conversion(to, result, from, kind),
            (["fabs", _], [kind]) => {
                let name = format!("llvm.fabs.{}", parts[1]);
                self.declare(&name, result, kind);
                direct(&format!("call {result} @{name}({kind} %x0)"))
            }
            ([reduction @ ("all" | "any"), ..], [kind]) => {
                let name = format!("llvm.vector.reduce.{}.v{}i1", if *reduction == "all" { "and" } else { "or" }, vector(kind)?.0);
                self.declare(&name, "i1", kind);
                direct(&format!("call i1 @{name}({kind} %x0)"))
            }
            (["dot", ..], [kind, _]) => Some(dot(result, vector(kind)?.0, kind)),
            ([operation, ..], _) if operation.starts_with("simdgroup_matrix_8x8_") => self.matrix(operation, call),
            _ => match vector(result) {
                Some((lanes, element)) => self.lanes(call, &parts, lanes, element),
                None => self.runtime(call, &parts),
            },
        }
    }

    /// A call of the runtime's function of that name.
    fn runtime(&mut self, call: &Call<'_>, parts: &[&str]) -> Option<String> {
        let [operation, kind @ ..] = parts else { return None };
        let operation = operation.strip_prefix("fast_").or_else(|| operation.strip_prefix("precise_")).unwrap_or(operation);
        let words = [operation].into_iter().chain(kind.iter().copied().filter(|word| operation != "atomic" || !matches!(*word, "global" | "local")));
        let name = format!("elv_air_{}", words.collect::<Vec<_>>().join("_"));
        let site = Site::of(call.name, self.machine);
        let kinds: Vec<String> = call.parameters.iter().map(|&kind| kind.to_owned()).chain(site.kinds()).collect();
        let arguments: Vec<String> = numbered(&call.parameters).into_iter().chain(site.parameters()).collect();
        self.call(&name, call.result, &kinds.join(", "), &arguments)
    }

    pub(super) fn call(&mut self, name: &str, result: &str, parameters: &str, arguments: &[String]) -> Option<String> {
        if !self.runtime.contains(name) {
            return None;
        }
        self.declare(name, result, parameters);
        let arguments = arguments.join(", ");
        Some(if result == "void" {
            format!("  call void @{name}({arguments})\n  ret void\n")
        } else {
            format!("  %y = call {result} @{name}({arguments})\n  ret {result} %y\n")
        })
    }

    fn declare(&mut self, name: &str, result: &str, parameters: &str) {
        self.declarations.insert(name.to_owned(), format!("declare {result} @{name}({parameters})\n"));
    }

    /// The same for each lane.
    fn lanes(&mut self, call: &Call<'_>, parts: &[&str], lanes: u32, element: &str) -> Option<String> {
        let prefix = format!("v{lanes}");
        let scalar: Vec<&str> = parts.iter().map(|part| part.strip_prefix(&prefix).unwrap_or(part)).collect();
        let name = format!("air.{}", scalar.join("."));
        let element_of = |kind: &&'_ str| vector(kind).map_or((*kind).to_owned(), |(_, element)| element.to_owned());
        let kinds: Vec<String> = call.parameters.iter().map(element_of).collect();
        if !self.need(&Call { name: &name, result: element, parameters: kinds.iter().map(String::as_str).collect() }) {
            return None;
        }
        let (mut body, mut made) = (String::new(), "poison".to_owned());
        for lane in 0..lanes {
            let mut arguments = Vec::new();
            for (at, (kind, scalar)) in call.parameters.iter().zip(&kinds).enumerate() {
                if vector(kind).is_some() {
                    let _ = writeln!(body, "  %x{at}.{lane} = extractelement {kind} %x{at}, i32 {lane}");
                    arguments.push(format!("{scalar} %x{at}.{lane}"));
                } else {
                    arguments.push(format!("{scalar} %x{at}"));
                }
            }
            arguments.extend(Site::of(&name, self.machine).parameters());
            let _ = writeln!(body, "  %y.{lane} = call {element} @{name}({})", arguments.join(", "));
            let _ = writeln!(body, "  %made.{lane} = insertelement {} {made}, {element} %y.{lane}, i32 {lane}", call.result);
            made = format!("%made.{lane}");
        }
        let _ = writeln!(body, "  ret {} {made}", call.result);
        Some(body)
    }

    /// Operations on matrices of 8 × 8 elements, of which each lane has the first two of its vector.
    fn matrix(&mut self, operation: &str, call: &Call<'_>) -> Option<String> {
        let operation = operation.strip_prefix("simdgroup_matrix_8x8_")?;
        let suffix = |kind: &str| {
            Some(match kind {
                "float" => "f32",
                "half" => "f16",
                "bfloat" => "bf16",
                _ => return None,
            })
        };
        let site = Site::of(call.name, self.machine);
        let (mut body, mut arguments, mut kinds) = (String::new(), Vec::new(), Vec::new());
        let mut give = |kind: &str, value: String| {
            kinds.push(kind.to_owned());
            arguments.push(format!("{kind} {value}"));
        };
        let both = |body: &mut String, at: usize, kind: &str, give: &mut dyn FnMut(&str, String)| {
            let (_, element) = vector(kind)?;
            for lane in 0..2 {
                let _ = writeln!(body, "  %x{at}.{lane} = extractelement {kind} %x{at}, i32 {lane}");
                give(element, format!("%x{at}.{lane}"));
            }
            Some(element.to_owned())
        };
        match (operation, call.parameters.as_slice()) {
            ("init_filled", [kind]) => {
                let result = call.result;
                Some(format!(
                    "  %a = insertelement {result} poison, {kind} %x0, i32 0\n  %b = insertelement {result} %a, {kind} %x0, i32 1\n  ret {result} %b\n"
                ))
            }
            ("init_diag", [kind]) => {
                give(kind, "%x0".to_owned());
                self.filled(&format!("elv_air_matrix_diagonal_{}", suffix(kind)?), call.result, body, arguments, kinds, Site::Nothing)
            }
            ("multiply_accumulate", [a, b, c]) => {
                let a = both(&mut body, 0, a, &mut give)?;
                let b = both(&mut body, 1, b, &mut give)?;
                let c = both(&mut body, 2, c, &mut give)?;
                if vector(call.result)?.1 != c {
                    return None;
                }
                let name = format!("elv_air_matrix_product_{}_{}_{}", suffix(&c)?, suffix(&a)?, suffix(&b)?);
                self.filled(&name, call.result, body, arguments, kinds, site)
            }
            ("load", ["ptr", place @ ..]) => {
                give("ptr", "%x0".to_owned());
                offsets(&mut body, 1, place, &mut give)?;
                self.filled(&format!("elv_air_matrix_load_{}", suffix(vector(call.result)?.1)?), call.result, body, arguments, kinds, site)
            }
            ("store", [matrix, "ptr", place @ ..]) => {
                give("ptr", "%x1".to_owned());
                offsets(&mut body, 2, place, &mut give)?;
                let element = both(&mut body, 0, matrix, &mut give)?;
                let name = format!("elv_air_matrix_store_{}", suffix(&element)?);
                kinds.extend(site.kinds());
                arguments.extend(site.parameters());
                Some(body + &self.call(&name, "void", &kinds.join(", "), &arguments)?)
            }
            _ => None,
        }
    }

    /// A call that fills two elements, of which the result is made.
    fn filled(&mut self, name: &str, result: &str, body: String, mut arguments: Vec<String>, mut kinds: Vec<String>, site: Site) -> Option<String> {
        let (_, element) = vector(result)?;
        kinds.push("ptr".to_owned());
        arguments.push("ptr %made".to_owned());
        kinds.extend(site.kinds());
        arguments.extend(site.parameters());
        if !self.runtime.contains(name) {
            return None;
        }
        self.declare(name, "void", &kinds.join(", "));
        Some(format!(
            "{body}  %made = alloca <2 x {element}>, align 16
  call void @{name}({})
  %pair = load <2 x {element}>, ptr %made, align 16
  %first = extractelement <2 x {element}> %pair, i32 0
  %second = extractelement <2 x {element}> %pair, i32 1
  %a = insertelement {result} poison, {element} %first, i32 0
  %b = insertelement {result} %a, {element} %second, i32 1
  ret {result} %b
",
            arguments.join(", ")
        ))
    }
}

fn numbered(parameters: &[&str]) -> Vec<String> {
    parameters.iter().enumerate().map(|(at, kind)| format!("{kind} %x{at}")).collect()
}

/// A matrix's place in memory, as the distances across and down and the origin: of (distance, origin, transposed), or of (extents, distances, origin).
fn offsets(body: &mut String, first: usize, place: &[&str], give: &mut dyn FnMut(&str, String)) -> Option<()> {
    let (distances, origin) = match place {
        ["i64", "<2 x i64>", "i1"] => {
            let [stride, transposed] = [first, first + 2];
            let _ = writeln!(body, "  %across = select i1 %x{transposed}, i64 %x{stride}, i64 1");
            let _ = writeln!(body, "  %down = select i1 %x{transposed}, i64 1, i64 %x{stride}");
            (None, first + 1)
        }
        ["<2 x i64>", "<2 x i64>", "<2 x i64>"] => (Some(first + 1), first + 2),
        _ => return None,
    };
    if let Some(distances) = distances {
        let _ = writeln!(body, "  %across = extractelement <2 x i64> %x{distances}, i32 0");
        let _ = writeln!(body, "  %down = extractelement <2 x i64> %x{distances}, i32 1");
    }
    let _ = writeln!(body, "  %column = extractelement <2 x i64> %x{origin}, i32 0");
    let _ = writeln!(body, "  %row = extractelement <2 x i64> %x{origin}, i32 1");
    ["%across", "%down", "%column", "%row"].into_iter().for_each(|value| give("i64", value.to_owned()));
    Some(())
}

/// `air.convert.f.f32.s.i32`: to a float from a signed integer.
fn conversion(to: &str, result: &str, from: &str, kind: &str) -> Option<String> {
    let size = |kind: &str| {
        let element = vector(kind).map_or(kind, |(_, element)| element);
        Some(match element {
            "half" | "bfloat" => 16,
            "float" => 32,
            "double" => 64,
            integer => integer.strip_prefix('i')?.parse::<u32>().ok()?,
        })
    };
    let (wide, narrow) = (size(result)?, size(kind)?);
    let is_bool = |kind: &str| vector(kind).map_or(kind, |(_, element)| element) == "i1";
    let one = |operation: &str| format!("  %y = {operation} {kind} %x0 to {result}\n  ret {result} %y\n");
    Some(match (to, from) {
        _ if result == kind => format!("  ret {result} %x0\n"),
        // Whatever is not zero is true.
        (_, "f") if is_bool(result) => format!("  %y = fcmp une {kind} %x0, zeroinitializer\n  ret {result} %y\n"),
        (_, "s" | "u") if is_bool(result) => format!("  %y = icmp ne {kind} %x0, zeroinitializer\n  ret {result} %y\n"),
        ("f", "s") => one("sitofp"),
        ("f", "u") => one("uitofp"),
        ("s", "f") => one("fptosi"),
        ("u", "f") => one("fptoui"),
        ("f", "f") if wide > narrow => one("fpext"),
        ("f", "f") if wide < narrow => one("fptrunc"),
        // Between half and bfloat.
        ("f", "f") => {
            let through = vector(kind).map_or("float".to_owned(), |(lanes, _)| format!("<{lanes} x float>"));
            format!("  %wide = fpext {kind} %x0 to {through}\n  %y = fptrunc {through} %wide to {result}\n  ret {result} %y\n")
        }
        (_, "s") if wide > narrow => one("sext"),
        (_, "u") if wide > narrow => one("zext"),
        (_, "s" | "u") if wide < narrow => one("trunc"),
        (_, "s" | "u") => one("bitcast"),
        _ => return None,
    })
}

/// In the order of the elements.
fn dot(result: &str, lanes: u32, kind: &str) -> String {
    let mut body = format!("  %products = fmul {kind} %x0, %x1\n");
    let mut sum = String::new();
    for lane in 0..lanes {
        let _ = writeln!(body, "  %p{lane} = extractelement {kind} %products, i32 {lane}");
        if lane == 0 {
            sum = "%p0".to_owned();
        } else {
            let _ = writeln!(body, "  %s{lane} = fadd {result} {sum}, %p{lane}");
            sum = format!("%s{lane}");
        }
    }
    let _ = writeln!(body, "  ret {result} {sum}");
    body
}
