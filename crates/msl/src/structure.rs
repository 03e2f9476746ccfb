//! The braces of a text: what each encloses, and where the statement around each token starts.

use crate::tokens::{TokenKind, Tokens};

/// What a pair of braces encloses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// A namespace, `extern "C"`, or the whole text.
    Namespace,
    /// A struct, class or union.
    Class,
    /// A function, a lambda or a block inside one.
    Function,
    /// Values: an initialiser or an enumeration.
    Values,
}

#[derive(Clone, Copy, Debug)]
struct Brace {
    scope: Scope,
    /// Where the statement that opened the brace starts.
    head: usize,
    /// The index of the brace outside; the first entry is its own.
    outer: usize,
}

/// The scope of every token.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    braces: Vec<Brace>,
    tokens: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    brace: usize,
    statement: usize,
    /// Parentheses and square brackets open inside the brace.
    nesting: usize,
}

impl Structure {
    pub(crate) fn new(tokens: &Tokens) -> Self {
        let root = Brace { scope: Scope::Namespace, head: 0, outer: 0 };
        let mut reader = Reader {
            tokens,
            braces: vec![root],
            places: Vec::with_capacity(tokens.len()),
            brace: 0,
            statement: 0,
            nesting: 0,
            suspended: Vec::new(),
        };
        (0..tokens.len()).for_each(|index| reader.step(index));
        Self { braces: reader.braces, tokens: reader.places }
    }

    pub(crate) fn scope(&self, index: usize) -> Scope {
        self.tokens.get(index).map_or(Scope::Namespace, |place| self.braces[place.brace].scope)
    }

    /// Where the statement starts that opened the innermost brace around the token.
    pub(crate) fn head(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(0, |place| self.braces[place.brace].head)
    }

    /// A number of the innermost brace around the token.
    pub(crate) fn brace(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(0, |place| place.brace)
    }

    /// Where the statement or declaration around the token starts.
    pub(crate) fn statement(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(index, |place| place.statement)
    }

    /// Whether no parenthesis or square bracket encloses the token inside its braces.
    pub(crate) fn is_outer(&self, index: usize) -> bool {
        self.tokens.get(index).is_some_and(|place| place.nesting == 0)
    }

    /// Whether a statement starts at the token.
    pub(crate) fn is_start(&self, index: usize) -> bool {
        self.is_outer(index) && self.statement(index) == index
    }

    /// The indices at which declarations of `scope` start.
    pub(crate) fn starts(&self, scope: Scope) -> impl Iterator<Item = usize> + '_ {
        (0..self.tokens.len()).filter(move |&index| self.is_start(index) && self.scope(index) == scope)
    }

    /// The namespaces around the token, as the prefix of a qualified name: `a::b::`.
    pub(crate) fn namespace(&self, tokens: &Tokens, index: usize) -> String {
        let mut brace = self.tokens.get(index).map_or(0, |place| place.brace);
        let mut path = Vec::new();
        while brace != 0 {
            let head = self.braces[brace].head;
            let end = tokens.find(head, tokens.len(), &["{"]);
            let names = (head..end).filter(|&at| tokens.is_identifier(at) && !matches!(tokens.text(at), "inline" | "namespace" | "extern"));
            path.push(names.map(|at| format!("{}::", tokens.text(at))).collect::<String>());
            brace = self.braces[brace].outer;
        }
        path.into_iter().rev().collect()
    }
}

struct Reader<'a> {
    tokens: &'a Tokens,
    braces: Vec<Brace>,
    places: Vec<Place>,
    brace: usize,
    statement: usize,
    nesting: usize,
    /// The nesting of each brace outside.
    suspended: Vec<usize>,
}

