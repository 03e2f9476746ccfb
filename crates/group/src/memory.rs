use elinvar_core::{Binding, Buffer, DeviceMemory, Result};

/// Memory of every rank.
pub(crate) struct Parts(pub(crate) Vec<Buffer>);

impl DeviceMemory for Parts {
    fn bytes(&self) -> usize {
        self.0.first().map_or(0, Buffer::bytes)
    }

    fn is_read_only(&self) -> bool {
        self.0.iter().any(|part| part.raw().is_read_only())
    }
}

/// A binding of the group's memory as one of a rank's.
pub(crate) fn of_rank(binding: &Binding, rank: usize) -> Result<Binding> {
    binding.buffer().raw().downcast::<Parts>()?.0[rank].bind(binding.offset(), binding.bytes())
}
