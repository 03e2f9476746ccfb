//! What the rules find.

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
pub(super) struct Findings<'a> {
    pub(super) module: &'a Module,
    pub(super) lints: Vec<Lint>,
}

impl Findings<'_> {
    pub(super) fn add(&mut self, rule: &'static str, at: usize, message: impl Into<String>) {
        let lint = Lint { location: self.module.tokens.location(at), rule, message: message.into() };
        // An instantiating macro repeats its faults on one line.
        if !self.lints.contains(&lint) {
            self.lints.push(lint);
        }
    }
}
