//! Atlas: GPU programs as data.
//!
//! A [`Program`] is a kernel over typed virtual registers with structured control flow. It has a text form ([`parse`], [`format()`]) and a binary
//! form ([`decode`], [`encode`]). [`verify`] makes it a [`Verified`] program, which is safe to run whoever wrote it: [`interpret`]
//! says what it means and runs it on the CPU, and [`render`] writes it in Metal Shading Language, which gives the same bits.
//! `docs/atlas.md` is the specification.

mod binary;
mod builder;
mod constant;
pub mod interpret;
mod operations;
mod program;
pub mod render;
mod text;
mod verify;

pub use binary::{decode, encode};
pub use builder::Builder;
pub use program::{
    Atomic, Binary, Bounds, Compare, Constant, Function, Header, Instruction, LaunchConfig, Location, Memory, Operand, Parameter, Position, Program,
    Register, Scope, Shared, Shuffle, Ternary, Unary, is_floating, is_signed,
};
pub use text::{format, parse};
pub use verify::{Limits, Verified, verify};
