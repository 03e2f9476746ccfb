//! Lowering to plain C++: what the keywords and macros of the prelude cannot express.

use std::collections::HashSet;

use elinvar_core::Result;

use super::{RulesText, includes_library, methods::methods, vectors::vectors};
use crate::{
    functions::functions,
    instantiation::instantiation,
    kernel::Kernel,
    lower::{self, edits::Edits, literals, qualifiers::after_type},
    module::{Module, is_explicit_instantiation},
    structure::Scope,
    tokens::TokenKind,
};

impl Module {
    /// Plain C++ that clang rejects where Apple's compiler rejects the text, with `kernels` instantiated: see [`rules`](crate::rules).
    ///
    /// # Errors
    ///
    /// A kernel that the text does not have.
    pub fn lower_for_rules(&self, kernels: &[&str]) -> Result<RulesText> {
        let kernels = kernels.iter().map(|name| self.kernel(name)).collect::<Result<Vec<_>>>()?;
        let mut edits = Edits::new(&self.tokens);
        lower::attributes(self, &mut edits);
        let asked_for = instantiations(self, &kernels, &mut edits);
        directives(self, &mut edits);
        function_constants(self, &mut edits);
        statics(self, &mut edits);
        methods(self, &mut edits);
        array_parameters(self, &mut edits);
        literals::literals(self, &mut edits);
        half_literals(self, &mut edits);
        vectors(self, &mut edits);
        let mut text = edits.apply();
        for kernel in asked_for {
            let location = &kernel.location;
            text.push_str(&format!(
                "\n# {} \"{}\"\ntemplate decltype({function}) {function};",
                location.line,
                location.file,
                function = kernel.function
            ));
        }
        text.push('\n');
        let is_bfloat = |at: usize| self.tokens.text(at).starts_with("bfloat");
        Ok(RulesText { text, header: if includes_library(self) { "stdlib.h" } else { "types.h" }, has_bfloat: (0..self.tokens.len()).any(is_bfloat) })
    }
}

/// Drops the instantiations of kernels that are not wanted; the kernels that are wanted though the text does not instantiate them.
fn instantiations<'a>(module: &Module, kernels: &'a [Kernel], edits: &mut Edits<'_>) -> Vec<&'a Kernel> {
    let tokens = &module.tokens;
    let wanted: HashSet<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    for start in module.structure.starts(Scope::Namespace).filter(|&at| is_explicit_instantiation(tokens, at)) {
        let Some(found) = instantiation(tokens, start).filter(|found| found.is_kernel) else { continue };
        let name = found.host_name.unwrap_or_else(|| tokens.join(found.id.0, found.id.1));
        if !wanted.contains(name.as_str()) {
            edits.drop(start, tokens.find(start, tokens.len(), &[";"]) + 1);
        }
    }
    let written: HashSet<&str> = module.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    kernels.iter().filter(|kernel| !written.contains(kernel.name.as_str())).collect()
}

/// Headers come from the prelude, and pragmas say nothing about types.
fn directives(module: &Module, edits: &mut Edits<'_>) {
    for &(start, end) in module.tokens.directives() {
        edits.replace_bytes(start, end, String::new());
    }
}

/// A function constant has its value from elsewhere.
fn function_constants(module: &Module, edits: &mut Edits<'_>) {
    for declared in &module.constants {
        let (start, end) = declared.range;
        edits.blank(start, end);
        edits.replace(start, format!("extern constant {} {};", declared.constant.type_name, declared.constant.name));
    }
}

/// Variables of a function in threadgroup or constant memory are static: C++ knows no other automatic ones than a thread's.
fn statics(module: &Module, edits: &mut Edits<'_>) {
    let (tokens, structure) = (&module.tokens, &module.structure);
    for at in (0..tokens.len()).filter(|&at| matches!(tokens.text(at), "threadgroup" | "constant")) {
        let start = structure.statement(at);
        let words = if tokens.text(start) == "alignas" { tokens.after(start + 1) } else { start };
        let leading = (words..at).all(|at| matches!(tokens.text(at), "const" | "constexpr" | "volatile") || edits.is_blank(at));
        let declares = structure.scope(at) == Scope::Function && structure.is_outer(at) && leading;
        let name = after_type(tokens, at + 1);
        if declares && tokens.is_identifier(name) {
            edits.insert_before(at, "static ");
        }
    }
}

/// `threadgroup T x[N]` as a parameter becomes `threadgroup T* x`: clang takes the address space for the parameter's own.
fn array_parameters(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for function in functions(module) {
        for (start, end) in function.parameters {
            let in_space = (start..end).any(|at| matches!(tokens.text(at), "device" | "constant" | "threadgroup"));
            let bound = (start..end).find(|&at| tokens.text(at) == "[" && !tokens.is_attribute(at) && tokens.is_identifier(at - 1));
            let Some(bound) = bound.filter(|_| in_space) else { continue };
            let after = tokens.after(bound);
            edits.blank(bound, after);
            let is_nested = tokens.text(after) == "[" && !tokens.is_attribute(after);
            edits.open(bound - 1, if is_nested { "(*" } else { "*" });
            edits.close(bound - 1, if is_nested { ")" } else { "" });
        }
    }
}

/// `1.5h`, which C++ does not know.
fn half_literals(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for at in (0..tokens.len()).filter(|&at| tokens.kind(at) == TokenKind::Number) {
        let literal = tokens.text(at);
        if let Some(digits) = literal.strip_suffix(['h', 'H']).filter(|digits| digits.contains(['.', 'e', 'E', 'p'])) {
            edits.replace(at, format!("((half){digits}f)"));
        }
    }
}
