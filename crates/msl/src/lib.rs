//! Reads Metal Shading Language and lowers it for other devices.
//!
//! [`preprocess`] expands macros and includes files. [`Module::read`] takes the result and finds its kernels (plain ones and instantiations of
//! templates), what their parameters are bound to, and its function constants. [`Module::lints`] reports what tokens show that Apple's compiler rejects, and
//! [`Module::lower_for_rules`] gives the text that a front end judges for the rest. [`Module::lower_for_simulator`] gives the text that clang compiles for a CPU, against the headers in [`simulator`]; [`Module::lower_for_cuda`]
//! the one that NVRTC compiles, against those in [`cuda`].
//!
//! Everything here is a pure function of text: no compiler is run.

/// The headers of a device's prelude, name and text: those in its own folder and those that all devices share.
macro_rules! prelude {
    ($folder:literal: $($name:literal)*) => {
        &[
            $(($name, include_str!(concat!($folder, $name))),)*
            ("traits.h", include_str!("prelude/traits.h")),
            ("constants.h", include_str!("prelude/constants.h")),
            ("common.h", include_str!("prelude/common.h")),
            ("elementary.h", include_str!("prelude/elementary.h")),
            ("geometric.h", include_str!("prelude/geometric.h")),
            ("matrix.h", include_str!("prelude/matrix.h")),
            ("types.h", include_str!("prelude/types.h")),
            ("pack.h", include_str!("prelude/pack.h")),
            ("texture.h", include_str!("prelude/texture.h")),
            ("internals.h", include_str!("prelude/internals.h")),
        ]
    };
}

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
pub mod rules;
mod signature;
pub mod simulator;
mod sizes;
mod structure;
mod tokens;

pub use elinvar_core::METAL_VERSION;
pub use kernel::{AddressSpace, FunctionConstant, Kernel, Parameter, ParameterKind, Position};
pub use lints::Lint;
pub use location::Location;
pub use lower::{Entry, Lowered};
pub use module::Module;
pub use preprocess::{Folders, Included, Includes, MetalHeaders, preprocess};
