//! Pointers and references without an address space, as clang's dump of the syntax tree tells.

use std::{collections::HashSet, sync::Arc};

use super::Lint;
use crate::{location::Location, module::Module};

/// Reads `clang -Xclang -ast-dump` of a lowered text without entry points, compiled with `ELV_STRICT_THREAD`: there, only what the text leaves
/// unqualified is in the generic address space.
pub(crate) fn unqualified_pointers(module: &Module, dump: &str) -> Vec<Lint> {
    let files: HashSet<&str> = module.tokens.files().collect();
    let (deduced, arrays) = (lines_with_auto(module), arrays(module));
    let mut reader = Reader { file: Arc::from(""), line: 0, skipped: None, templates: Vec::new() };
    let mut lints: Vec<Lint> = Vec::new();
    for text in dump.lines() {
        let Some(node) = reader.node(text) else { continue };
        let location = Location { file: reader.file.clone(), line: reader.line };
        if !files.contains(&*location.file) || deduced.contains(&location) || !is_unqualified(node.type_name) {
            continue;
        }
        if arrays.contains(&(node.name, location.clone())) {
            continue;
        }
        let message = format!("{:?} is a pointer or reference without an address space: device, constant, threadgroup or thread", node.name);
        let lint = Lint { location, rule: "address-space", message };
        if !lints.contains(&lint) {
            lints.push(lint);
        }
    }
    lints
}

/// The lines on which `auto` stands: what it stands for is deduced, address space and all.
fn lines_with_auto(module: &Module) -> HashSet<Location> {
    let tokens = &module.tokens;
    (0..tokens.len()).filter(|&at| tokens.text(at) == "auto").map(|at| tokens.location(at)).collect()
}

/// Names declared as arrays, which as parameters are pointers to memory of the thread: `float dims[2]`.
fn arrays(module: &Module) -> HashSet<(&str, Location)> {
    let tokens = &module.tokens;
    let is_type = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_') && !matches!(text, "return" | "else" | "do" | "case");
    let declared = |at: &usize| tokens.text(at + 1) == "[" && is_type(tokens.text(at - 1)) && is_type(tokens.text(*at));
    (1..tokens.len().saturating_sub(1)).filter(declared).map(|at| (tokens.text(at), tokens.location(at))).collect()
}

/// Whether what is pointed to is in the generic address space. In `device float*& p` the reference may go without.
fn is_unqualified(type_name: &str) -> bool {
    type_name.find(['*', '&']).is_some_and(|at| type_name[..at].contains("__generic"))
}

/// A variable's, parameter's or member's declaration.
struct Node<'a> {
    name: &'a str,
    type_name: &'a str,
}

/// Follows the places in the dump, of which each line gives only what changed, and leaves out what templates were instantiated to.
struct Reader {
    file: Arc<str>,
    line: u32,
    /// The depth of the node whose children are left out.
    skipped: Option<usize>,
    /// The depths of the function templates around, each with whether its pattern was passed.
    templates: Vec<(usize, bool)>,
}

impl Reader {
    fn node<'a>(&mut self, text: &'a str) -> Option<Node<'a>> {
        let depth = text.find(|c: char| c.is_alphabetic())?;
        let kind = text[depth..].split(' ').next()?;
        let rest = text.split_once(" 0x")?.1;
        // Statements end with their range, declarations go on with the place of their name.
        let (range, rest) = rest.split_once('<')?.1.split_once('>')?;
        let rest = rest.trim_start();
        range.split([',', ' ']).for_each(|place| self.follow(place));
        self.follow(rest.split(' ').next()?);
        if !self.is_source(depth, kind) || !matches!(kind, "ParmVarDecl" | "VarDecl" | "FieldDecl") {
            return None;
        }
        let (before, quoted) = rest.split_once('\'')?;
        // Parameters without a name are those of functions that the compiler adds to classes.
        let name = before.split_whitespace().last().filter(|name| !name.contains(':') && !matches!(*name, "used" | "referenced" | "implicit"))?;
        Some(Node { name, type_name: quoted.split('\'').next()? })
    }

    /// Whether the node is part of the text, not of an instantiation.
    fn is_source(&mut self, depth: usize, kind: &str) -> bool {
        if self.skipped.is_some_and(|skipped| depth > skipped) {
            return false;
        }
        self.skipped = None;
        self.templates.retain(|&(template, _)| template < depth);
        match kind {
            "FunctionTemplateDecl" => self.templates.push((depth, false)),
            "ClassTemplateSpecializationDecl" | "VarTemplateSpecializationDecl" => self.skipped = Some(depth),
            "FunctionDecl" | "CXXMethodDecl" | "CXXConstructorDecl" | "CXXConversionDecl" => {
                if let Some((_, passed)) = self.templates.last_mut().filter(|(template, _)| depth == template + 2) {
                    if *passed {
                        self.skipped = Some(depth);
                    }
                    *passed = true;
                }
            }
            _ => {}
        }
        self.skipped.is_none()
    }

    /// Takes over a place: `file:line:column`, `line:line:column` or `col:column`.
    fn follow(&mut self, place: &str) {
        let place = place.trim_matches(['<', '>']);
        let mut parts = place.rsplitn(3, ':');
        let (Some(_column), Some(line), Some(file)) = (parts.next(), parts.next(), parts.next()) else { return };
        let Ok(line) = line.parse() else { return };
        self.line = line;
        if file != "line" && *self.file != *file {
            self.file = Arc::from(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Module;

    #[test]
    fn only_what_the_text_leaves_unqualified_is_told() {
        let module = Module::read("# 1 \"t.metal\"\nstruct S;\n\n\n\n\nvoid f(S* a, device S* b, float d[2]) {\n\n\nauto& c = *a; }").unwrap();
        let dump = "\
|-CXXRecordDecl 0x1 <./prelude/language.h:33:16, line:40:1> line:33:30 struct elv
| |-FieldDecl 0x2 <col:53, col:60> col:60 hidden '__generic float *'
|-FunctionTemplateDecl 0x3 <t.metal:1:1, line:5:1> line:5:3 tf
| |-TemplateTypeParmDecl 0x4 <col:11, col:20> col:20 typename depth 0 index 0 T
| |-FunctionDecl 0x5 <col:23, col:90> col:28 tf 'void (T &)'
| | `-ParmVarDecl 0x6 <col:31, col:48> col:48 dep 'T &'
| `-FunctionDecl 0x7 <col:23, col:90> col:28 used tf 'void (__generic float &)'
|   `-ParmVarDecl 0x8 <col:31, col:48> col:48 used dep '__generic float &__private'
`-FunctionDecl 0x9 <line:6:1, line:9:60> line:6:6 f 'void (__generic S *__private, __global_device S *)'
  |-ParmVarDecl 0xa <col:8, col:11> col:11 used a '__generic S *__private'
  |-ParmVarDecl 0xb <./prelude/language.h:33:16, t.metal:6:32> col:32 b '__global_device S *__private'
  |-ParmVarDecl 0xf <col:40, col:50> col:46 d '__generic float *__private'
  `-CompoundStmt 0xc <line:7:1, line:9:60>
    `-DeclStmt 0xd <line:9:1, col:13>
      `-VarDecl 0xe <col:1, col:12> col:7 c '__generic S &__private' cinit";
        let lints: Vec<String> = module.unqualified_pointers(dump).iter().map(|lint| format!("{} {}", lint.location, &lint.message[..3])).collect();
        assert_eq!(lints, ["t.metal:6 \"a\""]);
    }
}
