//! The table of scalar functions: one row for each, with its name, the types it takes, its definition in Rust and its name in Metal, its reference in f64
//! with an error bound, and its derivative.
//!
//! The operators on elements, the instructions of Atlas, fusion and their tests take functions from here. A function that is no composition of others is
//! defined in this crate, in Rust and in Metal; a row names it. What computes asks for a function [as a type](Unary::visit), so that a loop is compiled for
//! each.
//!
//! 16-bit floats are widened to f32, computed and rounded once.

mod binary;
mod compare;
mod derivative;
mod integer;
mod table;
mod ternary;
#[cfg(test)]
mod tests;
mod unary;

use elinvar_core::MetalFile;

pub use binary::Binary;
pub use compare::{Compare, RelationVisitor};
pub use derivative::Expression;
pub use integer::Integer;
pub use table::{ErrorBound, Function1, Function2, Function3, Relation, Visitor1, Visitor2, Visitor3};
pub use ternary::Ternary;
pub use unary::Unary;

/// The functions as types.
pub mod types {
    pub use super::{binary::binary::*, ternary::ternary::*, unary::unary::*};

    /// By which bfloats are computed, where that differs.
    pub mod bfloat {
        pub use super::super::unary::bfloat::*;
    }
}

/// The functions that no strict function stands for, in Metal: arithmetic on floats, and on integers, which wrap.
pub const METAL: MetalFile = MetalFile { name: "math/functions.metal", text: include_str!("functions.metal") };
