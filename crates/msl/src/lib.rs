//! Reads Metal Shading Language and lowers it for other devices.
//!
//! [`preprocess`] expands macros and includes files. [`Module::read`] takes the result and finds its kernels (plain ones and instantiations of
//! templates), what their parameters are bound to, and its function constants. [`Module::lints`] tells what Apple's compiler would refuse, and
//! [`Module::lower_for_simulator`] gives the text that clang compiles for a CPU, against the headers in [`simulator`]; [`Module::lower_for_cuda`]
//! the one that NVRTC compiles, against those in [`cuda`].
//!
//! Everything here is a pure function of text: no compiler is run.

mod attributes;
pub mod cuda;
mod functions;
mod instantiation;
mod integers;
mod kernel;
mod lints;
mod location;
mod lower;
mod module;
mod preprocess;
mod signature;
pub mod simulator;
mod sizes;
mod structure;
mod tokens;

pub use kernel::{AddressSpace, FunctionConstant, Kernel, Parameter, ParameterKind, Position};
pub use lints::{Lint, misuse::address_space_misuse};
pub use location::Location;
pub use lower::{Entry, Lowered};
pub use module::Module;
pub use preprocess::{Folders, Includes, MetalHeaders, preprocess};
