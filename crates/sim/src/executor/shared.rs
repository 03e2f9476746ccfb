//! What the scheduler and the fibers it resumes have in common. All on one host thread, so cells suffice. The code that runs on fibers neither
//! allocates nor locks: it notes what is wanted and suspends, and the scheduler acts on its own stack.

use std::{
    cell::{Cell, UnsafeCell},
    ffi::{c_char, c_void},
    ptr,
};

use corosensei::Yielder;
use elinvar_msl::Position;

use crate::abi::{Combine, Context, Entry, Event, MAX_THREADS, Positions, Record, SIMD_WIDTH};

/// Where a GPU thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Fresh,
    Ready,
    Running,
    ThreadgroupBarrier,
    SimdgroupBarrier,
    Collective,
    /// Returned.
    Done,
    /// Stopped after a finding.
    Ended,
}

/// A place in the kernel's text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) file: *const c_char,
    pub(super) line: u32,
}

/// A collective operation that a thread waits for.
#[derive(Clone, Copy)]
pub(super) struct Collective {
    pub(super) combine: Option<Combine>,
    pub(super) slot: *mut c_void,
    pub(super) operation: *const c_char,
}

/// A GPU thread.
pub(super) struct Thread {
    pub(super) state: Cell<State>,
    pub(super) fiber: Cell<u16>,
    /// Of the barrier it waits at.
    pub(super) flags: Cell<u32>,
    /// Where it waits.
    pub(super) site: Cell<Site>,
    /// Near the top of its stack while it waits.
    pub(super) stack: Cell<*const u8>,
    pub(super) collective: Cell<Collective>,
}

impl Thread {
    fn new() -> Self {
        Self {
            state: Cell::new(State::Done),
            fiber: Cell::new(0),
            flags: Cell::new(0),
            site: Cell::new(Site { file: ptr::null(), line: 0 }),
            stack: Cell::new(ptr::null()),
            collective: Cell::new(Collective { combine: None, slot: ptr::null_mut(), operation: ptr::null() }),
        }
    }

    /// Brings what resuming the thread will touch first into the cache.
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching is a hint and faults at no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.stack.get().cast());
            _mm_prefetch::<_MM_HINT_T0>(self.stack.get().wrapping_add(64).cast());
        }
    }
}

/// A threadgroup variable whose address is asked for the first time.
#[derive(Clone, Copy)]
pub(super) struct VariableRequest {
    pub(super) site: u64,
    pub(super) function: *const c_char,
    pub(super) names: *const c_char,
    pub(super) size: u64,
    pub(super) alignment: u64,
}

/// Why a fiber suspended.
#[derive(Clone, Copy)]
pub(super) enum Signal {
    /// No thread is left to start.
    Idle,
    /// Its thread parked.
    Parked,
    /// A check has something to report: `event`.
    Event,
    /// A variable is to be placed: `request`.
    Variable,
}

/// The running threadgroup.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// Sequence number; record of its thread 0 before any barrier.
    pub(super) number: u64,
    pub(super) position: [u32; 3],
    /// Threads per threadgroup as dispatched, from which grid positions follow.
    pub(super) stride: [u32; 3],
}

pub(super) struct Shared {
    pub(super) context: UnsafeCell<Context>,
    pub(super) positions: UnsafeCell<Positions>,
    pub(super) entry: Cell<Option<Entry>>,
    pub(super) buffers: UnsafeCell<[u64; 32]>,
    pub(super) threadgroup: UnsafeCell<[u64; 32]>,
    pub(super) group: Cell<Group>,
    /// Barriers passed, for device and threadgroup memory: of the threadgroup, and of each simdgroup.
    pub(super) barriers: Cell<[u64; 2]>,
    pub(super) simd_barriers: [Cell<[u64; 2]>; MAX_THREADS / SIMD_WIDTH],
    pub(super) threads: Box<[Thread]>,
    /// Each thread's position in its threadgroup.
    pub(super) coordinates: UnsafeCell<Vec<[u32; 3]>>,
    /// Threads to start, in order.
    pub(super) queue: [Cell<u16>; SIMD_WIDTH],
    pub(super) queue_next: Cell<u8>,
    pub(super) queue_end: Cell<u8>,
    pub(super) current: Cell<u16>,
    pub(super) fiber: Cell<u16>,
    pub(super) yielder: Cell<*const Yielder<(), ()>>,
    pub(super) signal: Cell<Signal>,
    /// Lies on the stack of the fiber that suspended for it.
    pub(super) event: Cell<*const Event>,
    pub(super) request: Cell<VariableRequest>,
    /// Whether accesses are checked, and records needed.
    pub(super) checked: Cell<bool>,
}

