use std::{
    hint,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    },
    thread,
    time::Instant,
};

use elinvar_core::{
    Access, Binding, Buffer, Command, CommandList, Completion, Dispatch, Error, Extent, HostArguments, HostBinding, HostForm, InFlight, ProfileEvent,
    ProfileLog, Result, Signal,
};

use crate::{helpers::Helpers, memory::Memory, placement::Placement};

/// Lists waiting at once; a submitter that runs further ahead waits, so that intermediate results do not pile up.
const QUEUE: usize = 32;

/// How often the thread looks for the next list before it sleeps: some ten microseconds, in which a loop of small operators submits the next. Waking a thread
/// costs the submitter more than such an operator.
const LOOKS: usize = 200;

/// Bytes that a list touches, up to which the submitter runs it by itself, if nothing is ahead of it: that costs less than to wake the device's thread and
/// to be woken. The gradients of a product with a matrix of 64 by 64 are as short.
const SHORT: u64 = 64 << 10;

/// Bytes that each of its commands touches at most: kernels do not split so little work over threads.
const SMALL: u64 = 32 << 10;

/// Commands of a list that kernels may split, from which the pool's threads are kept awake between them.
const MANY: usize = 4;

type Job = (Arc<CommandList>, Promise);

/// Completes a signal even if the device's thread has ended before its list was run, or ends while it runs.
struct Promise(Arc<Signal>);

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.complete(Err(lost()));
    }
}

fn lost() -> Error {
    Error::device_lost("the CPU device's thread has ended")
}

/// The device's thread and the queue to it.
pub(crate) struct Worker {
    queue: SyncSender<Job>,
    in_flight: InFlight<Signal>,
    /// What is timed while a profile is taken.
    pub(crate) profile: Arc<ProfileLog>,
}

impl Worker {
    pub(crate) fn start(threads: usize) -> Result<Self> {
        let profile = Arc::<ProfileLog>::default();
        let log = profile.clone();
        let (queue, jobs) = sync_channel(QUEUE);
        let (ready, started) = sync_channel(1);
        let rejected = |e: &dyn std::fmt::Display| Error::device_unavailable(format!("the CPU device cannot start {threads} threads: {e}"));
        let body = move || {
            // The device's thread is one of the pool's, so CPU kernels that run on it split work without a hand-over.
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().thread_name(|i| format!("elinvar-cpu-{i}")).build();
            match pool {
                Ok(_pool) => {
                    let _ = ready.send(Ok(()));
                    run(&jobs, &log);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        thread::Builder::new().name("elinvar-cpu".into()).spawn(body).map_err(|e| rejected(&e))?;
        started.recv().map_err(|e| rejected(&e))?.map_err(|e| rejected(&e))?;
        Ok(Self { queue, in_flight: InFlight::default(), profile })
    }

    pub(crate) fn submit(&mut self, list: &Arc<CommandList>) -> Result<Completion> {
        if self.is_soon_done(list) {
            return Ok(self.run(list));
        }
        let signal = Signal::new();
        self.hand_over(list.clone(), signal.clone())?;
        Ok(Completion::new(signal))
    }

    /// Runs a list over what is given in the place of its stand-ins, if it is soon done: without a list of its own for that memory.
    pub(crate) fn run_over(&mut self, list: &CommandList, places: &[Buffer], given: &[Binding]) -> Result<Option<Completion>> {
        if !self.is_soon_done(list) {
            return Ok(None);
        }
        // SAFETY: the binding holds the memory until the list has run; nothing else runs, and nothing begins while the worker is held.
        let place = |(place, binding): (&Buffer, &Binding)| pointer(binding).and_then(|first| unsafe { place.place(first.expose_provenance()) });
        let done = places.iter().zip(given).try_for_each(place).map(|()| self.run(list));
        places.iter().for_each(Buffer::displace);
        done.map(Some)
    }

    /// Whether the submitter runs a list by itself.
    fn is_soon_done(&self, list: &CommandList) -> bool {
        is_short(list) && !self.profile.is_on() && self.is_idle()
    }

    /// Runs a list; its error is reported by what reads, too.
    fn run(&mut self, list: &CommandList) -> Completion {
        let done = list.commands().iter().try_for_each(execute);
        if done.is_ok() {
            return Completion::ready(done);
        }
        let signal = Signal::new();
        signal.complete(done);
        self.in_flight.push(signal.clone());
        Completion::new(signal)
    }

    fn hand_over(&mut self, list: Arc<CommandList>, signal: Arc<Signal>) -> Result<()> {
        self.queue.send((list, Promise(signal.clone()))).map_err(|_| lost())?;
        self.in_flight.push(signal);
        Ok(())
    }

    /// Whether everything submitted has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_idle()
    }

    /// Waits for everything submitted.
    pub(crate) fn wait(&mut self) {
        self.in_flight.wait();
    }

    /// Waits for everything submitted; the first error since the last call that was not reported.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.in_flight.settle()
    }
}

fn is_short(list: &CommandList) -> bool {
    let bytes = || list.commands().iter().map(Command::bytes);
    bytes().all(|bytes| bytes <= SMALL) && bytes().sum::<u64>() <= SHORT
}

fn is_split(command: &Command) -> bool {
    command.bytes() > SMALL
}

fn run(jobs: &Receiver<Job>, profile: &ProfileLog) {
    let (mut placement, helpers, clock) = (Placement::of_current_pool(), Helpers::of_current_pool(), Instant::now());
    let now = || u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
    while let Some((list, promise)) = next(jobs) {
        let (is_timed, is_long) = (profile.is_on(), list.commands().iter().filter(|command| is_split(command)).count() >= MANY);
        let result = list.commands().iter().try_for_each(|command| {
            placement.follow();
            if is_long && is_split(command) {
                helpers.rouse();
            }
            if !is_timed {
                return execute(command);
            }
            let start_ns = now();
            let result = execute(command);
            let duration_ns = now() - start_ns;
            profile.add(ProfileEvent { activity: command.activity(), start_ns, duration_ns, bytes: command.bytes(), list: Some(list.id()) });
            result
        });
        // The list's buffers go back to the pool before anyone learns that it is done.
        drop(list);
        promise.0.complete(result);
    }
}

fn next(jobs: &Receiver<Job>) -> Option<Job> {
    for _ in 0..LOOKS {
        match jobs.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => hint::spin_loop(),
        }
    }
    jobs.recv().ok()
}

