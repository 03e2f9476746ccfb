//! Errors that name their place in a program.

use elinvar_core::Error;

use crate::program::{Function, Site};

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::invalid_data(message)
}

/// An error about an instruction.
pub(super) fn at(function: &Function, index: usize, message: impl std::fmt::Display) -> Error {
    wrong(format!("{}: {message}", Site::of(function, index)))
}