thread_local! {
    static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// Makes `shared` the one the callbacks of this host thread find.
pub(super) fn enter(shared: *const Shared) {
    CURRENT.set(shared);
}

impl Shared {
    pub(super) fn new(context: Context) -> Box<Self> {
        Box::new(Self {
            context: UnsafeCell::new(context),
            positions: UnsafeCell::new(Positions([[1; 3]; Position::ALL.len()])),
            entry: Cell::new(None),
            buffers: UnsafeCell::new([0; 32]),
            threadgroup: UnsafeCell::new([0; 32]),
            group: Cell::new(Group { number: 0, position: [0; 3], stride: [1; 3] }),
            barriers: Cell::new([0; 2]),
            simd_barriers: [const { Cell::new([0; 2]) }; MAX_THREADS / SIMD_WIDTH],
            threads: (0..MAX_THREADS).map(|_| Thread::new()).collect(),
            coordinates: UnsafeCell::new(Vec::new()),
            queue: [const { Cell::new(0) }; SIMD_WIDTH],
            queue_next: Cell::new(0),
            queue_end: Cell::new(0),
            current: Cell::new(0),
            fiber: Cell::new(0),
            yielder: Cell::new(ptr::null()),
            signal: Cell::new(Signal::Idle),
            event: Cell::new(ptr::null()),
            request: Cell::new(VariableRequest { site: 0, function: ptr::null(), names: ptr::null(), size: 0, alignment: 0 }),
            checked: Cell::new(false),
        })
    }

    pub(super) fn queued(&self) -> bool {
        self.queue_next.get() < self.queue_end.get()
    }

    /// Makes `thread` the running one: what the runtime must know of it.
    pub(super) fn set_current(&self, thread: usize) {
        self.current.set(thread as u16);
        // SAFETY: no reference into the context is held while another is made; the runtime reads it between.
        let context = unsafe { &mut *self.context.get() };
        context.thread = thread as u32;
        if self.checked.get() {
            let (group, barriers, simd) = (self.group.get().number, self.barriers.get(), self.simd_barriers[thread / SIMD_WIDTH].get());
            context.records = [0, 1].map(|space| Record::new(group, thread, barriers[space], simd[space]).0);
        }
    }

    /// The body of every fiber: starts queued threads; between them, and when none is left, suspends.
    pub(super) fn run_threads(&self, yielder: &Yielder<(), ()>) {
        loop {
            self.yielder.set(yielder);
            while let Some(thread) = self.next_queued() {
                self.start(thread);
                self.threads[usize::from(self.current.get())].state.set(State::Done);
            }
            self.signal.set(Signal::Idle);
            yielder.suspend(());
        }
    }

    fn next_queued(&self) -> Option<usize> {
        let next = self.queue_next.get();
        (next < self.queue_end.get()).then(|| {
            self.queue_next.set(next + 1);
            usize::from(self.queue[usize::from(next)].get())
        })
    }

    fn start(&self, thread: usize) {
        self.set_current(thread);
        self.threads[thread].state.set(State::Running);
        self.threads[thread].fiber.set(self.fiber.get());
        self.place(thread);
        let Some(entry) = self.entry.get() else { return };
        // SAFETY: the scheduler set the arguments for this dispatch; a kernel's own accesses are confined by the arena, and faults are trapped.
        unsafe { entry(self.buffers.get().cast(), self.threadgroup.get().cast(), self.positions.get()) };
    }

    /// The positions that differ from thread to thread.
    fn place(&self, thread: usize) {
        let group = self.group.get();
        // SAFETY: as in `set_current`; thunks read the positions before anything else.
        let (positions, local) = unsafe { (&mut (*self.positions.get()).0, (&*self.coordinates.get())[thread]) };
        let index = thread as u32;
        positions[Position::ThreadPositionInThreadgroup as usize] = local;
        positions[Position::ThreadPositionInGrid as usize] = [0, 1, 2].map(|axis| group.position[axis] * group.stride[axis] + local[axis]);
        positions[Position::ThreadIndexInThreadgroup as usize][0] = index;
        positions[Position::ThreadIndexInSimdgroup as usize][0] = index % SIMD_WIDTH as u32;
        positions[Position::SimdgroupIndexInThreadgroup as usize][0] = index / SIMD_WIDTH as u32;
        positions[Position::QuadgroupIndexInThreadgroup as usize][0] = index / 4;
        positions[Position::ThreadIndexInQuadgroup as usize][0] = index % 4;
    }

    /// The running thread waits at `site`.
    fn park(&self, state: State, site: Site) {
        let thread = &self.threads[usize::from(self.current.get())];
        thread.site.set(site);
        thread.state.set(state);
        let here = 0u8;
        thread.stack.set(&raw const here);
        self.suspend(Signal::Parked);
    }

    fn running(&self) -> &Thread {
        &self.threads[usize::from(self.current.get())]
    }

    fn suspend(&self, signal: Signal) {
        self.signal.set(signal);
        let yielder = self.yielder.get();
        // SAFETY: the running fiber's own, set when it started or was resumed; it lives as long as the fiber.
        unsafe { (*yielder).suspend(()) };
        self.yielder.set(yielder);
    }
}

/// The shared state of the executor that is running on this host thread; callbacks come from its fibers alone.
fn current() -> &'static Shared {
    // SAFETY: callbacks run within `Executor::run`, which entered its own; the reference does not outlive the callback.
    unsafe { &*CURRENT.get() }
}

pub(super) extern "C" fn barrier(flags: u32, scope: u32, file: *const c_char, line: u32) {
    const SIMDGROUP: u32 = 1;
    let shared = current();
    shared.running().flags.set(flags);
    shared.park(if scope == SIMDGROUP { State::SimdgroupBarrier } else { State::ThreadgroupBarrier }, Site { file, line });
}

pub(super) extern "C" fn collective(combine: Combine, slot: *mut c_void, operation: *const c_char, file: *const c_char, line: u32) {
    let shared = current();
    shared.running().collective.set(Collective { combine: Some(combine), slot, operation });
    shared.park(State::Collective, Site { file, line });
}

pub(super) extern "C" fn threadgroup_variable(site: u64, function: *const c_char, names: *const c_char, size: u64, alignment: u64) -> u64 {
    let shared = current();
    shared.request.set(VariableRequest { site, function, names, size, alignment });
    shared.suspend(Signal::Variable);
    // SAFETY: the scheduler has appended the variable.
    unsafe {
        let context = &*shared.context.get();
        (*context.variables.add(context.variable_count as usize - 1)).address
    }
}

pub(super) extern "C" fn event(event: *const Event) {
    let shared = current();
    shared.event.set(event);
    shared.suspend(Signal::Event);
}
