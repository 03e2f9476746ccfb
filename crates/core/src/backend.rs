use std::sync::Arc;

use crate::{
    buffer::{Binding, Buffer},
    commands::CommandList,
    completion::Completion,
    error::{Error, Result},
    host_memory::MemoryInfo,
    kernel::{KernelSource, Pipeline},
    memory::{HostMemory, HostMemoryMut, RawBuffer, Storage},
    profile::ProfileEvent,
    properties::DeviceProperties,
    reading::Reading,
};

/// How short of memory the system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryPressure {
    /// It begins to lack memory.
    Warning,
    /// It is about to end programs.
    Critical,
}

/// What is to be done when the system lacks memory; called on any thread.
pub type Relief = Box<dyn Fn(MemoryPressure) + Send + Sync>;

/// The other processes that a device's lists exchange with.
pub trait Peers {
    /// This process's number, and how many there are.
    fn place(&self) -> [usize; 2];

    /// What each process gives, in their order.
    ///
    /// # Errors
    /// A process ended.
    fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Whether all are there.
    ///
    /// # Errors
    /// A process ended.
    fn check(&self) -> Result<()>;
}

/// A device's place among those of other processes.
pub trait Joined: Send + Sync {
    /// Ends what waits for another device, as one of them is lost: lists complete, with whatever their memory has.
    fn abort(&self);
}

/// The backend interface: everything a device must do.
///
/// Lists arrive validated (see the crate's documentation). Lists, reads and writes take effect in the order of the calls.
pub trait Backend: Send + Sync {
    /// What launch plans may know.
    fn properties(&self) -> &DeviceProperties;

    /// Memory now.
    fn memory(&self) -> MemoryInfo;

    /// `bytes` of memory that begins at a multiple of 16, contents unspecified but initialised; freed when the last clone is dropped.
    ///
    /// # Errors
    /// Out of memory; larger than the device allows.
    fn allocate(&self, bytes: usize, storage: Storage) -> Result<RawBuffer>;

    /// Makes host memory readable by kernels, without a copy where memory is unified. Kernels may not write it.
    ///
    /// # Errors
    /// As [`Backend::allocate`], on devices that must copy.
    fn adopt(&self, memory: HostMemory) -> Result<RawBuffer> {
        let buffer = self.allocate(memory.bytes().len(), Storage::Automatic)?;
        self.write(&buffer, 0, memory.bytes())?;
        Ok(buffer)
    }

    /// Makes host memory readable and writable by kernels, where it lies.
    ///
    /// # Errors
    /// The device's kernels reach no host memory, as those of a device without an implementation.
    fn adopt_mut(&self, _memory: HostMemoryMut) -> Result<RawBuffer> {
        Err(Error::unsupported(format!("{} does not write host memory where it lies: read results from the device's own", self.properties().name)))
    }

    /// Makes memory of another device of this kind reachable by kernels, where it lies.
    ///
    /// # Errors
    /// The two devices do not reach each other's memory, as those of a device without an implementation.
    fn adopt_peer(&self, _memory: &RawBuffer) -> Result<RawBuffer> {
        Err(Error::unsupported(format!("{} reaches no other device's memory", self.properties().name)))
    }

    /// Joins the devices of other processes, all of which do so at the same time, so that lists may exchange with them. Without an implementation lists do not,
    /// and their hosts do.
    ///
    /// # Errors
    /// A process ended, or lacks what the devices exchange by.
    fn join(&self, _peers: &dyn Peers) -> Result<Option<Arc<dyn Joined>>> {
        Ok(None)
    }

    /// Copies `bytes` into the buffer, after everything submitted before, also after what failed: that is reported by what reads.
    ///
    /// # Errors
    /// Device lost.
    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Copies out of the buffer, after everything submitted before.
    ///
    /// # Errors
    /// Device lost, or the error of an earlier submission that nothing waited for.
    fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Shows the host bytes of the buffer, after everything submitted before: where they lie if the host reaches them there, else a copy. What else
    /// is asked of the device waits meanwhile, so `see` may ask nothing of it.
    ///
    /// # Errors
    /// As [`Backend::read`].
    fn view(&self, buffer: &RawBuffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut copy = vec![0; bytes];
        self.read(buffer, offset, &mut copy)?;
        see(&copy);
        Ok(())
    }

