use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    buffer::{Binding, Buffer},
    device_id::DeviceId,
    error::{Error, Result},
    grid::{Extent, Grid},
    kernel::Pipeline,
    properties::DeviceProperties,
    signature::Access,
};

/// What a launch costs, as its plan counts it: for predictions and reports. Devices ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Floating-point operations of matrix products and attention, a multiplication and its addition being two; others, which memory bounds, count none.
    pub operations: u64,
    /// Bytes of memory read and written; without, those that are bound, which a list fills in.
    pub bytes: Option<u64>,
}

/// One kernel launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The prepared kernel.
    pub pipeline: Pipeline,
    /// Its buffers in the order of its signature.
    pub bindings: Vec<Option<Binding>>,
    /// Its parameter block.
    pub params: Arc<[u8]>,
    /// Its threads.
    pub grid: Grid,
    /// Threads of a threadgroup.
    pub threadgroup: Extent,
    /// Bytes of each of its arguments in threadgroup memory.
    pub threadgroup_memory: Vec<usize>,
    /// What it costs.
    pub work: Work,
}

/// A copy between two ranges of equal length.
#[derive(Clone, Debug)]
pub struct Copy {
    /// From.
    pub source: Binding,
    /// To.
    pub destination: Binding,
}

/// Sets every byte of a range.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The range.
    pub destination: Binding,
    /// The byte.
    pub value: u8,
}

/// Something a device executes.
#[derive(Clone, Debug)]
pub enum Command {
    /// Launch a kernel.
    Dispatch(Dispatch),
    /// Copy bytes.
    Copy(Copy),
    /// Fill with a byte.
    Fill(Fill),
}

/// Commands in order, checked and immutable. Submit it as often as wanted; it keeps its buffers alive.
#[derive(Debug)]
pub struct CommandList {
    id: u64,
    device: Option<DeviceId>,
    commands: Vec<Command>,
    has_stand_ins: bool,
}

impl CommandList {
    /// The device whose memory the commands use; none if they use none.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        self.device
    }

    /// Whether some of its memory is elsewhere each time that it is submitted.
    pub fn has_stand_ins(&self) -> bool {
        self.has_stand_ins
    }

    /// A number no other list of this process has, for devices that cache what they make of a list (a captured graph).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The commands.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// The same commands over other memory: what is given in the place of each stand-in ([`Device::stand_in`](crate::Device::stand_in)).
    ///
    /// # Errors
    /// Memory of another size or device, or that a command may not write; what is written and given for another place, too.
    pub fn over(&self, places: &[Buffer], given: &[Binding]) -> Result<Arc<CommandList>> {
        let is_sure = self.surely_takes(places, given)?;
        self.moved(places, given, is_sure)
    }

    /// The same, unless it is sure, with the checks of what a command does with its memory.
    pub(crate) fn moved(&self, places: &[Buffer], given: &[Binding], is_sure: bool) -> Result<Arc<CommandList>> {
        let moved = |binding: &Binding| match places.iter().position(|place| place.same(binding.buffer())) {
            Some(place) => given[place].part(binding.offset(), binding.bytes()),
            None => binding.clone(),
        };
        let mut commands = Vec::with_capacity(self.commands.len());
        for command in &self.commands {
            commands.push(match command {
                Command::Dispatch(dispatch) => {
                    let bindings = dispatch.bindings.iter().map(|binding| binding.as_ref().map(moved)).collect();
                    let Dispatch { pipeline, params, grid, threadgroup, threadgroup_memory, work, .. } = dispatch;
                    let dispatch = Dispatch {
                        pipeline: pipeline.clone(),
                        bindings,
                        params: params.clone(),
                        grid: *grid,
                        threadgroup: *threadgroup,
                        threadgroup_memory: threadgroup_memory.clone(),
                        work: *work,
                    };
                    if !is_sure {
                        check_bindings(&dispatch).map_err(|e| e.context(&dispatch.pipeline.source().key))?;
                    }
                    Command::Dispatch(dispatch)
                }
                Command::Copy(copy) => {
                    let (source, destination) = (moved(&copy.source), moved(&copy.destination));
                    check_copy(&source, &destination)?;
                    Command::Copy(Copy { source, destination })
                }
                Command::Fill(fill) => {
                    let destination = moved(&fill.destination);
                    check_writable("destination", &destination)?;
                    Command::Fill(Fill { destination, value: fill.value })
                }
            });
        }
        Ok(Self::new(self.device, commands, false))
    }

    /// Whether its commands may have this memory in these places, whatever they do with it; some may have other memory too.
    ///
    /// # Errors
    /// Memory of another size or device.
    pub(crate) fn surely_takes(&self, places: &[Buffer], given: &[Binding]) -> Result<bool> {
        if places.len() != given.len() {
            return Err(Error::invalid_launch(format!("{} buffers are given for {} places", given.len(), places.len())));
        }
        let mut is_sure = true;
        for (index, (place, binding)) in places.iter().zip(given).enumerate() {
            if place.bytes() != binding.bytes() || place.device() != binding.buffer().device() {
                let (found, wanted) = (binding.bytes(), place.bytes());
                return Err(Error::invalid_launch(format!("{found} bytes are given where a list of this device takes {wanted}")));
            }
            let is_shared = |(other, with): (usize, &Binding)| other != index && with.overlaps(binding);
            is_sure &= place.raw().is_read_only() || !binding.buffer().raw().is_read_only() && !given.iter().enumerate().any(is_shared);
        }
        Ok(is_sure)
    }

    fn new(device: Option<DeviceId>, commands: Vec<Command>, has_stand_ins: bool) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), device, commands, has_stand_ins })
    }

    /// The kernels of the launches, in order.
    pub fn kernels(&self) -> impl Iterator<Item = &Pipeline> {
        self.commands.iter().filter_map(|command| if let Command::Dispatch(dispatch) = command { Some(&dispatch.pipeline) } else { None })
    }
}

