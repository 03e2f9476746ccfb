//! What clang says of a text, as findings at the author's lines.

use std::{collections::HashSet, sync::Arc};

use super::{PRELUDE, includes_library, methods};
use crate::{lints::Lint, location::Location, module::Module};

/// Reads clang's errors about a text of [`Module::lower_for_rules`](crate::Module::lower_for_rules), and says of each what Metal asks for instead.
/// An error in the prelude is reported where the text led to it. `strict_bfloat` says that the text was read with [`STRICT_BFLOAT`](super::STRICT_BFLOAT),
/// for the conversions to bfloat alone.
pub fn findings(output: &str, module: &Module, strict_bfloat: bool) -> Vec<Lint> {
    let files: HashSet<&str> = module.tokens.files().collect();
    let is_own = |file: &str| files.contains(file);
    let reader = Reader { is_own: &is_own, has_library: includes_library(module), elsewhere: methods::owners(module) };
    let errors = errors(output);
    let mut invalidated =
        Invalidated::new(module, errors.iter().filter(|(error, notes)| is_ours(error.message, notes)).map(|(_, notes)| notes.as_slice()));
    let (mut lints, mut accepted): (Vec<Lint>, HashSet<Location>) = Default::default();
    for (error, notes) in &errors {
        let own = |diagnostic: &&Diagnostic<'_>| is_own(diagnostic.file);
        let Some(place) = Some(error).filter(own).or_else(|| notes.iter().find(own)) else { continue };
        let verdict = if strict_bfloat { narrowing(error.message) } else { reader.verdict(error.message, notes) };
        let Some((rule, message)) = verdict else {
            accepted.insert(place.location());
            continue;
        };
        // An instantiation has no initialiser where plain C++ rejected it in the template.
        if error.message.starts_with("default initialization of an object of const type") && accepted.contains(&place.location()) {
            continue;
        }
        if is_about_call(error.message) && (was_given_up(notes) || invalidated.is_called(place)) {
            continue;
        }
        let lint = Lint { location: place.location(), rule, message };
        if !lints.contains(&lint) {
            lints.push(lint);
        }
    }
    lints
}

/// Each error with its notes.
fn errors(output: &str) -> Vec<(Diagnostic<'_>, Vec<Diagnostic<'_>>)> {
    let mut errors: Vec<(Diagnostic<'_>, Vec<Diagnostic<'_>>)> = Vec::new();
    for diagnostic in output.lines().filter_map(Diagnostic::read) {
        match errors.last_mut() {
            Some((_, notes)) if diagnostic.level == "note" => notes.push(diagnostic),
            _ if diagnostic.level == "note" => {}
            _ => errors.push((diagnostic, Vec::new())),
        }
    }
    errors
}

/// Whether an error says that a call, or an instantiation under a second name, finds no function.
fn is_about_call(message: &str) -> bool {
    const STARTS: &[&str] = &[
        "no matching",
        "no member named",
        "too many arguments",
        "too few arguments",
        "reference to overloaded function could not be resolved",
        "explicit instantiation of",
    ];
    STARTS.iter().any(|start| message.starts_with(start))
}

/// Whether what a call wants is an instantiation that clang has given up: it passes it over and has no reason to add.
fn was_given_up(notes: &[Diagnostic<'_>]) -> bool {
    notes.iter().any(|note| note.message.starts_with("candidate template ignored: substitution failure [") && note.message.ends_with(']'))
}

/// Instantiations that clang gave up because plain C++ rejects what Metal does not: later calls of them find no function.
struct Invalidated<'a> {
    names: HashSet<&'a str>,
    module: &'a Module,
    /// The lines that have one of the names; made when it is first asked for.
    lines: Option<HashSet<Location>>,
}

impl<'a> Invalidated<'a> {
    fn new<'n>(module: &'a Module, notes: impl Iterator<Item = &'n [Diagnostic<'a>]>) -> Self
    where
        'a: 'n,
    {
        let instance = |notes: &[Diagnostic<'a>]| {
            let note = notes.iter().find(|note| note.message.starts_with("in instantiation of"))?;
            without_arguments(note.message.split('\'').nth(1)?).rsplit("::").next()
        };
        Self { names: notes.filter_map(instance).collect(), module, lines: None }
    }

    fn is_called(&mut self, at: &Diagnostic<'_>) -> bool {
        let (names, tokens) = (&self.names, &self.module.tokens);
        let lines = self.lines.get_or_insert_with(|| {
            let named = (0..tokens.len()).filter(|&at| names.contains(tokens.text(at)));
            named.map(|at| tokens.location(at)).collect()
        });
        lines.contains(&at.location())
    }
}

