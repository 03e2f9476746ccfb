//! What clang accepts and Apple's compiler does not, as far as tokens show.

mod classes;
mod declarations;
mod pointers;
mod words;

use std::fmt;

use crate::{location::Location, module::Module};

/// A construct that Metal does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// Where it stands.
    pub location: Location,
    /// The rule's short name.
    pub rule: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.location, self.message, self.rule)
    }
}

/// What the rules add to.
struct Findings<'a> {
    module: &'a Module,
    lints: Vec<Lint>,
}

impl Findings<'_> {
    fn add(&mut self, rule: &'static str, at: usize, message: impl Into<String>) {
        let lint = Lint { location: self.module.tokens.location(at), rule, message: message.into() };
        // An instantiating macro repeats its faults on one line.
        if !self.lints.contains(&lint) {
            self.lints.push(lint);
        }
    }
}

pub(crate) fn lints(module: &Module, metal_version: u32) -> Vec<Lint> {
    let mut findings = Findings { module, lints: Vec::new() };
    words::words(&mut findings, metal_version);
    declarations::declarations(&mut findings);
    classes::classes(&mut findings);
    pointers::pointers(&mut findings);
    let mut lints = findings.lints;
    lints.extend(crate::rules::positions(module).into_iter().chain(crate::rules::bindings(module)));
    lints.sort_by(|a, b| (&a.location.file, a.location.line).cmp(&(&b.location.file, b.location.line)));
    lints
}

#[cfg(test)]
mod tests;
