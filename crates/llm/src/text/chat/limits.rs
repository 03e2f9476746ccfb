//! What templates may take.

/// Instructions a template may execute.
pub(super) const FUEL: u64 = 5_000_000;
/// Depth of macros calling macros.
pub(super) const RECURSION: usize = 64;
/// Bytes a template may write.
pub(super) const MAX_OUTPUT: usize = 16 << 20;
