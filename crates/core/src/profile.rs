//! What a device did and when: the events of a profile.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    commands::{Command, CommandList, Dispatch},
    kernel::KernelSource,
    signature::Access,
};

/// What a device was busy with.
#[derive(Clone, Debug)]
pub enum Activity {
    /// A kernel.
    Kernel(Arc<KernelSource>),
    /// A copy between buffers.
    Copy,
    /// A fill.
    Fill,
    /// A copy from the host.
    Write,
    /// A copy to the host.
    Read,
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activity::Kernel(source) => source.key.fmt(f),
            Activity::Copy => f.write_str("(copy)"),
            Activity::Fill => f.write_str("(fill)"),
            Activity::Write => f.write_str("(write from host)"),
            Activity::Read => f.write_str("(read to host)"),
        }
    }
}

/// A stretch of a device's time.
#[derive(Clone, Debug)]
pub struct ProfileEvent {
    /// What ran.
    pub activity: Activity,
    /// When it began, in nanoseconds of a clock of the device's that all of its profiles share.
    pub start_ns: u64,
    /// How long it ran, in nanoseconds.
    pub duration_ns: u64,
    /// Bytes that it read and wrote at most: see [`Command::bytes`].
    pub bytes: u64,
    /// The [`CommandList::id`] of its list, where it belongs to one.
    pub list: Option<u64>,
}

impl ProfileEvent {
    /// When it ended.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

impl Command {
    /// What a device is busy with while it executes this.
    pub fn activity(&self) -> Activity {
        match self {
            Command::Dispatch(dispatch) => Activity::Kernel(dispatch.pipeline.source().clone()),
            Command::Copy(_) => Activity::Copy,
            Command::Fill(_) => Activity::Fill,
        }
    }

    /// Bytes of memory read and written, each once however often threads come back to them: as the plan counts them, else at most the sizes of the bound
    /// ranges, twice where a kernel updates one. A kernel that reads part of what is bound, such as attention over a cache that is not full, moves fewer.
    pub fn bytes(&self) -> u64 {
        match self {
            Command::Dispatch(dispatch) => dispatch.bytes(),
            Command::Copy(copy) => 2 * copy.source.bytes() as u64,
            Command::Fill(fill) => fill.destination.bytes() as u64,
        }
    }

    /// Floating-point operations, as [`Work::operations`](crate::Work::operations) counts them.
    pub fn operations(&self) -> u64 {
        match self {
            Command::Dispatch(dispatch) => dispatch.work.operations,
            Command::Copy(_) | Command::Fill(_) => 0,
        }
    }
}

impl Dispatch {
    /// As [`Command::bytes`].
    pub fn bytes(&self) -> u64 {
        let bound = self.pipeline.source().parameters.iter().zip(&self.bindings);
        let bytes = bound.filter_map(|(parameter, binding)| binding.as_ref().map(|binding| (parameter.access, binding.bytes() as u64)));
        self.work.bytes.unwrap_or_else(|| bytes.map(|(access, bytes)| if access == Access::ReadWrite { 2 * bytes } else { bytes }).sum())
    }
}

/// For tools that show what is submitted: number, length and first kernel.
impl fmt::Display for CommandList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commands = self.commands().len();
        write!(f, "list {} of {commands} command{}", self.id(), if commands == 1 { "" } else { "s" })?;
        self.commands().first().map_or(Ok(()), |first| write!(f, " from {}", first.activity()))
    }
}

/// Where a device keeps the events of the profile it takes, if it takes one.
#[derive(Debug, Default)]
pub struct ProfileLog(Mutex<Option<Vec<ProfileEvent>>>);

impl ProfileLog {
    /// Keeps events from now on; those of a profile that was not ended are dropped.
    pub fn start(&self) {
        *self.events() = Some(Vec::new());
    }

    /// Whether events are kept.
    pub fn is_on(&self) -> bool {
        self.events().is_some()
    }

    /// Keeps an event, if events are kept.
    pub fn add(&self, event: ProfileEvent) {
        if let Some(events) = &mut *self.events() {
            events.push(event);
        }
    }

    /// Keeps no more; what was kept, by start.
    pub fn end(&self) -> Vec<ProfileEvent> {
        let mut events = self.events().take().unwrap_or_default();
        events.sort_by_key(|event| event.start_ns);
        events
    }

    fn events(&self) -> MutexGuard<'_, Option<Vec<ProfileEvent>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        commands::ListBuilder,
        device::Device,
        dtype::DType,
        grid::{Extent, Grid},
        key::KernelKey,
        null::NullBackend,
        signature::Parameter,
    };

    use super::*;

    #[test]
    fn bytes_are_those_bound_and_twice_those_updated() {
        let device = Device::new(NullBackend::new());
        let parameters = vec![
            Parameter::read("x", DType::U8),
            Parameter::update("cache", DType::U8),
            Parameter::write("y", DType::U8),
            Parameter::read("bias", DType::U8).or_absent(),
        ];
        let key = KernelKey::new("mix", &[DType::F32]);
        let source = Arc::new(KernelSource { key, parameters, params_bytes: 0, host: None, metal: None, native: None });
        let pipeline = device.pipeline(&source).unwrap();
        let [x, cache, y] = [100, 10, 1].map(|bytes| device.allocate(bytes).unwrap().bind(0, bytes).unwrap());
        let bindings = vec![Some(x.clone()), Some(cache), Some(y), None];
        let (grid, threadgroup) = (Grid::Threadgroups([1; 3]), Extent::linear(1));
        let mut list = ListBuilder::new();
        list.dispatch(
            Dispatch { pipeline, bindings, params: [].into(), grid, threadgroup, threadgroup_memory: vec![], work: Default::default() },
            device.properties(),
        )
        .unwrap();
        list.copy(x.clone(), device.allocate(100).unwrap().bind(0, 100).unwrap()).unwrap();
        list.fill(x, 0).unwrap();
        let list = list.finish();
        assert_eq!(list.commands().iter().map(Command::bytes).collect::<Vec<_>>(), [121, 200, 100]);
        assert_eq!(list.to_string(), format!("list {} of 3 commands from mix_f32", list.id()));
        assert!(device.start_profile().unwrap_err().is_unsupported());
    }

    #[test]
    fn events_are_kept_while_a_profile_is_taken() {
        let log = ProfileLog::default();
        let event = |start_ns| ProfileEvent { activity: Activity::Fill, start_ns, duration_ns: 1, bytes: 1, list: None };
        log.add(event(1));
        log.start();
        [9, 8].into_iter().for_each(|start| log.add(event(start)));
        assert_eq!(log.end().iter().map(|event| event.start_ns).collect::<Vec<_>>(), [8, 9]);
        assert!(!log.is_on() && log.end().is_empty());
    }
}
