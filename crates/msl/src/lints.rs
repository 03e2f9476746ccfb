//! What clang accepts and Apple's compiler does not, as far as tokens show.

mod classes;
mod declarations;
mod findings;
mod pointers;
mod words;

use crate::module::Module;
use findings::Findings;
pub use findings::Lint;

impl Module {
    /// What tokens show that Apple's compiler rejects, when it compiles for `metal_version`: 310 is Metal 3.1.
    pub fn lints(&self, metal_version: u32) -> Vec<Lint> {
        let mut findings = Findings { module: self, lints: Vec::new() };
        words::words(&mut findings, metal_version);
        declarations::declarations(&mut findings);
        classes::classes(&mut findings);
        pointers::pointers(&mut findings);
        let mut lints = findings.lints;
        lints.extend(crate::rules::positions(self).into_iter().chain(crate::rules::bindings(self)));
        lints.sort_by(|a, b| (&a.location.file, a.location.line).cmp(&(&b.location.file, b.location.line)));
        lints
    }
}

#[cfg(test)]
mod tests;
