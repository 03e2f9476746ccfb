//! The rules of Apple's compiler, as far as a plain C++14 front end can judge them.
//!
//! [`Module::lower_for_rules`](crate::Module::lower_for_rules) gives a text that clang only checks, in the language that Metal is made from: address
//! spaces do not convert, `this` is a thread's own memory, and [`PRELUDE`] declares the overloads of Apple's headers and no others.
//! [`findings`] reads what clang rejects there.

mod bindings;
mod diagnostics;
mod lower;
mod methods;
mod positions;
mod vectors;

pub(crate) use bindings::bindings;
pub use diagnostics::findings;
pub(crate) use positions::positions;

use crate::module::Module;

/// The headers, name and text, for the front end that judges a text.
pub const PRELUDE: &[(&str, &str)] = &[
    ("types.h", include_str!("rules/prelude/types.h")),
    ("stdlib.h", include_str!("rules/prelude/stdlib.h")),
    ("math.h", include_str!("rules/prelude/math.h")),
    ("integer.h", include_str!("rules/prelude/integer.h")),
    ("synchronization.h", include_str!("rules/prelude/synchronization.h")),
    ("simd.h", include_str!("rules/prelude/simd.h")),
    ("atomic.h", include_str!("rules/prelude/atomic.h")),
    ("simdgroup_matrix.h", include_str!("rules/prelude/simdgroup_matrix.h")),
    ("pack.h", include_str!("rules/prelude/pack.h")),
    ("utility.h", include_str!("rules/prelude/utility.h")),
    ("limits.h", include_str!("simulator/prelude/limits.h")),
    ("limit_macros.h", include_str!("simulator/prelude/limit_macros.h")),
    ("constants.h", include_str!("prelude/constants.h")),
    ("traits.h", include_str!("prelude/traits.h")),
    ("geometric.h", include_str!("prelude/geometric.h")),
    ("matrix.h", include_str!("prelude/matrix.h")),
    ("texture.h", include_str!("prelude/texture.h")),
    ("internals.h", include_str!("prelude/internals.h")),
];

/// A text for the front end that judges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesText {
    /// The text.
    pub text: String,
    /// The header of [`PRELUDE`] that it is read after: the library, or the language alone where the text includes nothing.
    pub header: &'static str,
    /// Whether it has bfloat, whose conversions a reading of its own judges, with the define [`STRICT_BFLOAT`].
    pub has_bfloat: bool,
}

/// Makes bfloat a type that nothing converts to.
pub const STRICT_BFLOAT: &str = "ELV_STRICT_BFLOAT";

/// How clang is called to judge a text compiled as `metal_version`: 310 is Metal 3.1.
pub fn flags(metal_version: u32) -> Vec<String> {
    let standard = if metal_version >= 400 { "-std=c++17" } else { "-std=c++14" };
    let flags = [
        "-x",
        "c++",
        standard,
        "-nostdinc",
        "-nostdinc++",
        "-ffreestanding",
        "-fno-builtin",
        "-fno-exceptions",
        "-fno-rtti",
        "-fsigned-char",
        "-w",
        "-ferror-limit=0",
        "-ftemplate-backtrace-limit=0",
        "-fno-color-diagnostics",
        "-fno-caret-diagnostics",
        "-fno-elide-type",
    ];
    flags.iter().map(|flag| (*flag).to_owned()).chain([format!("-D__METAL_VERSION__={metal_version}")]).collect()
}

/// Whether the text includes one of Metal's headers, after which it may use the library.
fn includes_library(module: &Module) -> bool {
    let tokens = &module.tokens;
    let name = |&(start, end): &(usize, usize)| tokens.source()[start + 1..end].trim().strip_prefix("include").map(str::trim).unwrap_or_default();
    tokens.directives().iter().map(name).any(|name| name.starts_with("<metal") || name.starts_with("<simd"))
}