/// `file:line:column: level: message`.
struct Diagnostic<'a> {
    file: &'a str,
    line: u32,
    level: &'a str,
    message: &'a str,
}

impl<'a> Diagnostic<'a> {
    fn read(text: &'a str) -> Option<Self> {
        ["fatal error", "error", "note"].into_iter().find_map(|level| {
            let (place, message) = text.split_once(&format!(": {level}: "))?;
            let mut parts = place.rsplitn(3, ':');
            let (_column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Self { file, line: line.parse().ok()?, level, message })
        })
    }

    fn location(&self) -> Location {
        Location { file: Arc::from(self.file), line: self.line }
    }
}

type Verdict = Option<(&'static str, String)>;

/// A float given for a bfloat, which converts from integers but not from float.
fn narrowing(message: &str) -> Verdict {
    let [to, from] = types(message).try_into().ok()?;
    let converts = message.starts_with("cannot initialize") || message.starts_with("assigning to");
    (converts && bare(to) == "bfloat" && bare(from) == "float")
        .then(|| ("bfloat-conversion", "a float does not become a bfloat by itself: write bfloat(…) around it".to_owned()))
}

struct Reader<'a> {
    is_own: &'a dyn Fn(&str) -> bool,
    has_library: bool,
    /// Words of the names of classes with methods for objects in other memory than a thread's.
    elsewhere: HashSet<&'a str>,
}

impl Reader<'_> {
    /// The rule that an error shows broken, and what to write instead; none for what only plain C++ rejects.
    fn verdict(&self, message: &str, notes: &[Diagnostic<'_>]) -> Verdict {
        if is_ours(message, notes) {
            return None;
        }
        let messages = std::iter::once(message).chain(notes.iter().map(|note| note.message));
        if messages.flat_map(types).any(|name| space(name).is_some() && words(name).any(|word| self.elsewhere.contains(word))) {
            return None;
        }
        if let Some(space) = method_space(message, notes) {
            let is_librarys = notes.iter().any(|note| note.message.contains("'this' object") && !(self.is_own)(note.file));
            let advice = format!(
                "a method is called on an object in {space} memory, and `this` is thread memory: copy the object to a variable first, or pass its fields"
            );
            return (!is_librarys).then_some(("method-space", advice));
        }
        if let Some((found, wanted)) =
            spaces(message).or_else(|| notes.iter().find_map(|note| spaces(note.message).or_else(|| spaces_of_note(note.message))))
        {
            return Some(("address-space", format!("{found} memory is used where {wanted} memory is wanted: Metal's address spaces do not convert")));
        }
        let name = types(message).first().copied().unwrap_or_default();
        if let Some((_, version)) = SINCE.iter().find(|(since, _)| *since == name) {
            return Some(("version", format!("`{name}` came with Metal {version}: compile for that version, or do without")));
        }
        if !self.has_library && is_undeclared(message) && PRELUDE.iter().any(|(_, text)| words(text).any(|word| word == name)) {
            return Some(("include", format!("`{name}` is the library's: write #include <metal_stdlib> first")));
        }
        let candidates = || notes.iter().filter(|note| note.message.starts_with("candidate"));
        let is_librarys = candidates().next().is_some() && candidates().all(|note| !(self.is_own)(note.file));
        if message.ends_with("is ambiguous") && is_librarys {
            return Some(("overload", format!("the arguments of `{name}` have different types, none of which fits all: cast them to one type")));
        }
        if message.starts_with("no matching function") && is_librarys && (name.starts_with("simd_") || name.starts_with("quad_")) {
            let advice = "takes numbers of at most 32 bits, and no bool or bfloat: exchange a 64-bit number as a uint2, a bool as an integer, a bfloat as a float";
            return Some(("simd-type", format!("`{name}` {advice}")));
        }
        Some(("compile", metals(message)))
    }
}