/// Records a [`CommandList`], checking each command as it comes.
#[derive(Debug, Default)]
pub struct ListBuilder {
    commands: Vec<Command>,
    /// Of the memory that the commands use.
    device: Option<DeviceId>,
}

impl ListBuilder {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of commands so far.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Adds a launch; one of an empty grid is dropped.
    ///
    /// # Errors
    /// Bindings or parameters that contradict the kernel's signature, aliasing, or a launch beyond the device's limits.
    pub fn dispatch(&mut self, mut dispatch: Dispatch, limits: &DeviceProperties) -> Result<()> {
        let bound = dispatch.bindings.iter().flatten().map(|binding| binding.buffer().device());
        let belongs = self.belongs_to(dispatch.pipeline.device().into_iter().chain(bound));
        belongs.and_then(|()| check_dispatch(&dispatch, limits)).map_err(|e| e.context(&dispatch.pipeline.source().key))?;
        if !dispatch.grid.is_empty() {
            // Counted once: devices ask in each replay.
            dispatch.work.bytes = Some(dispatch.bytes());
            self.commands.push(Command::Dispatch(dispatch));
        }
        Ok(())
    }

    /// Adds a copy.
    ///
    /// # Errors
    /// Lengths that differ, overlapping ranges, or a read-only destination.
    pub fn copy(&mut self, source: Binding, destination: Binding) -> Result<()> {
        check_copy(&source, &destination)?;
        self.belongs_to([source.buffer().device(), destination.buffer().device()])?;
        self.commands.push(Command::Copy(Copy { source, destination }));
        Ok(())
    }

    /// Adds a fill.
    ///
    /// # Errors
    /// A read-only destination.
    pub fn fill(&mut self, destination: Binding, value: u8) -> Result<()> {
        check_writable("destination", &destination)?;
        self.belongs_to([destination.buffer().device()])?;
        self.commands.push(Command::Fill(Fill { destination, value }));
        Ok(())
    }

    /// Adds the commands of another list.
    ///
    /// # Errors
    /// It was recorded for another device.
    pub fn append(&mut self, list: &CommandList) -> Result<()> {
        self.belongs_to(list.device)?;
        self.commands.extend_from_slice(&list.commands);
        Ok(())
    }

