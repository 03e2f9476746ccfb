//! Runs the threadgroups of a dispatch on one host thread.

mod events;
mod fiber;
mod group;
mod job;
mod local;
mod raw;
mod shared;
mod simdgroup;
mod trap;

use std::{
    ffi::{CStr, c_char},
    sync::{Arc, MutexGuard},
};

use elinvar_core::{Error, Result};
use elinvar_msl::Position;

use fiber::Fiber;
use job::thread_position;
pub(crate) use job::{Job, Schedule};
use local::Locals;
pub(crate) use raw::{Findings, Raw, RawOther};
use shared::{Shared, VariableRequest};

use crate::{
    abi::{Accesses, BINDINGS, Context, MAX_THREADS, Record, Region, SIMD_WIDTH, SPACE_DEVICE, SPACE_INLINE, Variable},
    arena::{Arena, Slot},
    buffer::{Buffer, State, Touched},
    finding::{Counters, Traffic},
    loaded::Runtime,
    random::Random,
};

const MAX_VARIABLES: usize = 128;

/// A buffer of a checked dispatch, locked for as long as it runs.
pub(crate) type Locked<'a> = (&'a Buffer, MutexGuard<'a, State>);

/// What an executor did of a job.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) threads: u64,
    pub(crate) switches: u64,
    pub(crate) counters: Counters,
    pub(crate) findings: Findings,
    /// Bytes of threadgroup memory the kernel declared or was given.
    pub(crate) threadgroup_memory: usize,
    /// Whether a thread was ended before it returned.
    pub(crate) ended: bool,
    pub(crate) stopped: bool,
}

impl Outcome {
    /// Adds what another executor did of the same job.
    pub(crate) fn add(&mut self, other: Self) {
        self.threads += other.threads;
        self.switches += other.switches;
        self.counters += other.counters;
        self.findings.found.extend(other.findings.found);
        self.threadgroup_memory = self.threadgroup_memory.max(other.threadgroup_memory);
        self.ended |= other.ended;
        self.stopped |= other.stopped;
    }
}

/// Fibers, threadgroup memory and the rest that one host thread needs to run threadgroups. It stays on the thread that made it.
pub(crate) struct Executor {
    arena: Arc<Arena>,
    runtime: Arc<Runtime>,
    // Before `shared`, on whose address the fibers rely.
    fibers: Vec<Fiber>,
    idle: Vec<u16>,
    shared: Box<Shared>,
    regions: Box<[Region]>,
    /// Slots whose regions are not unbound.
    bound: Vec<u32>,
    _variables: Box<[Variable]>,
    locals: Locals,
    inline: [Option<Slot>; BINDINGS + 1],
    random: Random,
    _guard: trap::Guard,
}

impl Executor {
    pub(crate) fn new(arena: &Arc<Arena>, runtime: &Arc<Runtime>) -> Result<Self> {
        let mut regions = vec![Region::UNBOUND; arena.slots()].into_boxed_slice();
        let mut variables = vec![Variable { site: 0, function: std::ptr::null(), address: 0 }; MAX_VARIABLES].into_boxed_slice();
        let context = Context {
            records: [0; 2],
            stack_low: 0,
            stack_high: 0,
            thread: 0,
            variable_count: 0,
            arena: arena.base(),
            arena_size: arena.size(),
            regions: regions.as_mut_ptr(),
            oldest_group: [0; 2],
            module_low: 0,
            module_high: 0,
            variables: variables.as_mut_ptr(),
            accesses: Default::default(),
            barrier: shared::barrier,
            collective: shared::collective,
            threadgroup_variable: shared::threadgroup_variable,
            event: shared::event,
        };
        Ok(Self {
            arena: arena.clone(),
            runtime: runtime.clone(),
            fibers: Vec::new(),
            idle: Vec::new(),
            shared: Shared::new(context),
            regions,
            bound: Vec::new(),
            _variables: variables,
            locals: Locals::default(),
            inline: [const { None }; BINDINGS + 1],
            random: Random::new(0),
            _guard: trap::Guard::new()?,
        })
    }

    /// Runs what it can take of the job. A checked job brings its buffers.
    pub(crate) fn run(&mut self, job: &Job<'_>, states: &mut [Locked<'_>], share: u64) -> Result<Outcome> {
        let checked = job.pipeline().is_checked();
        let mut runner = Runner { executor: self, job, states, checked, outcome: Outcome::default(), error: None };
        let result = runner.bind().map(|()| runner.initialise()).and_then(|()| runner.run_groups(share));
        runner.keep_touched();
        runner.keep_work();
        let Runner { outcome, error, .. } = runner;
        self.release();
        match error {
            Some(error) => Err(error),
            None => result.map(|()| outcome),
        }
    }

    fn context(&mut self) -> &mut Context {
        self.shared.context.get_mut()
    }

    /// Leaves nothing of the last job behind.
    fn release(&mut self) {
        trap::begin_group(0);
        trap::disarm();
        if self.idle.len() < self.fibers.len() {
            // The dispatch was stopped: some threads wait for ever.
            self.idle.clear();
            for (number, fiber) in self.fibers.iter_mut().enumerate() {
                fiber.reset(&raw const *self.shared);
                self.idle.push(number as u16);
            }
        }
        for slot in self.bound.drain(..) {
            self.regions[slot as usize] = Region::UNBOUND;
        }
    }

    /// Opens a slot of the arena to the running job.
    fn open(&mut self, slot: u32, region: Region) {
        self.regions[slot as usize] = region;
        self.bound.push(slot);
    }
}

