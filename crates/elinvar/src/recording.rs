use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use elinvar_core::{Buffer, CommandList, Device, Error, ListBuilder, Result};

use crate::{fusion, tensor::TensorMemory};

/// Commands recorded once, to be replayed with [`crate::Executor::replay`].
///
/// It keeps every buffer it uses. Tensors that outlive the recorded closure are its inputs and outputs: write the inputs, replay, read
/// the outputs. Tensors dropped inside share memory among themselves.
#[derive(Clone)]
pub struct Recording {
    pub(crate) list: Arc<CommandList>,
    pub(crate) device: Device,
}

impl Recording {
    /// Number of commands.
    pub fn len(&self) -> usize {
        self.list.commands().len()
    }

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct Active {
    device: Device,
    list: ListBuilder,
    /// Memory allocated while recording, and the tensor that owns it; free for the next command once that tensor is gone.
    transients: Vec<(Buffer, Weak<TensorMemory>)>,
}

thread_local! {
    static ACTIVE: RefCell<Option<Active>> = const { RefCell::new(None) };
}

/// Runs `body` with this thread's work on `device` going into a list.
pub(crate) fn record<T>(device: &Device, body: impl FnOnce() -> Result<T>) -> Result<(Recording, T)> {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            ACTIVE.with_borrow_mut(Option::take);
        }
    }
    if ACTIVE.with_borrow(Option::is_some) {
        return Err(Error::invalid_argument("a recording is already in progress on this thread: recordings do not nest"));
    }
    let scope = fusion::Scope::enter();
    fusion::flush()?;
    ACTIVE.set(Some(Active { device: device.clone(), list: ListBuilder::new(), transients: Vec::new() }));
    let reset = Reset;
    let value = body()?;
    fusion::flush()?;
    drop(scope);
    let active = ACTIVE.with_borrow_mut(Option::take);
    drop(reset);
    let list = active.map(|a| a.list).unwrap_or_default().finish();
    Ok((Recording { list, device: device.clone() }, value))
}

/// Whether this thread records for `device`.
pub(crate) fn is_recording(device: &Device) -> bool {
    ACTIVE.with_borrow(|active| active.as_ref().is_some_and(|a| a.device.same(device)))
}

/// Memory for a result of this thread's recording: a dropped result's if one fits well, else new.
pub(crate) fn allocate(device: &Device, bytes: usize) -> Result<Buffer> {
    ACTIVE.with_borrow_mut(|active| {
        let Some(active) = active else { return device.allocate(bytes) };
        let fits = |buffer: &Buffer| buffer.raw().bytes() >= bytes && buffer.raw().bytes() / 4 <= bytes.max(64);
        let free = active.transients.iter().enumerate().filter(|(_, (buffer, owner))| owner.strong_count() == 0 && fits(buffer));
        let best = free.min_by_key(|(_, (buffer, _))| buffer.raw().bytes()).map(|(index, _)| index);
        if let Some(buffer) = best.and_then(|index| active.transients.swap_remove(index).0.resized(bytes)) {
            return Ok(buffer);
        }
        device.allocate(bytes)
    })
}

/// Remembers that `buffer` can be reused once `owner` is gone (at once for temporaries, whose owner never lived).
pub(crate) fn lend(buffer: &Buffer, owner: Weak<TensorMemory>) {
    ACTIVE.with_borrow_mut(|active| {
        if let Some(active) = active {
            active.transients.push((buffer.clone(), owner));
        }
    });
}

/// Adds commands to this thread's recording.
pub(crate) fn append<T>(body: impl FnOnce(&mut ListBuilder) -> Result<T>) -> Result<T> {
    ACTIVE.with_borrow_mut(|active| match active {
        Some(active) => body(&mut active.list),
        None => Err(Error::invalid_argument("no recording is in progress")),
    })
}
