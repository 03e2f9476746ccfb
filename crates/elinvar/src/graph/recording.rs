use std::sync::{Arc, Weak};

use elinvar_atlas::Program;
use elinvar_core::{Command, CommandList, ListBuilder, Result};

use super::shared::TensorMemory;
use crate::programs::Prepared;

/// Commands recorded once, to be replayed with [`crate::Executor::replay`].
///
/// It keeps every buffer it uses. Tensors that outlive the recorder are its inputs and outputs: write the inputs, replay, read the outputs. Results that
/// nothing holds when it ends share memory among themselves.
#[derive(Clone)]
pub struct Recording {
    pub(crate) list: Arc<CommandList>,
    /// Memory that it writes, as far as something holds that.
    pub(super) written: Vec<Weak<TensorMemory>>,
    pub(super) programs: Vec<Prepared>,
}

impl Recording {
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.list.commands().len()
    }

    /// Bytes of memory that its commands read and write.
    pub fn bytes(&self) -> u64 {
        self.list.commands().iter().map(Command::bytes).sum()
    }

    /// One that does what these do, one after the other.
    ///
    /// # Errors
    /// They are of different devices.
    pub fn concat<'a>(recordings: impl IntoIterator<Item = &'a Recording>) -> Result<Recording> {
        let (mut list, mut written, mut programs) = (ListBuilder::new(), Vec::new(), Vec::new());
        for recording in recordings {
            list.append(&recording.list)?;
            written.extend(recording.written.iter().cloned());
            programs.extend(recording.programs.iter().cloned());
        }
        Ok(Recording { list: list.finish(), written, programs })
    }

    /// The programs that operators on elements became, in the order in which they run: to be read, as text or rendered for a device
    /// ([`program_metal`](crate::program_metal), [`program_cuda`](crate::program_cuda)).
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1f32, 2.0])?;
    /// let (recording, _y) = executor.record(|recorded| x.on(recorded)?.silu()?.mul(&x))?;
    /// let programs: Vec<_> = recording.programs().map(elinvar::atlas::format).collect();
    /// assert!(programs.len() == 1 && programs[0].contains("silu"), "{programs:?}");
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().map(Prepared::program)
    }

    /// It is replayed: what was kept of its memory for a gradient is no longer as it was.
    pub(crate) fn count_replay(&self) {
        self.written.iter().filter_map(Weak::upgrade).for_each(|memory| memory.replay());
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