/// An executor at a job.
struct Runner<'e, 'j, 's, 'b> {
    executor: &'e mut Executor,
    job: &'j Job<'j>,
    states: &'s mut [Locked<'b>],
    checked: bool,
    outcome: Outcome,
    error: Option<Error>,
}

impl Runner<'_, '_, '_, '_> {
    fn shared(&self) -> &Shared {
        &self.executor.shared
    }

    /// Hands the job's arguments to the runtime.
    fn bind(&mut self) -> Result<()> {
        let (job, executor) = (self.job, &mut *self.executor);
        let (code, runtime) = (job.pipeline().0.loaded.range(), executor.runtime.clone());
        trap::begin_dispatch(code.clone(), job.limit);
        let era = job.schedule.first() / Record::GROUPS;
        executor.locals.clear();
        let mut addresses = job.addresses();
        for (index, bytes) in &job.dispatch.bytes {
            addresses[*index as usize] = executor.place_bytes(*index as usize, bytes)?;
        }
        for (buffer, state) in self.states.iter_mut() {
            executor.open(buffer.slot(), region(job, buffer, state));
        }
        let mut threadgroup = [0; BINDINGS + 1];
        for (index, bytes) in &job.dispatch.threadgroup_memory {
            let name = threadgroup_name(job, *index);
            threadgroup[*index as usize] = executor.add_local(name, *bytes, 16, self.checked.then_some(era))?;
        }
        let shared = &mut executor.shared;
        shared.checked.set(self.checked);
        shared.entry.set(Some(job.pipeline().0.entry));
        *shared.buffers.get_mut() = addresses;
        *shared.threadgroup.get_mut() = threadgroup;
        executor.random = Random::new(job.seed);
        let context = executor.context();
        context.variable_count = 0;
        context.accesses = Default::default();
        (context.module_low, context.module_high) = (code.start, code.end);
        context.oldest_group = [job.oldest % Record::GROUPS; 2];
        shared::enter(&raw const *executor.shared);
        // SAFETY: the context lives in the executor, which enters it again for each job.
        unsafe { runtime.enter(executor.shared.context.get()) };
        Ok(())
    }

    fn keep_touched(&mut self) {
        for (buffer, state) in self.states.iter_mut() {
            state.touched = Touched::from(self.executor.regions[buffer.slot() as usize].touched);
        }
    }

    fn keep_work(&mut self) {
        let [device, threadgroup, _] = self.executor.context().accesses;
        let traffic = |[reads, writes]: [Accesses; 2]| Traffic {
            reads: reads.count,
            read_bytes: reads.bytes,
            writes: writes.count,
            written_bytes: writes.bytes,
        };
        (self.outcome.counters.device, self.outcome.counters.threadgroup) = (traffic(device), traffic(threadgroup));
    }

    /// Places a variable that the kernel declares.
    fn declare(&mut self, request: VariableRequest) -> Result<()> {
        let era = self.job.schedule.first() / Record::GROUPS;
        if self.executor.context().variable_count as usize == MAX_VARIABLES {
            return Err(Error::unsupported(format!(
                "kernel `{}` declares more than {MAX_VARIABLES} threadgroup variables",
                self.job.pipeline().kernel().name
            )));
        }
        let names = text(request.names);
        let address = self.executor.add_local(names, request.size as usize, request.alignment as usize, self.checked.then_some(era))?;
        let context = self.executor.context();
        // SAFETY: fewer than MAX_VARIABLES, for which there is room.
        unsafe { *context.variables.add(context.variable_count as usize) = Variable { site: request.site, function: request.function, address } };
        context.variable_count += 1;
        Ok(())
    }

    /// Runs the initialisers of the kernel's constants, on a fiber as if they were a kernel, unless that was done.
    fn initialise(&mut self) {
        let loaded = self.job.pipeline().0.loaded.clone();
        let Some(mut pending) = loaded.initialisers().filter(|pending| !pending.is_empty()) else { return };
        self.set_size([1; 3]);
        for initialiser in pending.drain(..) {
            self.shared().entry.set(Some(initialiser));
            self.start_group(0, [0; 3]);
            self.run_group(1);
        }
        self.shared().entry.set(Some(self.job.pipeline().0.entry));
        self.outcome.threads = 0;
        self.outcome.stopped |= self.outcome.ended;
    }

