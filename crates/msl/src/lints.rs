//! What clang accepts and Apple's compiler does not.

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

pub(crate) fn lints(_module: &Module) -> Vec<Lint> {
    Vec::new()
}
