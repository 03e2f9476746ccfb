//! Function constants and the tables of constant memory at the scope of the text.

use super::edits::Edits;
use crate::{kernel::FunctionConstant, module::Module, structure::Scope};

/// `constant T name [[function_constant(3)]];` becomes a variable with the value of the macro `ELV_CONSTANT_3`;
/// `is_function_constant_defined(name)` asks whether that macro was given.
pub(crate) fn function_constants(module: &Module, edits: &mut Edits<'_>) {
    let tokens = &module.tokens;
    for declared in &module.constants {
        let (start, end) = declared.range;
        let FunctionConstant { name, index, type_name } = &declared.constant;
        edits.blank(start, end);
        edits.replace(start, format!("ELV_TABLE {type_name} {name} = ({type_name})(ELV_CONSTANT_{index});"));
    }
    for at in 0..tokens.len() {
        if tokens.text(at) == "is_function_constant_defined"
            && let Some(declared) = module.constants.iter().find(|declared| declared.constant.name == tokens.text(at + 2))
        {
            let qualified = tokens.before(at) == "::";
            edits.blank(if qualified { at - 2 } else { at }, tokens.after(at + 1));
            edits.replace(at, format!("(ELV_IS_DEFINED_{} != 0)", declared.constant.index));
        }
    }
}

/// Gives the macros of constants without a value one, and distinguishes them: the head of the lowered text.
pub(crate) fn defaults(module: &Module) -> String {
    let mut indices: Vec<u32> = module.constants.iter().map(|declared| declared.constant.index).collect();
    indices.sort_unstable();
    indices.dedup();
    let default = |index: u32| {
        format!(
            "#ifdef ELV_CONSTANT_{index}\n#define ELV_IS_DEFINED_{index} 1\n#else\n#define ELV_IS_DEFINED_{index} 0\n#define ELV_CONSTANT_{index} 0\n#endif\n"
        )
    };
    indices.into_iter().map(default).collect()
}

/// `constant T name[] = …` outside functions: a variable, which may live in another address space than a `constant` pointer's target.
/// `spelled` gives the word for it; its argument says whether the declaration has `constexpr`.
pub(crate) fn tables(module: &Module, edits: &mut Edits<'_>, spelled: impl Fn(bool) -> &'static str) {
    let tokens = &module.tokens;
    for at in 0..tokens.len() {
        if tokens.text(at) != "constant" || edits.is_blank(at) || !module.structure.is_outer(at) || tokens.before(at) == ")" {
            continue;
        }
        if !matches!(module.structure.scope(at), Scope::Namespace | Scope::Class) {
            continue;
        }
        let end = tokens.find(at + 1, tokens.len(), &[";", "=", "*", "&"]);
        let function = (at..end).any(|at| tokens.text(at) == "(" && tokens.before(at) != "alignas");
        if matches!(tokens.text(end), "=" | ";") && !function {
            let constexpr = (module.structure.statement(at)..end).any(|at| tokens.text(at) == "constexpr");
            edits.replace(at, spelled(constexpr));
        }
    }
}
