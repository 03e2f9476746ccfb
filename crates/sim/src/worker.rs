//! Executes command buffers, and makes reports of what was found.

use std::{
    cell::RefCell,
    sync::{Arc, atomic::AtomicU64},
};

use elinvar_core::Result;
use elinvar_msl::Location;
use rayon::ThreadPool;

use crate::{
    abi::Record,
    buffer::{Buffer, Touched, lock_all},
    commands::{Command, CommandBuffer},
    dispatch::{Binding, Dispatch, Output},
    executor::{Executor, Job, Locked, Outcome, Raw, RawOther, Schedule},
    finding::{BufferUse, Finding, FindingKind, Report},
    simulator::Device,
    stretch::Stretch,
};

/// Dispatches of fewer threadgroups stay on the queue's own thread.
const FEWEST_TO_SHARE: u64 = 4;

/// The state of a queue's host thread.
pub(crate) struct Worker {
    device: Arc<Device>,
    executor: Executor,
    dispatches: usize,
}

impl Worker {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        Ok(Self { device: device.clone(), executor: Executor::new(&device.arena, &device.runtime)?, dispatches: 0 })
    }

    pub(crate) fn run(&mut self, commands: &CommandBuffer) -> Result<Report> {
        let mut report = Report::default();
        self.dispatches = 0;
        for beside in commands.stretches() {
            let mut stretch = Stretch::new(beside);
            for command in beside {
                report.findings.extend(stretch.transfer(command, &self.device)?);
                match command {
                    Command::Dispatch(dispatch) => self.dispatch(dispatch, commands.seed, &mut stretch, &mut report)?,
                    Command::Copy { from, from_offset, to, to_offset, bytes } => to.copy_from(*to_offset, from, *from_offset, *bytes)?,
                    Command::Fill { buffer, offset, bytes, value } => buffer.fill(*offset, *bytes, *value)?,
                }
                if report.stopped {
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    fn dispatch<'a>(&mut self, dispatch: &'a Dispatch, seed: u64, stretch: &mut Stretch<'a>, report: &mut Report) -> Result<()> {
        let groups = dispatch.threadgroups();
        let count = groups.iter().map(|axis| u64::from(*axis)).product();
        let schedule = Arc::new(Schedule::new(groups, seed, self.device.sequence(count)?));
        let (oldest, contested) = (stretch.begin(schedule.first()), stretch.contested.clone());
        let job = Job { dispatch, schedule, seed, limit: self.device.time_limit, oldest, contested, taken: AtomicU64::new(0) };
        let buffers: Vec<Buffer> = dispatch.buffers.iter().map(|binding| binding.buffer.clone()).collect();
        let mut states = lock_all(&buffers);
        let outcome = match dispatch.pipeline.is_checked() {
            true => self.checked(&job, &mut states, report)?,
            false => self.unchecked(&job, &mut states)?,
        };
        report.threads += outcome.threads;
        report.switches += outcome.switches;
        report.counters += outcome.counters;
        report.stopped |= outcome.stopped;
        report.findings.extend(findings(&job, outcome, stretch));
        self.dispatches += 1;
        stretch.end(job);
        Ok(())
    }

    fn checked(&mut self, job: &Job<'_>, states: &mut [Locked<'_>], report: &mut Report) -> Result<Outcome> {
        let era = job.schedule.first() / Record::GROUPS;
        for (buffer, state) in states.iter_mut() {
            let written = job.dispatch.buffers.iter().any(|binding| binding.buffer.slot() == buffer.slot() && job.pipeline().writes(binding.index));
            state.prepare(buffer.len(), written || job.contested.contains(&buffer.slot()), era)?;
        }
        let mut outcome = self.executor.run(job, states, 1)?;
        let most = self.device.threadgroup_memory;
        if outcome.threadgroup_memory > most {
            let message = format!("{} bytes of threadgroup memory are used; devices have {most}", outcome.threadgroup_memory);
            outcome.findings.found.push(about_kernel(job, FindingKind::ThreadgroupMemory, message));
        }
        for binding in &job.dispatch.buffers {
            self.inspect(job, binding, states, &mut outcome, report);
        }
        Ok(outcome)
    }

    /// What became of a binding that the kernel may write.
    fn inspect(&self, job: &Job<'_>, binding: &Binding, states: &mut [Locked<'_>], outcome: &mut Outcome, report: &mut Report) {
        let Some((_, state)) = states.iter_mut().find(|(buffer, _)| buffer.slot() == binding.buffer.slot()) else { return };
        if !job.pipeline().writes(binding.index) {
            return;
        }
        if outcome.ended {
            // Threads that were ended left unwritten what they would have written.
            state.initialised = None;
        }
        let Touched { read, written } = state.touched;
        report.uses.push(BufferUse { dispatch: self.dispatches, index: binding.index, read, written });
        let wanted = match binding.output {
            Output::Free => false,
            Output::Whole => true,
            Output::WholeUnlessRead => written && !read,
        };
        let Some(shadow) = state.shadow.as_ref().filter(|_| wanted && !outcome.ended && !outcome.stopped) else { return };
        let first = job.schedule.first() % Record::GROUPS;
        let missing = shadow.ranges_without(binding.limits(), |cell| cell.write != 0 && Record(cell.write).group() >= first);
        if let Some(range) = missing.first() {
            let (bytes, name) = (missing.iter().map(std::ops::Range::len).sum::<usize>(), job.dispatch.name_of(binding));
            let message = format!("{bytes} bytes of the output `{name}` were not written, the first at offset {}", range.start);
            let raw = about_kernel(job, FindingKind::UnwrittenOutput, message);
            outcome.findings.found.push(Raw { buffer: Some(name), offset: Some(range.start as i64), ..raw });
        }
    }

    fn unchecked(&mut self, job: &Job<'_>, states: &mut [Locked<'_>]) -> Result<Outcome> {
        let outcome = match self.device.pool()?.filter(|_| job.schedule.len() >= FEWEST_TO_SHARE) {
            Some(pool) => share(&self.device, pool, job)?,
            None => self.executor.run(job, &mut [], 1)?,
        };
        for (buffer, state) in states.iter_mut() {
            // What an unchecked kernel wrote is not known.
            if job.dispatch.buffers.iter().any(|binding| binding.buffer.slot() == buffer.slot() && job.pipeline().writes(binding.index)) {
                state.initialised = None;
            }
        }
        Ok(outcome)
    }
}

