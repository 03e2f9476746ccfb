use elinvar_core::Buffer;

/// Memory that recordings share: see [`Executor::record_in`](crate::Executor::record_in).
#[derive(Clone, Default)]
pub struct Workspace {
    pub(super) buffers: Vec<Buffer>,
}

impl Workspace {
    /// Its bytes: at most four times those that its largest recording needs.
    pub fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.raw().bytes()).sum()
    }
}
