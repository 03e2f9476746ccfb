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

/// What a parked thread waits for.
#[derive(Clone, Copy)]
pub(super) struct Parked {
    pub(super) site: Site,
    pub(super) flags: u32,
    pub(super) combine: Option<Combine>,
    pub(super) slot: *mut c_void,
    pub(super) operation: *const c_char,
}

const NOWHERE: Parked = Parked { site: Site { file: ptr::null(), line: 0 }, flags: 0, combine: None, slot: ptr::null_mut(), operation: ptr::null() };

/// A GPU thread.
pub(super) struct Thread {
    pub(super) state: Cell<State>,
    pub(super) fiber: Cell<u16>,
    pub(super) parked: Cell<Parked>,
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
    /// A check has something to tell; the event lies on the fiber's stack.
    Event(*const Event),
    Variable(VariableRequest),
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
        let thread = || Thread { state: Cell::new(State::Done), fiber: Cell::new(0), parked: Cell::new(NOWHERE) };
        Box::new(Self {
            context: UnsafeCell::new(context),
            positions: UnsafeCell::new(Positions([[1; 3]; Position::ALL.len()])),
            entry: Cell::new(None),
            buffers: UnsafeCell::new([0; 32]),
            threadgroup: UnsafeCell::new([0; 32]),
            group: Cell::new(Group { number: 0, position: [0; 3], stride: [1; 3] }),
            barriers: Cell::new([0; 2]),
            simd_barriers: [const { Cell::new([0; 2]) }; MAX_THREADS / SIMD_WIDTH],
            threads: (0..MAX_THREADS).map(|_| thread()).collect(),
            coordinates: UnsafeCell::new(Vec::new()),
            queue: [const { Cell::new(0) }; SIMD_WIDTH],
            queue_next: Cell::new(0),
            queue_end: Cell::new(0),
            current: Cell::new(0),
            fiber: Cell::new(0),
            yielder: Cell::new(ptr::null()),
            signal: Cell::new(Signal::Idle),
        })
    }

    pub(super) fn queued(&self) -> bool {
        self.queue_next.get() < self.queue_end.get()
    }

    /// Makes `thread` the running one: what the runtime's checks must know of it.
    pub(super) fn set_current(&self, thread: usize) {
        self.current.set(thread as u16);
        let (group, barriers, simd) = (self.group.get().number, self.barriers.get(), self.simd_barriers[thread / SIMD_WIDTH].get());
        // SAFETY: no reference into the context is held while another is made; the runtime reads it between.
        let context = unsafe { &mut *self.context.get() };
        context.lane = (thread % SIMD_WIDTH) as u32;
        context.records = [0, 1].map(|space| Record::new(group, thread, barriers[space], simd[space]).0);
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

    fn park(&self, state: State, parked: Parked) {
        let thread = &self.threads[usize::from(self.current.get())];
        thread.parked.set(parked);
        thread.state.set(state);
        self.suspend(Signal::Parked);
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
    let state = if scope == SIMDGROUP { State::SimdgroupBarrier } else { State::ThreadgroupBarrier };
    current().park(state, Parked { site: Site { file, line }, flags, ..NOWHERE });
}

pub(super) extern "C" fn collective(combine: Combine, slot: *mut c_void, operation: *const c_char, file: *const c_char, line: u32) {
    current().park(State::Collective, Parked { site: Site { file, line }, flags: 0, combine: Some(combine), slot, operation });
}

pub(super) extern "C" fn threadgroup_variable(site: u64, function: *const c_char, names: *const c_char, size: u64, alignment: u64) -> u64 {
    let shared = current();
    shared.suspend(Signal::Variable(VariableRequest { site, function, names, size, alignment }));
    // SAFETY: the scheduler has appended the variable.
    unsafe {
        let context = &*shared.context.get();
        (*context.variables.add(context.variable_count as usize - 1)).address
    }
}

pub(super) extern "C" fn event(event: *const Event) {
    current().suspend(Signal::Event(event));
}
