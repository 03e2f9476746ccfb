//! What the runtime's checks and the processor report, as findings whose lines are looked up later.

use super::{
    Runner,
    fiber::GUARD_BYTES,
    raw::{Raw, RawOther},
    thread_position, trap,
};
use crate::{
    abi::{Event, EventKind, Record, SPACE_THREADGROUP, SPACE_UNBOUND},
    finding::FindingKind,
};

/// A dispatch with so many different findings is stopped.
const MAX_FINDINGS: usize = 100;
/// Addresses below this come from a pointer that was null.
const NULL_BYTES: u64 = 1 << 20;

impl Runner<'_, '_, '_, '_> {
    pub(super) fn raw(&self, kind: FindingKind, thread: usize, message: String) -> Raw {
        // SAFETY: no fiber runs, so nothing writes the coordinates.
        let thread = unsafe { &*self.shared().coordinates.get() }.get(thread).copied().unwrap_or_else(|| thread_position(thread, [1024, 1, 1]));
        let threadgroup = self.shared().group.get().position;
        Raw { kind, thread, threadgroup, buffer: None, offset: None, message, frames: Vec::new(), at: None, other: None, count: 1 }
    }

    fn raw_here(&self, kind: FindingKind, message: String) -> Raw {
        self.raw(kind, usize::from(self.shared().current.get()), message)
    }

    pub(super) fn note(&mut self, raw: Raw, place: u64, other_pc: u32, region: u32) {
        let findings = &mut self.outcome.findings;
        match findings.index.get(&(raw.kind, place, other_pc, region)) {
            Some(known) => findings.found[*known].count += 1,
            None => {
                findings.index.insert((raw.kind, place, other_pc, region), findings.found.len());
                findings.found.push(raw);
                self.outcome.stopped |= findings.found.len() >= MAX_FINDINGS;
            }
        }
    }

    /// Acts on what a check reports; whether the thread goes on.
    pub(super) fn event(&mut self, event: &Event) -> bool {
        let Some(kind) = event.kind() else {
            self.refine(event.region, event.offset as u8);
            return true;
        };
        // Where a thread was ended, others may read what it would have written.
        if kind == EventKind::Uninitialised && self.outcome.ended {
            return true;
        }
        let (reported, message) = self.describe(kind, event);
        let mut raw = self.raw_here(reported, message);
        let low = self.job.pipeline().0.loaded.range().start;
        raw.frames = event.frames[..event.frame_count as usize].iter().map(|pc| pc.saturating_sub(low)).collect();
        let in_region = !matches!(
            kind,
            EventKind::WildRead
                | EventKind::WildWrite
                | EventKind::Misaligned
                | EventKind::ArrayBounds
                | EventKind::BeyondArray
                | EventKind::Shift
                | EventKind::Division
        );
        if in_region {
            raw.buffer = self.name(event.region);
            raw.offset = Some(event.offset as i64);
        } else if kind == EventKind::Misaligned {
            (raw.buffer, raw.offset) = self.name_at(event.offset);
        }
        if matches!(kind, EventKind::RaceWriteWrite | EventKind::RaceReadWrite | EventKind::RaceWriteRead) {
            raw.other = Some(RawOther { pc: event.other_pc.into(), record: Record(event.other_record) });
        }
        self.note(raw, event.frames[0], event.other_pc, event.region);
        !ends_thread(kind)
    }

    fn describe(&self, kind: EventKind, event: &Event) -> (FindingKind, String) {
        let (offset, size) = (event.offset as i64, event.size);
        let region = self.executor.regions.get(event.region as usize);
        let bytes = region.map_or(0, |region| region.size);
        let memory = self.memory(event.region);
        match kind {
            EventKind::OutOfBoundsRead => self.beyond(FindingKind::OutOfBoundsRead, "read", event),
            EventKind::OutOfBoundsWrite => self.beyond(FindingKind::OutOfBoundsWrite, "write", event),
            EventKind::WildRead => (FindingKind::InvalidPointer, wild("read", event)),
            EventKind::WildWrite => (FindingKind::InvalidPointer, wild("write", event)),
            EventKind::ReadOnlyWrite => {
                (FindingKind::WriteToConstant, format!("write of {size} bytes at offset {offset} of {memory}, which the kernel declares read-only"))
            }
            EventKind::RaceWriteWrite => (FindingKind::DataRace, format!("two writes at offset {offset} of {memory} that nothing orders")),
            EventKind::RaceReadWrite => {
                (FindingKind::DataRace, format!("a write at offset {offset} of {memory} that nothing orders after another thread's read"))
            }
            EventKind::RaceWriteRead => {
                (FindingKind::DataRace, format!("a read at offset {offset} of {memory} that nothing orders after another thread's write"))
            }
            EventKind::Uninitialised => {
                (FindingKind::UninitialisedRead, format!("read at offset {offset} of {memory} ({bytes} bytes), which nothing wrote"))
            }
            EventKind::Misaligned => (FindingKind::MisalignedAccess, "access at an address that its type's alignment does not divide".to_owned()),
            EventKind::ArrayBounds => (FindingKind::ArrayBounds, format!("index {offset} lies outside the array")),
            EventKind::BeyondArray => (FindingKind::ArrayBounds, format!("access of {size} bytes at a pointer that leads out of its array")),
            EventKind::Shift => (FindingKind::ShiftOverflow, format!("shift by {offset}, which is negative or not less than the type's width")),
            EventKind::Division => (FindingKind::IntegerDivision, format!("integer division of {offset} by zero, or its quotient does not fit")),
        }
    }

