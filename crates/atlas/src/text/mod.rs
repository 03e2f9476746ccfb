//! The text form.

mod format;
mod lexer;
mod line;
mod literal;
mod parser;
mod scope;
mod statement;

pub use format::format;
pub use parser::parse;
