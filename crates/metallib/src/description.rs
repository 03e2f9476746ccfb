//! What a function takes, from the metadata of its bitcode.

use elinvar_core::{Error, Result};

use crate::{bitstream::Parsed, metadata::Metadata};

/// What a function takes and how it was compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The arguments in order.
    pub arguments: Vec<Argument>,
    /// Options, such as `denorms_disable` and `fast_math_disable`.
    pub compile_options: Vec<String>,
    /// A launch may not have more threads in a threadgroup.
    pub max_threads: Option<u32>,
    /// The compiler's own name and version.
    pub producer: Option<String>,
}

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its place among the parameters.
    pub position: u32,
    /// The name in the source.
    pub name: String,
    /// The type in the source: of a buffer, its element's.
    pub type_name: String,
    /// What is bound to it.
    pub kind: ArgumentKind,
    /// Whether a function constant decides if it is bound at all.
    pub conditional: bool,
    /// Whether the function does not use it.
    pub unused: bool,
}

/// What is bound to an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A buffer.
    Buffer {
        /// The index in the argument table.
        index: u32,
        /// What the function does with it.
        access: Access,
        /// Constant memory rather than device memory.
        constant: bool,
        /// Bytes of an element.
        size: u32,
        /// Its alignment in bytes.
        alignment: u32,
        /// Bytes that suffice, of a reference.
        needed: Option<u32>,
    },
    /// Threadgroup memory whose size the launch gives.
    Threadgroup {
        /// The index in the threadgroup memory table.
        index: u32,
    },
    /// A position, such as `thread_position_in_grid`, or anything else that Metal fills in.
    Position(String),
    /// What is bound by an index and is no buffer: `texture`, `sampler`, …
    Bound {
        /// The kind.
        kind: String,
        /// The index in its table.
        index: u32,
    },
}

/// What a function does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each says it itself")]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

const KINDS: &[&str] = &["air.kernel", "air.vertex", "air.fragment", "air.visible", "air.intersection", "air.mesh", "air.object"];
const THREADGROUP: i64 = 3;
const CONSTANT: i64 = 2;

/// What the function of that bitcode takes.
///
/// # Errors
/// The bitcode cannot be read.
pub fn describe(bitcode: &[u8]) -> Result<Description> {
    parse(bitcode).map_err(|found| Error::invalid_data(format!("its bitcode is not sound: {found}")))
}

fn parse(bitcode: &[u8]) -> Parsed<Description> {
    let metadata = Metadata::read(bitcode)?;
    let mut description = Description {
        compile_options: metadata
            .named("air.compile_options")
            .filter_map(|node| Some(metadata.text(*node.first()?)?.trim_start_matches("air.compile.").to_owned()))
            .collect(),
        producer: metadata.named("llvm.ident").find_map(|node| Some(metadata.text(*node.first()?)?.to_owned())),
        ..Description::default()
    };
    let Some(function) = KINDS.iter().find_map(|kind| metadata.named(kind).next()) else { return Ok(description) };
    let arguments = function.get(2).and_then(|arguments| metadata.node(*arguments)).unwrap_or_default();
    description.arguments = arguments.iter().filter_map(|node| argument(&metadata, metadata.node(*node)?)).collect();
    for attribute in function.iter().skip(3).filter_map(|node| metadata.node(*node)) {
        if let [name, value, ..] = attribute
            && metadata.text(*name) == Some("air.max_work_group_size")
        {
            description.max_threads = metadata.integer(*value).and_then(|threads| u32::try_from(threads).ok());
        }
    }
    Ok(description)
}

/// `!{i32 0, !"air.buffer", !"air.location_index", i32 0, i32 1, !"air.read", …, !"air.arg_name", !"in"}`.
fn argument(metadata: &Metadata<'_>, node: &[Option<usize>]) -> Option<Argument> {
    let (position, mut rest) = node.split_first()?;
    let conditional = rest.first().and_then(|first| metadata.text(*first)) == Some("air.function_constant");
    if conditional {
        rest = rest.get(2..)?;
    }
    let kind = metadata.text(*rest.first()?)?;
    let after = |key: &str| {
        let at = rest.iter().position(|entry| metadata.text(*entry) == Some(key))?;
        rest.get(at + 1).copied()
    };
    let has = |key: &str| rest.iter().any(|entry| metadata.text(*entry) == Some(key));
    let number = |key: &str| after(key).and_then(|at| metadata.integer(at));
    let unsigned = |key: &str| number(key).and_then(|value| u32::try_from(value).ok());
    let text = |key: &str| after(key).and_then(|at| metadata.text(at)).unwrap_or_default().to_owned();
    let index = unsigned("air.location_index");
    let kind = match (kind.trim_start_matches("air."), index) {
        ("buffer" | "indirect_buffer", Some(index)) if number("air.address_space") == Some(THREADGROUP) => ArgumentKind::Threadgroup { index },
        ("buffer" | "indirect_buffer", Some(index)) => ArgumentKind::Buffer {
            index,
            access: match (has("air.read_write"), has("air.write")) {
                (true, _) => Access::ReadWrite,
                (false, true) => Access::Write,
                (false, false) => Access::Read,
            },
            constant: number("air.address_space") == Some(CONSTANT),
            size: unsigned("air.arg_type_size").unwrap_or(0),
            alignment: unsigned("air.arg_type_align_size").unwrap_or(1),
            needed: unsigned("air.buffer_size"),
        },
        (kind, Some(index)) => ArgumentKind::Bound { kind: kind.to_owned(), index },
        (kind, None) => ArgumentKind::Position(kind.to_owned()),
    };
    Some(Argument {
        position: u32::try_from(metadata.integer(*position)?).ok()?,
        name: text("air.arg_name"),
        type_name: text("air.arg_type_name"),
        kind,
        conditional,
        unused: has("air.arg_unused"),
    })
}
