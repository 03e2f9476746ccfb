use std::sync::Arc;

use elinvar_core::{CommandList, ListBuilder, Result};

/// Commands recorded once, to be replayed with [`crate::Executor::replay`].
///
/// It keeps every buffer it uses. Tensors that outlive the recorder are its inputs and outputs: write the inputs, replay, read the outputs. Results that
/// nothing holds when it ends share memory among themselves.
#[derive(Clone)]
pub struct Recording {
    pub(crate) list: Arc<CommandList>,
}

impl Recording {
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.list.commands().len()
    }

    /// One that does what these do, one after the other.
    ///
    /// # Errors
    /// They are of different devices.
    pub fn concat<'a>(recordings: impl IntoIterator<Item = &'a Recording>) -> Result<Recording> {
        let mut list = ListBuilder::new();
        recordings.into_iter().try_for_each(|recording| list.append(&recording.list))?;
        Ok(Recording { list: list.finish() })
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
