//! What is in a Metal library.

use elinvar::{Error, Result};
use elinvar_metallib::{Access, Argument, ArgumentKind, Description, Function, FunctionConstant, Library, describe};
use serde::Serialize;

use crate::output::print_line;

/// Lists the functions whose names contain `filter`.
pub(super) fn list(name: &str, file: &[u8], filter: &str, as_json: bool) -> Result<()> {
    let library = Library::read(name, file)?;
    let described = library.functions().iter().filter(|function| function.name.contains(filter)).map(|function| {
        let described = describe(function.bitcode).map_err(|error| error.context(format_args!("{name}, function `{}`", function.name)))?;
        Ok((function, described))
    });
    let described = described.collect::<Result<Vec<_>>>()?;
    if as_json {
        let functions = described.iter().map(|(function, description)| Listed::new(function, description)).collect();
        let listing = Listing { file: name, libraries: library.libraries(), functions };
        print_line(serde_json::to_string(&listing).map_err(|cause| Error::internal(format!("a listing that cannot be written: {cause}")))?);
        return Ok(());
    }
    let mut text: Vec<String> = described.iter().map(|(function, description)| declaration(function, description)).collect();
    let (shown, all) = (described.len(), library.functions().len());
    let count = if shown == all { all.to_string() } else { format!("{shown} of {all}") };
    let libraries = if library.libraries() == 1 { "library".to_owned() } else { format!("{} libraries", library.libraries()) };
    text.push(format!("{count} functions of the {libraries} in {name}"));
    print_line(text.join("\n"));
    Ok(())
}

/// Prints a function as LLVM's text.
#[cfg(target_os = "linux")]
pub(super) fn disassemble(name: &str, file: &[u8], function: &str) -> Result<()> {
    let library = Library::read(name, file)?;
    let bitcode = library.function(function)?.bitcode;
    print_line(elinvar_sim::Toolchain::find()?.clang().disassemble(bitcode, &format!("{name}, function `{function}`"))?.trim_end());
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn disassemble(_: &str, _: &[u8], _: &str) -> Result<()> {
    Err(Error::unsupported("--disassemble needs the simulator's compiler, which this build is without: it is part of builds for Linux"))
}

fn version([major, minor]: [u16; 2]) -> String {
    format!("{major}.{minor}")
}

/// As its text would declare it, with versions and options.
fn declaration(function: &Function<'_>, description: &Description) -> String {
    let arguments: Vec<_> = description.arguments.iter().map(argument).collect();
    let constants = function.constants.iter().map(|constant| format!("{} {} = {}", constant.kind.name(), constant.name, constant.index));
    let mut notes = vec![format!("Metal {}, AIR {}", version(function.language_version), version(function.air_version))];
    notes.extend(description.max_threads.map(|threads| format!("at most {threads} threads")));
    notes.extend((!function.constants.is_empty()).then(|| format!("constants {}", constants.collect::<Vec<_>>().join(", "))));
    notes.extend((!description.compile_options.is_empty()).then(|| description.compile_options.join(", ")));
    format!("{} {}({})  // {}", function.kind.name(), function.name, arguments.join(", "), notes.join("; "))
}

/// `device const float* in [[buffer(0)]]`.
fn argument(argument: &Argument) -> String {
    let Argument { name, type_name, kind, conditional, .. } = argument;
    let condition = if *conditional { ", function_constant" } else { "" };
    match kind {
        ArgumentKind::Buffer { index, access, constant, needed, .. } => {
            let space = match (constant, access) {
                (true, _) => "constant",
                (false, Access::Read) => "device const",
                (false, Access::Write | Access::ReadWrite) => "device",
            };
            let sign = if needed.is_some() { '&' } else { '*' };
            format!("{space} {type_name}{sign} {name} [[buffer({index}){condition}]]")
        }
        ArgumentKind::Threadgroup { index } => format!("threadgroup {type_name}* {name} [[threadgroup({index}){condition}]]"),
        ArgumentKind::Position(position) => format!("{type_name} {name} [[{position}]]"),
        ArgumentKind::Bound { kind, index } => format!("{type_name} {name} [[{kind}({index}){condition}]]"),
    }
}

/// What is printed in JSON.
#[derive(Serialize)]
struct Listing<'a> {
    file: &'a str,
    libraries: usize,
    functions: Vec<Listed<'a>>,
}

/// A function in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    kind: &'a str,
    air_version: String,
    language_version: String,
    arguments: Vec<ListedArgument<'a>>,
    constants: Vec<ListedConstant<'a>>,
    compile_options: &'a [String],
    max_threads: Option<u32>,
    producer: Option<&'a str>,
    bytes: usize,
}

#[derive(Serialize)]
struct ListedConstant<'a> {
    name: &'a str,
    index: u16,
    #[serde(rename = "type")]
    type_name: &'a str,
}

#[derive(Serialize)]
struct ListedArgument<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    kind: &'a str,
    conditional: bool,
    unused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    buffer: Option<ListedBuffer>,
}

#[derive(Serialize)]
struct ListedBuffer {
    memory: &'static str,
    access: &'static str,
    size: u32,
    alignment: u32,
    needed: Option<u32>,
}

impl<'a> Listed<'a> {
    fn new(function: &Function<'a>, description: &'a Description) -> Self {
        let constant =
            |constant: &FunctionConstant<'a>| ListedConstant { name: constant.name, index: constant.index, type_name: constant.kind.name() };
        Self {
            name: function.name,
            kind: function.kind.name(),
            air_version: version(function.air_version),
            language_version: version(function.language_version),
            arguments: description.arguments.iter().map(ListedArgument::new).collect(),
            constants: function.constants.iter().map(constant).collect(),
            compile_options: &description.compile_options,
            max_threads: description.max_threads,
            producer: description.producer.as_deref(),
            bytes: function.bitcode.len(),
        }
    }
}

impl<'a> ListedArgument<'a> {
    fn new(argument: &'a Argument) -> Self {
        let Argument { name, type_name, kind, conditional, unused, .. } = argument;
        let (kind, index, buffer) = match kind {
            ArgumentKind::Buffer { index, access, constant, size, alignment, needed } => {
                let access = match access {
                    Access::Read => "read",
                    Access::Write => "write",
                    Access::ReadWrite => "read_write",
                };
                let memory = if *constant { "constant" } else { "device" };
                ("buffer", Some(*index), Some(ListedBuffer { memory, access, size: *size, alignment: *alignment, needed: *needed }))
            }
            ArgumentKind::Threadgroup { index } => ("threadgroup", Some(*index), None),
            ArgumentKind::Position(position) => (position.as_str(), None, None),
            ArgumentKind::Bound { kind, index } => (kind.as_str(), Some(*index), None),
        };
        Self { name, type_name, kind, conditional: *conditional, unused: *unused, index, buffer }
    }
}
