//! The C preprocessor, so that no compiler is needed to read a kernel: directives, macros, conditions, includes.
//!
//! It follows the C++17 standard, and where that leaves a choice, clang, whose output it matches token for token (the simulator's tests compare
//! them). As there, a macro is not expanded while it is being expanded, an identifier that named one then is never expanded later,
//! `, ## __VA_ARGS__` drops its comma with the arguments, and `__VA_OPT__` is known. Unlike there, macros are expanded in `#pragma unroll` and
//! `#pragma clang loop`, as a compiler does, since after this no macro is left, and tokens keep their columns.
//!
//! What depends on the compiler is answered as if it offered nothing (`__has_builtin`, `__has_feature`, `__has_extension`, `__has_attribute`,
//! `__has_cpp_attribute` are 0), and the time of day is unknown, so that equal inputs give equal outputs everywhere.

mod conditions;
mod definition;
mod directives;
mod expansion;
mod expression;
mod file;
mod includes;
mod lexer;
mod printer;
mod queries;
mod reader;
mod substitution;
#[cfg(test)]
mod tests;
mod token;

use elinvar_core::{METAL_VERSION, Result};

pub use includes::{Folders, Included, Includes, MetalHeaders};
use printer::Printer;
use reader::Reader;
use token::Kind;

/// What is defined before the first line, as Metal's compiler does.
const PREDEFINED: &[(&str, &str)] = &[
    ("__METAL__", "1"),
    ("__METAL_MACOS__", "1"),
    ("__HAVE_BFLOAT__", "1"),
    ("__cplusplus", "201703L"),
    ("__STDC__", "1"),
    ("__STDC_HOSTED__", "1"),
];

/// Expands macros, decides conditions and includes files. The result carries line markers (`# 12 "file"`) and pragmas, as
/// [`Module::read`](crate::Module::read) expects.
///
/// `name` is what messages call the text, and where its quoted includes are looked for if it is a path. `defines` are names and bodies
/// that replace the predefined ones (`__METAL__`, `__METAL_VERSION__` = [`METAL_VERSION`], `__HAVE_BFLOAT__`, …); a name may have parameters: `("F(x)", "x+1")`.
///
/// # Errors
///
/// What a compiler's preprocessor rejects, as `file:line: …`: a file not found, `#error`, conditions that cannot be evaluated or do not end,
/// misused macros; and texts that grow or nest out of all bounds.
pub fn preprocess(name: &str, text: &str, defines: &[(&str, &str)], includes: &dyn Includes) -> Result<String> {
    let mut reader = Reader::new(name, text, includes);
    let version = METAL_VERSION.to_string();
    for (name, body) in PREDEFINED.iter().chain(&[("__METAL_VERSION__", version.as_str())]).chain(defines) {
        reader.predefine(name, body)?;
    }
    let mut printer = Printer::new(name);
    loop {
        let token = reader.next()?;
        if token.kind == Kind::End {
            return Ok(printer.finish());
        }
        printer.print(&token, &reader.names);
        reader.check_output(printer.len())?;
    }
}
