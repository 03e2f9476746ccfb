//! Commands, and the buffers of them that queues take.

use elinvar_core::Result;

use crate::{buffer::Buffer, dispatch::Dispatch, random::Random};

/// A command.
#[derive(Clone)]
pub(crate) enum Command {
    Dispatch(Box<Dispatch>),
    Copy { from: Buffer, from_offset: usize, to: Buffer, to_offset: usize, bytes: usize },
    Fill { buffer: Buffer, offset: usize, bytes: usize, value: u8 },
}

/// Commands that are submitted together. They hold the buffers and kernels they use.
#[derive(Clone, Default)]
pub struct CommandBuffer {
    pub(crate) commands: Vec<Command>,
    pub(crate) seed: u64,
    /// The number of commands before each barrier.
    barriers: Vec<usize>,
}

impl CommandBuffer {
    /// Empty; threadgroups and threads run in order.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty; threadgroups and threads run in an order that the seed decides. Seed 0 is the natural order.
    pub fn with_seed(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Adds a dispatch.
    ///
    /// # Errors
    /// It contradicts its kernel's signature, its buffers, or the limits of a device; the message says how.
    pub fn dispatch(&mut self, dispatch: Dispatch) -> Result<()> {
        dispatch.validate()?;
        self.commands.push(Command::Dispatch(Box::new(dispatch)));
        Ok(())
    }

    /// Adds a copy.
    ///
    /// # Errors
    /// A range does not lie in its buffer.
    pub fn copy(&mut self, from: &Buffer, from_offset: usize, to: &Buffer, to_offset: usize, bytes: usize) -> Result<()> {
        from.range("copy from", from_offset, bytes)?;
        to.range("copy into", to_offset, bytes)?;
        self.commands.push(Command::Copy { from: from.clone(), from_offset, to: to.clone(), to_offset, bytes });
        Ok(())
    }

    /// Adds a fill.
    ///
    /// # Errors
    /// The range does not lie in the buffer.
    pub fn fill(&mut self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<()> {
        buffer.range("fill", offset, bytes)?;
        self.commands.push(Command::Fill { buffer: buffer.clone(), offset, bytes, value });
        Ok(())
    }

    /// Ends a stretch of commands that may run side by side, as a concurrent encoder's do: those since the last barrier are put in an order that the
    /// seed decides, and what checked kernels, copies and fills of a stretch do to the same bytes is a race. Without any barrier, commands run in the
    /// order they came, each when the one before has ended.
    pub fn barrier(&mut self) {
        let since = self.since();
        if let Some(stretch) = self.commands.get_mut(since..).filter(|_| self.seed != 0) {
            Random::new(self.seed).shuffle(stretch);
        }
        self.barriers.push(self.commands.len());
    }

    /// Where the commands since the last barrier begin.
    fn since(&self) -> usize {
        self.barriers.last().copied().unwrap_or(0)
    }

    /// Commands that may run side by side, stretch by stretch.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = &[Command]> {
        let ends = self.barriers.iter().copied().chain(self.since() + 1..=self.commands.len());
        ends.scan(0, |start, end| self.commands.get(std::mem::replace(start, end)..end))
    }

    /// Whether it holds no command.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}
