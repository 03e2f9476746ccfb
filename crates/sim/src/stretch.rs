//! Commands that nothing orders, as those between two barriers of a concurrent encoder: what one does to the bytes of another.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use elinvar_core::Result;

use crate::{
    abi::Record,
    buffer::Buffer,
    commands::Command,
    executor::Job,
    finding::{Finding, FindingKind, OtherAccess},
    simulator::Device,
};

/// The commands of a stretch, as they run.
pub(crate) struct Stretch<'a> {
    /// Slots of buffers that several checked commands use, of which one may write.
    pub(crate) contested: Arc<HashSet<u32>>,
    /// The first sequence number.
    first: Option<u64>,
    past: Vec<Past<'a>>,
}

/// A command that has run.
enum Past<'a> {
    Dispatch(Job<'a>),
    Transfer { name: &'static str, group: u64 },
}

impl<'a> Stretch<'a> {
    /// Before the first command.
    pub(crate) fn new(commands: &[Command]) -> Self {
        let mut uses: HashMap<u32, (usize, bool)> = HashMap::new();
        if commands.len() > 1 && commands.iter().all(is_checked) {
            for command in commands {
                let mut slots: HashMap<u32, bool> = HashMap::new();
                accesses(command).into_iter().for_each(|(buffer, _, written)| *slots.entry(buffer.slot()).or_default() |= written);
                for (slot, written) in slots {
                    let (count, any) = uses.entry(slot).or_default();
                    *count += 1;
                    *any |= written;
                }
            }
        }
        let contested = uses.into_iter().filter(|(_, (count, written))| *count > 1 && *written).map(|(slot, _)| slot);
        Self { contested: Arc::new(contested.collect()), first: None, past: Vec::new() }
    }

    /// A command begins with this sequence number: the oldest one of those beside it, in the same era.
    pub(crate) fn begin(&mut self, sequence: u64) -> u64 {
        let same_era = |first: &u64| first / Record::GROUPS == sequence / Record::GROUPS;
        let first = self.first.filter(same_era).unwrap_or(sequence);
        self.first = Some(first);
        first
    }

    /// A dispatch has run.
    pub(crate) fn end(&mut self, job: Job<'a>) {
        self.past.push(Past::Dispatch(job));
    }

    /// Enters what a copy or fill is about to do; where it races with what ran before it.
    pub(crate) fn transfer(&mut self, command: &Command, device: &Device) -> Result<Vec<Finding>> {
        let name = match command {
            Command::Dispatch(_) => return Ok(Vec::new()),
            Command::Copy { .. } => "copy",
            Command::Fill { .. } => "fill",
        };
        let mut accesses = accesses(command);
        accesses.retain(|(buffer, range, _)| self.contested.contains(&buffer.slot()) && !range.is_empty());
        if accesses.is_empty() {
            return Ok(Vec::new());
        }
        let sequence = device.sequence(1)?;
        let (oldest, record) = (self.begin(sequence), Record::new(sequence, 0, 0, 0));
        let mut findings = Vec::new();
        for (buffer, range, written) in accesses {
            let Some(race) = buffer.transfer(range, written, record, oldest)? else { continue };
            let (action, offset) = (if written { "write" } else { "read" }, race.offset);
            let message = format!("a {action} at offset {offset} of buffer `{}` that nothing orders after another command's access", buffer.name());
            findings.push(Finding {
                kind: FindingKind::DataRace,
                kernel: name.to_owned(),
                at: None,
                thread: [0; 3],
                threadgroup: [0; 3],
                buffer: Some(buffer.name().to_owned()),
                offset: Some(offset as i64),
                message,
                other: Some(self.access(race.pc.into(), race.record)),
                count: 1,
            });
        }
        self.past.push(Past::Transfer { name, group: record.group() });
        Ok(findings)
    }

    /// What is reported of an earlier command's access.
    pub(crate) fn access(&self, pc: u64, record: Record) -> OtherAccess {
        let unplaced = |kernel: &str| OtherAccess { at: None, kernel: kernel.to_owned(), thread: [0; 3], threadgroup: [0; 3] };
        let of = |past: &Past<'_>| match past {
            Past::Dispatch(job) => job.access(pc, record),
            Past::Transfer { name, group } => (*group == record.group()).then(|| unplaced(name)),
        };
        self.past.iter().rev().find_map(of).unwrap_or_else(|| unplaced("of another queue"))
    }
}

fn is_checked(command: &Command) -> bool {
    match command {
        Command::Dispatch(dispatch) => dispatch.pipeline.is_checked(),
        Command::Copy { .. } | Command::Fill { .. } => true,
    }
}

/// What a command may touch, and whether it may write that.
fn accesses(command: &Command) -> Vec<(&Buffer, Range<usize>, bool)> {
    match command {
        Command::Dispatch(dispatch) => {
            dispatch.buffers.iter().map(|binding| (&binding.buffer, binding.limits(), dispatch.pipeline.writes(binding.index))).collect()
        }
        Command::Copy { from, from_offset, to, to_offset, bytes } => {
            vec![(from, *from_offset..from_offset + bytes, false), (to, *to_offset..to_offset + bytes, true)]
        }
        Command::Fill { buffer, offset, bytes, .. } => vec![(buffer, *offset..offset + bytes, true)],
    }
}