/// Runs a job on every thread of the pool, each with an executor of its own.
fn share(device: &Arc<Device>, pool: &ThreadPool, job: &Job<'_>) -> Result<Outcome> {
    thread_local! {
        static EXECUTOR: RefCell<Option<Executor>> = const { RefCell::new(None) };
    }
    let parts = 4 * pool.current_num_threads() as u64;
    let outcomes = pool.broadcast(|_| {
        EXECUTOR.with_borrow_mut(|executor| {
            let executor = match executor {
                Some(executor) => executor,
                None => executor.insert(Executor::new(&device.arena, &device.runtime)?),
            };
            executor.run(job, &mut [], parts)
        })
    });
    let mut all = Outcome::default();
    for outcome in outcomes {
        all.add(outcome?);
    }
    Ok(all)
}

fn about_kernel(job: &Job<'_>, kind: FindingKind, message: String) -> Raw {
    let at = Some(job.pipeline().kernel().location.clone());
    Raw { kind, thread: [0; 3], threadgroup: [0; 3], buffer: None, offset: None, message, frames: Vec::new(), at, other: None, count: 1 }
}

/// Looks up the lines, and makes one of what is equal.
fn findings(job: &Job<'_>, outcome: Outcome, stretch: &Stretch<'_>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for raw in outcome.findings.found {
        let finding = finding(job, raw, stretch);
        let same = |known: &&mut Finding| {
            let at = |finding: &Finding| finding.other.as_ref().and_then(|other| other.at.clone());
            (known.kind, &known.at, at(known), &known.buffer) == (finding.kind, &finding.at, at(&finding), &finding.buffer)
        };
        match all.iter_mut().find(same) {
            Some(known) => known.count += finding.count,
            None => all.push(finding),
        }
    }
    all.sort_by_key(|finding| finding.at.as_ref().map(|at| (at.file.clone(), at.line)));
    all
}

fn finding(job: &Job<'_>, raw: Raw, stretch: &Stretch<'_>) -> Finding {
    let kernel = &job.pipeline().kernel().name;
    let lines = &job.pipeline().0.loaded;
    let other = raw.other.map(|RawOther { pc, record }| job.access(pc, record).unwrap_or_else(|| stretch.access(pc, record)));
    let at: Option<Location> = raw.at.or_else(|| lines.line(raw.frames));
    Finding {
        kind: raw.kind,
        kernel: kernel.clone(),
        at,
        thread: raw.thread,
        threadgroup: raw.threadgroup,
        buffer: raw.buffer,
        offset: raw.offset,
        message: raw.message,
        other,
        count: raw.count,
    }
}