fn execute(command: &Command) -> Result<()> {
    match command {
        Command::Dispatch(dispatch) => launch(dispatch),
        Command::Copy(copy) => {
            let (from, to) = (pointer(&copy.source)?, pointer(&copy.destination)?);
            // SAFETY: both ranges are in bounds, disjoint and the destination writable: checked when the list was recorded.
            unsafe { to.copy_from_nonoverlapping(from, copy.source.bytes()) };
            Ok(())
        }
        Command::Fill(fill) => {
            // SAFETY: in bounds and writable: checked when the list was recorded.
            unsafe { pointer(&fill.destination)?.write_bytes(fill.value, fill.destination.bytes()) };
            Ok(())
        }
    }
}

fn pointer(binding: &Binding) -> Result<*mut u8> {
    let raw = binding.buffer().raw();
    let first = match raw.stand_in() {
        Some(stand_in) => stand_in.address()? as *mut u8,
        None => raw.downcast::<Memory>()?.pointer(),
    };
    Ok(first.wrapping_add(binding.offset()))
}

fn launch(dispatch: &Dispatch) -> Result<()> {
    let source = dispatch.pipeline.source();
    let bind = |binding: &Binding, access: Access| -> Result<HostBinding> {
        // SAFETY: the list keeps the buffer alive, bounds and aliasing were checked when it was recorded, memory is initialised when
        // allocated, and only this thread runs lists.
        Ok(unsafe { HostBinding::new(pointer(binding)?, binding.bytes(), access) })
    };
    let mut bindings = Vec::with_capacity(dispatch.bindings.len());
    for (binding, parameter) in dispatch.bindings.iter().zip(&source.parameters) {
        bindings.push(binding.as_ref().map(|binding| bind(binding, parameter.access)).transpose()?);
    }
    let (grid, threadgroup) = (dispatch.grid, dispatch.threadgroup);
    if !grid.is_uniform(threadgroup) {
        let message = format!("{grid:?} in threadgroups of {:?}: CPU kernels run over whole threadgroups; round the threads up", threadgroup.0);
        return Err(Error::unsupported(message).context(&source.key));
    }
    let mut arguments = HostArguments::new(bindings, &dispatch.params).over(Extent(grid.threadgroups(threadgroup)), threadgroup);
    let host: &HostForm = dispatch.pipeline.state().ok_or_else(|| Error::invalid_launch("the kernel was prepared by another device"))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| host.run(&mut arguments)));
    let result = outcome.unwrap_or_else(|_| Err(Error::device_lost("the kernel panicked: this is a defect in Elinvar, please report it")));
    result.map_err(|e| e.context(&source.key.operator))
}

#[cfg(test)]
mod tests {
    use elinvar_core::ListBuilder;

    use super::*;

    #[test]
    fn lists_fail_whose_device_s_thread_has_ended() {
        let (queue, jobs) = sync_channel(QUEUE);
        let mut worker = Worker { queue, in_flight: InFlight::default(), profile: Arc::default() };
        let signals = [Signal::new(), Signal::new()];
        assert!(worker.is_idle());
        worker.hand_over(ListBuilder::new().finish(), signals[0].clone()).unwrap();
        assert!(!worker.is_idle());
        drop(jobs);
        assert!(worker.hand_over(ListBuilder::new().finish(), signals[1].clone()).unwrap_err().is_device_lost());
        assert!(worker.settle().unwrap_err().is_device_lost());
        // What is small and comes to an idle device needs no thread.
        worker.submit(&ListBuilder::new().finish()).unwrap();
        worker.settle().unwrap();
        assert!(signals.into_iter().all(|signal| Completion::new(signal).wait().is_err_and(|error| error.is_device_lost())));
    }
}
