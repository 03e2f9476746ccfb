//! Findings as an executor collects them; their lines are looked up later.

use std::collections::HashMap;

use elinvar_msl::Location;

use crate::{abi::Record, finding::FindingKind};

/// A finding without its lines.
pub(crate) struct Raw {
    pub(crate) kind: FindingKind,
    pub(crate) thread: [u32; 3],
    pub(crate) threadgroup: [u32; 3],
    pub(crate) buffer: Option<String>,
    pub(crate) offset: Option<i64>,
    pub(crate) message: String,
    /// Return addresses, innermost first, relative to the library.
    pub(crate) frames: Vec<u64>,
    /// The place, where the kernel said it itself.
    pub(crate) at: Option<Location>,
    pub(crate) other: Option<RawOther>,
    pub(crate) count: u64,
}

/// The earlier access of a race.
pub(crate) struct RawOther {
    pub(crate) pc: u64,
    pub(crate) record: Record,
}

/// Findings by what makes them equal: the kind, the place, the other access, the region.
#[derive(Default)]
pub(crate) struct Findings {
    pub(super) index: HashMap<(FindingKind, u64, u32, u32), usize>,
    pub(crate) found: Vec<Raw>,
}
