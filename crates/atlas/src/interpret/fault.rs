//! What ends a launch.

/// What ends a launch: the step and what is wrong there.
pub(super) struct Fault {
    pub(super) step: usize,
    pub(super) what: String,
}

pub(super) type Result<T> = std::result::Result<T, Fault>;
