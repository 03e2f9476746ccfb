//! The text form.

mod format;
mod lexer;
mod literal;
mod parser;
mod statement;

pub use format::format;
pub use parser::parse;