    /// Lets the host change bytes of the buffer, after everything submitted before: where they lie if the host reaches them there, else a copy that is written
    /// back. What else is asked of the device waits meanwhile, so `change` may ask nothing of it; without an implementation that copies, it does not wait.
    ///
    /// # Errors
    /// As [`Backend::read`] and [`Backend::write`].
    fn view_mut(&self, buffer: &RawBuffer, offset: usize, bytes: usize, change: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut copy = vec![0; bytes];
        self.read(buffer, offset, &mut copy)?;
        change(&mut copy);
        self.write(buffer, offset, &copy)
    }

    /// Starts to copy out of the buffer, after everything submitted before and before everything submitted after: a loop can submit its next list and
    /// then look at the results of the last, whose errors its completion reports. Without an implementation the copy is waited for.
    ///
    /// # Errors
    /// Device lost; where the copy is waited for, as [`Backend::read`].
    fn read_later(&self, buffer: &RawBuffer, offset: usize, bytes: usize) -> Result<Reading> {
        let mut copy = vec![0; bytes];
        self.read(buffer, offset, &mut copy)?;
        Ok(Reading::ready(copy))
    }

    /// Prepares a kernel, or begins to: see [`Backend::ready`].
    ///
    /// # Errors
    /// The kernel does not compile, or has no form this device can run.
    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline>;

    /// Waits until a kernel is prepared, where `compile` only begins that; else its first launch waits.
    ///
    /// # Errors
    /// The kernel does not compile.
    fn ready(&self, _kernel: &Pipeline) -> Result<()> {
        Ok(())
    }

    /// Does what the first start of a list would wait for, such as preparing its kernels: for lists that wait for those of other devices while they run, so that
    /// none may wait for anything before it starts.
    ///
    /// # Errors
    /// A kernel does not compile, or out of memory.
    fn prepare(&self, commands: &Arc<CommandList>) -> Result<()> {
        commands.kernels().try_for_each(|kernel| self.ready(kernel))
    }

    /// Calls `relieve` from now on whenever the system reports that it lacks memory, until the backend is dropped. Without an implementation it never does.
    fn on_memory_pressure(&self, relieve: Relief) {
        drop(relieve);
    }

    /// Starts a list; errors of execution are read from the completion. The list lives until it has completed, or until all that is asked of the
    /// device comes after it in the device's own order.
    ///
    /// # Errors
    /// Device lost.
    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion>;

    /// Runs a list at once over what is given in the place of its stand-ins, which its commands may have, where that takes less time than to submit a list of
    /// it; else, and without an implementation, nothing happens.
    ///
    /// # Errors
    /// As [`Backend::submit`].
    fn run_over(&self, _commands: &CommandList, _places: &[Buffer], _given: &[Binding]) -> Result<Option<Completion>> {
        Ok(None)
    }

    /// Whether all that was submitted has completed: what reads would wait for nothing. Without an implementation it is not known to have.
    fn is_idle(&self) -> bool {
        false
    }

    /// Times every command from now on, until [`Backend::end_profile`]: what was submitted before has ended, and what was timed before is dropped.
    ///
    /// # Errors
    /// The device cannot time its commands here; the message says what it needs. Without an implementation no device can.
    fn start_profile(&self) -> Result<()> {
        Err(Error::unsupported(format!("{} times no commands: profile another device", self.properties().name)))
    }

    /// Waits for everything submitted and times no more: what ran since [`Backend::start_profile`], by start; nothing where no profile is taken.
    ///
    /// # Errors
    /// What was timed cannot be matched with what was submitted, or was lost.
    fn end_profile(&self) -> Result<Vec<ProfileEvent>> {
        Ok(Vec::new())
    }
}