impl Reader<'_> {
    fn step(&mut self, index: usize) {
        let text = self.tokens.text(index);
        if matches!(text, ")" | "]") {
            self.nesting = self.nesting.saturating_sub(1);
        }
        self.places.push(Place { brace: self.brace, statement: self.statement, nesting: self.nesting });
        match text {
            "(" | "[" => self.nesting += 1,
            ";" if self.nesting == 0 => self.statement = index + 1,
            ":" if self.is_access_specifier(index) => self.statement = index + 1,
            "{" => self.open(index),
            "}" => self.close(index),
            _ => {}
        }
    }

    fn scope(&self) -> Scope {
        self.braces[self.brace].scope
    }

    fn is_access_specifier(&self, index: usize) -> bool {
        self.scope() == Scope::Class && matches!(self.tokens.before(index), "public" | "private" | "protected")
    }

    fn open(&mut self, index: usize) {
        let scope = self.classify(index);
        self.braces.push(Brace { scope, head: self.statement, outer: self.brace });
        self.brace = self.braces.len() - 1;
        self.suspended.push(self.nesting);
        self.nesting = 0;
        if scope != Scope::Values {
            self.statement = index + 1;
        }
    }

    fn close(&mut self, index: usize) {
        let Some(nesting) = self.suspended.pop() else { return };
        let closed = self.braces[self.brace];
        self.brace = closed.outer;
        self.nesting = nesting;
        // A class or an initialiser is followed by the rest of its declaration, a lambda inside parentheses by the rest of its call.
        let continues = matches!(closed.scope, Scope::Class | Scope::Values) || nesting > 0;
        self.statement = if continues { closed.head } else { index + 1 };
        if let Some(place) = self.places.last_mut() {
            *place = Place { brace: self.brace, statement: closed.head, nesting };
        }
    }

    fn classify(&self, index: usize) -> Scope {
        let (keyword, call) = self.head(index);
        let before = self.tokens.before(index);
        if matches!(before, "=" | "," | "(" | "return") {
            return Scope::Values;
        }
        match keyword {
            "namespace" | "extern" => return Scope::Namespace,
            "enum" if !call => return Scope::Values,
            "struct" | "class" | "union" if !call => return Scope::Class,
            _ => {}
        }
        match self.scope() {
            Scope::Function | Scope::Values => {
                let block = matches!(before, ")" | "{" | "}" | ";" | "else" | "do" | ":" | "mutable" | "const" | "try");
                if block || self.statement == index || self.follows_return_type(index) { Scope::Function } else { Scope::Values }
            }
            Scope::Namespace | Scope::Class => {
                if call {
                    Scope::Function
                } else {
                    Scope::Values
                }
            }
        }
    }

    /// The keyword that introduces the statement around `index`, and whether a parameter list comes before `index`.
    fn head(&self, index: usize) -> (&str, bool) {
        let mut at = self.statement;
        while self.tokens.text(at) == "template" && self.tokens.text(at + 1) == "<" {
            at = self.tokens.after(at + 1);
        }
        if self.tokens.text(at) == "extern" && self.tokens.kind(at + 1) == TokenKind::Literal && at + 2 == index {
            return ("extern", false);
        }
        let (mut keyword, mut call) = ("", false);
        while at < index {
            match self.tokens.text(at) {
                text @ ("struct" | "class" | "union" | "enum" | "namespace") if keyword.is_empty() && !call => keyword = text,
                "alignas" | "__attribute__" => {
                    at = self.tokens.after(at + 1);
                    continue;
                }
                "(" => call = true,
                "[" => {
                    at = self.tokens.after(at);
                    continue;
                }
                "<" if !call => {
                    at = self.tokens.after(at).min(index).max(at + 1);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        (keyword, call)
    }

    /// Whether the brace follows a lambda's `-> Type`.
    fn follows_return_type(&self, index: usize) -> bool {
        let from = index.saturating_sub(8).max(self.statement);
        (from..index).rev().take_while(|&at| self.tokens.text(at) != "=").any(|at| self.tokens.text(at) == "->" && self.tokens.before(at) == ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope_of(source: &str, word: &str) -> Scope {
        let tokens = Tokens::new(source);
        let index = (0..tokens.len()).find(|&index| tokens.text(index) == word).unwrap();
        Structure::new(&tokens).scope(index)
    }

    #[test]
    fn kinds_of_braces_are_distinguished() {
        assert_eq!(scope_of("namespace a { X x; }", "X"), Scope::Namespace);
        assert_eq!(scope_of("template <typename T, struct S> struct alignas(16) A : B<C> { X x; };", "X"), Scope::Class);
        assert_eq!(scope_of("struct S f(int a) const { X x; }", "X"), Scope::Function);
        assert_eq!(scope_of("enum class E : uint { X };", "X"), Scope::Values);
        assert_eq!(scope_of("constant int t[] = { X };", "X"), Scope::Values);
        assert_eq!(scope_of("void f() { for (;;) { if (a) { X; } } }", "X"), Scope::Function);
        assert_eq!(scope_of("void f() { auto g = [&](int i) -> float { X; }; }", "X"), Scope::Function);
        assert_eq!(scope_of("void f() { call(a, [=](int i) { X; }, 3); }", "X"), Scope::Function);
        assert_eq!(scope_of("void f() { int a[2] = { X }; }", "X"), Scope::Values);
        assert_eq!(scope_of("void f() { float4 a { X }; }", "X"), Scope::Values);
        assert_eq!(scope_of("extern \"C\" { X x; }", "X"), Scope::Namespace);
        assert_eq!(scope_of("struct A { A() : a(1) { X; } };", "X"), Scope::Function);
    }

    #[test]
    fn statements_start_after_functions_and_continue_after_classes() {
        let tokens = Tokens::new("void f() {} struct A { int b; } c; int d;");
        let structure = Structure::new(&tokens);
        let starts: Vec<&str> = structure.starts(Scope::Namespace).map(|index| tokens.text(index)).collect();
        assert_eq!(starts, ["void", "struct", "int"]);
    }

    #[test]
    fn namespaces_qualify() {
        let tokens = Tokens::new("namespace a { inline namespace b::c { int x; } }");
        let index = (0..tokens.len()).find(|&index| tokens.text(index) == "x").unwrap();
        assert_eq!(Structure::new(&tokens).namespace(&tokens, index), "a::b::c::");
    }
}
