//! Functions of compiled Metal libraries: from what Apple's compiler made of them to the representation that texts become, which is then checked and
//! compiled as theirs is.

mod intrinsics;
mod lower;
mod types;

pub(crate) use lower::{ENTRY, Request, lower};
