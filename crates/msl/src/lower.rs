//! Lowering: Metal Shading Language to C++ for OpenCL, by passes over the tokens that each rewrite one thing.
//!
//! The lines stay where they were, so that the compiler's messages and the line tables name the user's own.

mod amounts;
pub(crate) mod braces;
pub(crate) mod constants;
mod deduction;
pub(crate) mod edits;
mod entries;
pub(crate) mod literals;
mod overloads;
pub(crate) mod qualifiers;
pub(crate) mod swizzles;
pub(crate) mod ternaries;
mod threadgroup_variables;

use elinvar_core::Result;

use crate::module::{Module, is_explicit_instantiation};
use edits::Edits;
pub use entries::Entry;

/// A text for another compiler: clang in its C++ for OpenCL mode, with `simulator/prelude/msl.h` included before it, or NVRTC.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The text.
    pub text: String,
    /// Where each of the wanted kernels is entered, in the order asked for.
    pub entries: Vec<Entry>,
}

impl Module {
    /// C++ for OpenCL that behaves as the text does, with an entry point for each of `kernels`.
    ///
    /// # Errors
    ///
    /// A kernel that the text does not have.
    pub fn lower_for_simulator(&self, kernels: &[&str]) -> Result<Lowered> {
        let kernels = kernels.iter().map(|name| self.kernel(name)).collect::<Result<Vec<_>>>()?;
        let mut edits = Edits::new(&self.tokens);
        attributes(self, &mut edits);
        instantiations(self, &mut edits);
        declarations(self, &mut edits);
        pragmas(self, &mut edits);
        constants::function_constants(self, &mut edits);
        constants::tables(self, &mut edits, |_| "ELV_TABLE");
        qualifiers::locals(self, &mut edits);
        qualifiers::methods(self, &mut edits);
        qualifiers::array_parameters(self, &mut edits);
        qualifiers::function_pointers(self, &mut edits);
        overloads::overloads(self, &mut edits);
        deduction::deduction(self, &mut edits);
        swizzles::swizzles(self, &mut edits);
        literals::literals(self, &mut edits);
        braces::braces(self, &mut edits);
        amounts::amounts(self, &mut edits);
        ternaries::ternaries(self, &mut edits);
        threadgroup_variables::threadgroup_variables(self, &mut edits);
        let mut text = constants::defaults(self) + edits.apply().trim_end();
        let entries = entries::entries(&kernels, &mut text);
        Ok(Lowered { text, entries })
    }
}

/// Drops explicit instantiations: entry points instantiate what is wanted.
pub(crate) fn instantiations(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for start in module.structure.starts(crate::structure::Scope::Namespace) {
        if is_explicit_instantiation(tokens, start) {
            edits.drop(start, tokens.find(start, tokens.len(), &[";"]) + 1);
        }
    }
}

/// Makes kernels static functions, so that only those that are wanted are compiled to the end.
pub(crate) fn declarations(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for declaration in &module.declarations {
        let start = module.structure.statement(declaration.at);
        let mut head = start;
        while tokens.text(head) == "template" {
            head = tokens.after(head + 1);
        }
        for at in head..declaration.at {
            if matches!(tokens.text(at), "kernel" | "static" | "extern") {
                edits.replace(at, "");
            }
        }
        if module.is_unsupported(declaration.at) {
            let end = declaration.body.map_or(declaration.parameters.1 + 1, |(_, close)| close) + 1;
            edits.drop(start, end);
            continue;
        }
        // A specialisation takes the storage class of its template.
        if head == start || declaration.template.is_some() {
            edits.insert_before(head, "static ");
        }
    }
}

pub(crate) fn attributes(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| tokens.is_attribute(at)) {
        edits.blank(at, tokens.after(at));
    }
}

/// Keeps the pragmas that change arithmetic, in clang's spelling, and drops the others and the headers.
fn pragmas(module: &Module, edits: &mut Edits<'_>) {
    for &(start, end) in module.tokens.directives() {
        let words: Vec<&str> = module.tokens.source()[start + 1..end].split_whitespace().collect();
        let spelled = match words.as_slice() {
            ["pragma", "METAL", "fp", "math_mode(safe)"] => "#pragma clang fp contract(off)".to_owned(),
            ["pragma", "METAL" | "clang", "fp", rest @ ..] if rest.first().is_some_and(|word| word.starts_with("contract")) => {
                format!("#pragma clang fp {}", rest.join(" "))
            }
            ["pragma", "STDC", "FP_CONTRACT", state] => format!("#pragma clang fp contract({})", if *state == "OFF" { "off" } else { "on" }),
            _ => String::new(),
        };
        edits.replace_bytes(start, end, spelled);
    }
}

#[cfg(test)]
mod tests;