    fn run_groups(&mut self, share: u64) -> Result<()> {
        if self.halted() {
            self.job.stop();
            return Ok(());
        }
        let mut size = [0; 3];
        loop {
            let range = self.job.take(share);
            if range.is_empty() {
                break;
            }
            for at in range {
                let position = self.job.schedule.position(at);
                let now = self.job.size_of(position);
                if now != size {
                    size = now;
                    self.set_size(size);
                }
                self.start_group(at, position);
                self.run_group(size.iter().product::<u32>() as usize);
                if self.outcome.stopped || self.error.is_some() {
                    self.job.stop();
                    return Ok(());
                }
            }
        }
        self.outcome.threadgroup_memory = self.executor.locals.bytes();
        Ok(())
    }

    /// What is equal for all threads of a threadgroup of this size.
    fn set_size(&mut self, size: [u32; 3]) {
        let count = size.iter().product::<u32>();
        let dispatch = self.job.dispatch;
        let full = dispatch.threads_per_threadgroup;
        let full_count = full.iter().product::<u32>();
        let simd_width = SIMD_WIDTH as u32;
        let shared = &mut self.executor.shared;
        *shared.coordinates.get_mut() = (0..MAX_THREADS).map(|index| thread_position(index, size)).collect();
        let rows = &mut shared.positions.get_mut().0;
        let mut set = |position: Position, value: [u32; 3]| rows[position as usize] = value;
        set(Position::ThreadsPerThreadgroup, size);
        set(Position::DispatchThreadsPerThreadgroup, full);
        set(Position::ThreadsPerGrid, dispatch.threads());
        set(Position::GridSize, dispatch.threads());
        set(Position::GridOrigin, [0; 3]);
        set(Position::ThreadgroupsPerGrid, dispatch.threadgroups());
        set(Position::ThreadsPerSimdgroup, [simd_width, 1, 1]);
        set(Position::SimdgroupsPerThreadgroup, [count.div_ceil(simd_width), 1, 1]);
        set(Position::DispatchSimdgroupsPerThreadgroup, [full_count.div_ceil(simd_width), 1, 1]);
        set(Position::QuadgroupsPerThreadgroup, [count.div_ceil(4), 1, 1]);
        set(Position::DispatchQuadgroupsPerThreadgroup, [full_count.div_ceil(4), 1, 1]);
    }
}

impl Executor {
    fn place_bytes(&mut self, index: usize, bytes: &[u8]) -> Result<u64> {
        if self.inline[index].is_none() {
            self.inline[index] = Some(self.arena.allocate(crate::dispatch::MAX_INLINE_BYTES)?);
        }
        let Some(slot) = &self.inline[index] else { return Err(Error::out_of_memory("no room for inline bytes")) };
        // SAFETY: the slot holds the most bytes a dispatch may give, and no kernel runs on this executor.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), slot.pointer(), bytes.len()) };
        let region = Region { base: slot.address(), size: bytes.len() as u64, space: SPACE_INLINE, read_only: 1, ..Region::UNBOUND };
        let (index, address) = (slot.index(), slot.address());
        self.open(index, region);
        Ok(address)
    }

    fn add_local(&mut self, name: String, bytes: usize, alignment: usize, era: Option<u64>) -> Result<u64> {
        let local = self.locals.add(&self.arena, name, bytes, alignment, era)?;
        local.poison();
        let (slot, address, region) = (local.slot(), local.address(), local.region());
        self.open(slot, region);
        Ok(address)
    }
}

/// What the dispatch may do with a buffer: the hull of its bindings.
fn region(job: &Job<'_>, buffer: &Buffer, state: &mut State) -> Region {
    let bindings = || job.dispatch.buffers.iter().filter(|binding| binding.buffer.slot() == buffer.slot());
    let low = bindings().map(|binding| binding.limits().start).min().unwrap_or(0);
    let high = bindings().map(|binding| binding.limits().end).max().unwrap_or(0);
    let written = bindings().any(|binding| job.pipeline().writes(binding.index));
    let mut region = Region { base: buffer.address(), low: low as u64, size: (high - low) as u64, space: SPACE_DEVICE, ..Region::UNBOUND };
    region.read_only = u8::from(!written);
    if let Some(map) = &mut state.initialised {
        region.initialised = map.as_mut_ptr();
    }
    if let Some(shadow) = state.shadow.as_mut().filter(|_| written || job.contested.contains(&buffer.slot())) {
        (region.cells, region.granule) = (shadow.as_mut_ptr(), shadow.granule());
    }
    region
}

fn threadgroup_name(job: &Job<'_>, index: u32) -> String {
    let parameters = &job.pipeline().kernel().parameters;
    let named =
        parameters.iter().find(|parameter| matches!(parameter.kind, elinvar_msl::ParameterKind::Threadgroup { index: at, .. } if at == index));
    named.map_or_else(|| format!("threadgroup({index})"), |parameter| parameter.name.clone())
}

/// A string literal of the kernel's.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the prelude hands over string literals.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