/// Names of the library, and the version that brought them.
const SINCE: &[(&str, &str)] = &[
    ("atomic_thread_fence", "3.2"),
    ("memory_order_acquire", "3.2"),
    ("memory_order_release", "3.2"),
    ("memory_order_acq_rel", "3.2"),
    ("memory_order_seq_cst", "3.2"),
];

/// What plain C++ rejects and Metal does not: parts of messages.
const OURS: &[&str] = &[
    // Vectors are constructed and converted in more ways there, and their elements are objects.
    "(vector of ",
    "excess elements in vector",
    "excess elements in scalar initializer",
    "function-style cast to a builtin type can only take one argument",
    "non-const reference cannot bind to vector element",
    "ext_vector_type",
    "illegal vector component name",
    "to 'metal::matrix<",
    // Kernels of two names may be one instance.
    "duplicate explicit instantiation of",
    // `constant` members defined outside their class; `threadgroup float x[8] = {0}`.
    "variable in constant address space must be initialized",
    "'__local' variable cannot have an initializer",
];

/// What notes say where plain C++ rejects a text and Metal does not: a structure is copied across address spaces, an object in threadgroup memory has a
/// constructor, a vector is given as a list.
const OUR_NOTES: &[(&str, &str)] = &[
    ("(the implicit copy constructor) not viable", "address space"),
    ("(the implicit copy assignment operator) not viable", "address space"),
    ("cannot be used to construct an object in address space", ""),
    ("cannot convert initializer list argument", ""),
];

