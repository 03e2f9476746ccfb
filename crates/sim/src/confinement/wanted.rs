//! What a process is to keep.

use std::{ffi::c_int, sync::OnceLock};

/// What a process keeps once it is confined.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// The open files that it may write to.
    pub writable: [c_int; 2],
    /// Called in a signal handler with the number of a system call that was denied; then the process ends.
    pub denied: fn(c_int),
}

/// Set by the first that confines the process.
pub(super) static WANTED: OnceLock<Confinement> = OnceLock::new();