    fn beyond(&self, kind: FindingKind, action: &str, event: &Event) -> (FindingKind, String) {
        let (size, offset) = (event.size, event.offset as i64);
        let Some(region) = self.executor.regions.get(event.region as usize).filter(|region| region.space != SPACE_UNBOUND) else {
            // The runtime took the offset from address zero.
            return (FindingKind::InvalidPointer, wild(action, event));
        };
        let limits = match region.low {
            0 => format!("which holds {} bytes", region.size),
            low => format!("of which bytes {low} to {} are bound", low + region.size),
        };
        (kind, format!("{action} of {size} bytes at offset {offset} of {}, {limits}", self.memory(event.region)))
    }

    fn memory(&self, region: u32) -> String {
        let threadgroup = self.executor.regions.get(region as usize).is_some_and(|region| region.space == SPACE_THREADGROUP);
        let name = self.name(region).unwrap_or_else(|| "?".to_owned());
        format!("{} `{name}`", if threadgroup { "threadgroup memory" } else { "buffer" })
    }

    fn name(&self, slot: u32) -> Option<String> {
        let buffers =
            self.job.dispatch.buffers.iter().find(|binding| binding.buffer.slot() == slot).map(|binding| self.job.dispatch.name_of(binding));
        let local = || self.executor.locals.used().iter().find(|local| local.slot() == slot).map(|local| local.name.clone());
        let inline = || {
            let index = self.executor.inline.iter().position(|inline| inline.as_ref().is_some_and(|inline| inline.index() == slot))?;
            Some(self.job.dispatch.parameter_name(index as u32).unwrap_or_else(|| format!("buffer({index})")))
        };
        buffers.or_else(local).or_else(inline)
    }

    /// The buffer in whose slot an address lies, and the offset there.
    fn name_at(&self, address: u64) -> (Option<String>, Option<i64>) {
        let Some((slot, base)) = self.executor.arena.slot_of(address) else { return (None, None) };
        match self.name(slot) {
            Some(name) => (Some(name), Some(address.wrapping_sub(base) as i64)),
            None => (None, None),
        }
    }

    /// A fiber's thread was ended by a signal.
    pub(super) fn fault(&mut self, number: u16) {
        let fault = trap::take_fault();
        let callers = fault.map_or_else(Vec::new, |fault| self.executor.fibers[usize::from(number)].callers(fault.frame_pointer));
        self.end_thread(number);
        let Some(fault) = fault else { return };
        // A return address lies behind its call; the faulting instruction is made to look alike.
        let code = self.job.pipeline().0.loaded.range();
        let here = [fault.pc + 1, fault.top].into_iter().chain(callers);
        let frames: Vec<u64> = here.filter(|pc| code.contains(pc)).map(|pc| pc - code.start).collect();
        if fault.is_timeout() {
            return self.time_out(usize::from(self.shared().current.get()), None, frames);
        }
        let (low, high) = self.executor.fibers[usize::from(number)].bounds();
        let (buffer, offset) = self.name_at(fault.address);
        let (kind, message) = match fault.signal {
            libc::SIGFPE => (FindingKind::IntegerDivision, "integer division by zero, or its quotient does not fit".to_owned()),
            libc::SIGILL => (FindingKind::Fault, "an instruction that the processor does not have".to_owned()),
            _ if (low.saturating_sub(GUARD_BYTES)..low + GUARD_BYTES).contains(&fault.address) => {
                (FindingKind::StackOverflow, format!("the thread needs more than {} bytes of stack: unbounded recursion, or huge arrays", high - low))
            }
            _ if fault.address < NULL_BYTES => (FindingKind::Fault, format!("access at address {:#x}: the pointer was null", fault.address)),
            _ => (FindingKind::Fault, format!("access at address {:#x}, which is not mapped: compile with checks to learn more", fault.address)),
        };
        let raw = self.raw_here(kind, message);
        self.note(Raw { buffer, offset, frames, ..raw }, fault.pc, 0, 0);
    }

    fn refine(&mut self, slot: u32, granule: u8) {
        let refined = match self.executor.locals.find(slot) {
            Some(local) => local.refine(granule),
            None => {
                let Some((_, state)) = self.states.iter_mut().find(|(buffer, _)| buffer.slot() == slot) else { return };
                let Some(shadow) = &mut state.shadow else { return };
                let region = self.executor.regions[slot as usize];
                shadow.refine(granule).map(|()| crate::abi::Region { cells: shadow.as_mut_ptr(), granule, ..region })
            }
        };
        match refined {
            Ok(region) => self.executor.regions[slot as usize] = region,
            Err(error) => self.error = Some(error),
        }
    }
}

/// After these the thread cannot sensibly go on.
fn ends_thread(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::OutOfBoundsRead
            | EventKind::OutOfBoundsWrite
            | EventKind::WildRead
            | EventKind::WildWrite
            | EventKind::ReadOnlyWrite
            | EventKind::ArrayBounds
            | EventKind::BeyondArray
            | EventKind::Division
    )
}

fn wild(action: &str, event: &Event) -> String {
    if event.offset < NULL_BYTES {
        return format!("{action} of {} bytes at address {:#x}: the pointer was null", event.size, event.offset);
    }
    format!("{action} of {} bytes at address {:#x}, which belongs to no buffer, threadgroup memory or variable", event.size, event.offset)
}