/// Whether an error comes from the means by which a text is judged.
fn is_ours(message: &str, notes: &[Diagnostic<'_>]) -> bool {
    let named: Vec<String> = types(message).into_iter().map(bare).collect();
    let has = |names: [&str; 2]| named.iter().any(|name| names.contains(&name.as_str()));
    OURS.iter().any(|part| message.contains(part))
        || notes.iter().any(|note| OUR_NOTES.iter().any(|(first, second)| note.message.contains(first) && note.message.contains(second)))
        || has(["_Float16", "half"]) && has(["__bf16", "bfloat"])
        // Layouts are the business of a compilation.
        || message.starts_with("static assertion failed") && !PRELUDE.iter().any(|(_, text)| message.rsplit(": ").next().is_some_and(|why| text.contains(why)))
        // `c ? a : b` of one type in different address spaces.
        || message.starts_with("incompatible operand types") && named.first() == named.last()
}

/// The memory that a method's object is in, if an error says that it is no thread's.
fn method_space(message: &str, notes: &[Diagnostic<'_>]) -> Option<&'static str> {
    if message.starts_with("cannot initialize object parameter") {
        return types(message).last().copied().and_then(space);
    }
    let note = notes.iter().find(|note| note.message.contains("'this' object is in address space"))?;
    types(note.message).iter().find_map(|name| space(name))
}

/// The spaces that the two types quoted in a message point to, if they differ: what was found, what was wanted.
fn spaces(message: &str) -> Option<(&'static str, &'static str)> {
    let is_conversion = ["cannot initialize", "assigning", "binding reference", "no known conversion", "incompatible", "converts between", "passing"];
    if !is_conversion.iter().any(|part| message.contains(part)) || !message.contains(['*', '&']) && !message.contains("changes address space") {
        return None;
    }
    let [wanted, found] = types(message).try_into().ok()?;
    let (wanted, found) = if message.contains("no known conversion") { (found, wanted) } else { (wanted, found) };
    let (found, wanted) = (pointee(found), pointee(wanted));
    (found != wanted).then_some((found, wanted))
}

/// `cannot bind reference in address space '__global' to object in generic address space`, `cannot pass pointer to … as a pointer to …`.
fn spaces_of_note(note: &str) -> Option<(&'static str, &'static str)> {
    let rest = ["cannot bind reference in ", "is in ", "cannot pass pointer to "].iter().find_map(|start| Some(note.split_once(start)?.1))?;
    let (first, second) =
        [" to object in ", ", but parameter must be in ", " as a pointer to "].iter().find_map(|between| rest.split_once(between))?;
    let named = |text: &str| types(text).first().copied().and_then(space).unwrap_or("thread");
    let (found, wanted) = (named(first), named(second));
    (found != wanted).then_some((found, wanted))
}

fn is_undeclared(message: &str) -> bool {
    ["use of undeclared identifier", "unknown type name", "no member named", "no template named", "no type named"]
        .iter()
        .any(|start| message.starts_with(start))
}

/// Metal's name for an address space of clang's.
fn space(name: &str) -> Option<&'static str> {
    words(name).find_map(|word| match word {
        "__global" => Some("device"),
        "__constant" => Some("constant"),
        "__local" => Some("threadgroup"),
        _ => None,
    })
}

/// The memory that a pointer or reference type points to, or that an object is in.
fn pointee(name: &str) -> &'static str {
    space(name.rfind(['*', '&']).map_or(name, |at| &name[..at])).unwrap_or("thread")
}

/// The types and names between single quotes; where an alias is explained, what it stands for.
fn types(message: &str) -> Vec<&str> {
    let mut types: Vec<&str> = Vec::new();
    let mut parts = message.split('\'');
    let mut before = parts.next().unwrap_or_default();
    while let Some(quoted) = parts.next() {
        if before.ends_with("(aka ") {
            types.pop();
        }
        types.push(quoted);
        before = parts.next().unwrap_or_default();
    }
    types
}

/// A name without the template arguments at its end.
fn without_arguments(name: &str) -> &str {
    let mut depth = 0;
    let open = name.char_indices().rev().take_while(|&(at, c)| at + 1 < name.len() || c == '>').find(|(_, c)| {
        depth += i32::from(*c == '>') - i32::from(*c == '<');
        depth == 0
    });
    open.map_or(name, |(at, _)| &name[..at])
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

/// A type's name without its qualifiers.
fn bare(name: &str) -> String {
    let kept: Vec<&str> = name.split_whitespace().filter(|word| !matches!(*word, "const" | "volatile") && space(word).is_none()).collect();
    kept.join(" ")
}

/// A message in Metal's words.
fn metals(message: &str) -> String {
    let spelled = [("__global ", "device "), ("__constant ", "constant "), ("__local ", "threadgroup "), ("_Float16", "half"), ("__bf16", "bfloat")];
    spelled.iter().fold(message.to_owned(), |message, (clangs, metals)| message.replace(clangs, metals)).replace("const constant", "constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_without_their_arguments() {
        for (name, base) in [("f", "f"), ("f<a<b>, 1U>", "f"), ("S<x::y>::g", "S<x::y>::g"), ("S<1>::h<2>", "S<1>::h")] {
            assert_eq!(without_arguments(name), base);
        }
    }

    #[test]
    fn a_candidate_that_is_ignored_for_no_reason_was_given_up() {
        let ignored = |message| was_given_up(&[Diagnostic { file: "a.metal", line: 1, level: "note", message }]);
        assert!(ignored("candidate template ignored: substitution failure [with N = 1, T = T, L = Left]"));
        assert!(!ignored("candidate template ignored: substitution failure [with T = int]: no type named 'type' in 'A<int>'"));
        assert!(!ignored("candidate template ignored: couldn't infer template argument 'T'"));
        assert!(!ignored("candidate function not viable: requires 1 argument, but 2 were provided"));
    }

    #[test]
    fn memory_is_named_as_metal_names_it() {
        assert_eq!(spaces("cannot initialize a variable of type '__global float *' with an lvalue of type 'float *'"), Some(("thread", "device")));
        let call = "candidate function not viable: no known conversion from '__local float *' to '__global float *' for 1st argument";
        assert_eq!(spaces(call), Some(("threadgroup", "device")));
        assert_eq!(spaces("assigning to 'int' from incompatible type 'float4'"), None);
        let object = "candidate function not viable: cannot bind reference in address space '__constant' to object in address space '__global' in 1st argument";
        assert_eq!(spaces_of_note(object), Some(("constant", "device")));
    }

    #[test]
    fn only_a_float_is_rejected_for_a_bfloat() {
        assert!(narrowing("cannot initialize a variable of type 'const bfloat' with an rvalue of type 'float'").is_some());
        assert!(narrowing("assigning to '__global T' (aka '__global bfloat') from incompatible type 'U' (aka 'float')").is_some());
        assert_eq!(narrowing("assigning to 'bfloat' from incompatible type 'int'"), None);
        assert_eq!(narrowing("invalid operands to binary expression ('bfloat' and 'float')"), None);
    }
}