    /// A list's commands run on one device.
    fn belongs_to(&mut self, devices: impl IntoIterator<Item = DeviceId>) -> Result<()> {
        for device in devices {
            if *self.device.get_or_insert(device) != device {
                return Err(Error::invalid_launch(
                    "memory and kernels of different devices in one list: copy through the host, and record a list for each device",
                ));
            }
        }
        Ok(())
    }

    /// The list.
    pub fn finish(self) -> Arc<CommandList> {
        let stands_in = |binding: &Binding| binding.buffer().raw().stand_in().is_some();
        let has_stand_ins = self.commands.iter().any(|command| match command {
            Command::Dispatch(dispatch) => dispatch.bindings.iter().flatten().any(stands_in),
            Command::Copy(copy) => stands_in(&copy.source) || stands_in(&copy.destination),
            Command::Fill(fill) => stands_in(&fill.destination),
        });
        CommandList::new(self.device, self.commands, has_stand_ins)
    }
}

fn check_copy(source: &Binding, destination: &Binding) -> Result<()> {
    if source.bytes() != destination.bytes() {
        return Err(Error::invalid_launch(format!("copy of {} bytes into {} bytes", source.bytes(), destination.bytes())));
    }
    if source.overlaps(destination) {
        return Err(Error::invalid_launch("copy between overlapping ranges of one buffer"));
    }
    check_writable("destination", destination)
}

fn check_writable(name: &str, binding: &Binding) -> Result<()> {
    if binding.buffer().raw().is_read_only() {
        return Err(Error::invalid_launch(format!("'{name}' is read-only host memory (adopted weights): write to a buffer of the device")));
    }
    Ok(())
}

fn check_dispatch(dispatch: &Dispatch, limits: &DeviceProperties) -> Result<()> {
    let source = dispatch.pipeline.source();
    if dispatch.bindings.len() != source.parameters.len() {
        return Err(Error::invalid_launch(format!("{} buffers bound, the kernel takes {}", dispatch.bindings.len(), source.parameters.len())));
    }
    if dispatch.params.len() != source.params_bytes {
        return Err(Error::invalid_launch(format!("parameter block of {} bytes, the kernel takes {}", dispatch.params.len(), source.params_bytes)));
    }
    check_bindings(dispatch)?;
    check_limits(dispatch, limits)
}

fn check_bindings(dispatch: &Dispatch) -> Result<()> {
    let source = dispatch.pipeline.source();
    for (index, (parameter, binding)) in source.parameters.iter().zip(&dispatch.bindings).enumerate() {
        let name = &*parameter.name;
        let Some(binding) = binding else {
            if parameter.optional {
                continue;
            }
            return Err(Error::invalid_launch(format!("buffer '{name}' is not bound")));
        };
        let size = parameter.dtype.size();
        if !binding.offset().is_multiple_of(size) || !binding.bytes().is_multiple_of(size) {
            let (offset, bytes) = (binding.offset(), binding.bytes());
            return Err(Error::invalid_launch(format!(
                "'{name}' binds {bytes} bytes at byte {offset}: both must be multiples of {size} ({})",
                parameter.dtype
            )));
        }
        if parameter.access == Access::Read {
            continue;
        }
        check_writable(name, binding)?;
        let mut others = dispatch.bindings.iter().zip(&source.parameters).enumerate().filter(|(other, _)| *other != index);
        if let Some((_, (_, other))) = others.find(|(_, (other, _))| other.as_ref().is_some_and(|o| o.overlaps(binding))) {
            return Err(Error::invalid_launch(format!("'{name}' is written but overlaps '{}': give it a buffer of its own", other.name)));
        }
    }
    Ok(())
}

fn check_limits(dispatch: &Dispatch, limits: &DeviceProperties) -> Result<()> {
    let threads = dispatch.threadgroup.count();
    if threads == 0 || threads > limits.max_threads_per_threadgroup as u128 {
        return Err(Error::invalid_launch(format!(
            "{threads} threads in a threadgroup: {} allows 1 to {}",
            limits.name, limits.max_threads_per_threadgroup
        )));
    }
    let (asked, most) = (dispatch.threadgroup_memory.iter().sum::<usize>(), limits.threadgroup_memory);
    if asked > most {
        return Err(Error::invalid_launch(format!("{asked} bytes of threadgroup memory: {} allows {most}", limits.name)));
    }
    Ok(())
}
