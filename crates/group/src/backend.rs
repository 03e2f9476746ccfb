use std::sync::{Arc, Mutex, PoisonError};

use elinvar_core::{
    Backend, Buffer, CommandList, Completion, Device, DeviceKind, DeviceProperties, Error, HostMemory, KernelSource, MemoryInfo, Pipeline,
    ProfileEvent, RawBuffer, Reading, Result, Storage, Wait,
};
use elinvar_kernels::collective::Collective;

use crate::{
    Group, Prepared, World,
    lists::{Exchange, Lists},
    memory::Parts,
    world,
};

/// A group as a device: see the crate's documentation.
pub struct GroupBackend {
    group: Group,
    lists: Mutex<Lists>,
    /// What the host wrote since the last exchange with other processes, as a number: all processes write the same.
    written: Mutex<u64>,
}

impl GroupBackend {
    /// The device of a group.
    pub fn new(group: Group) -> Self {
        Self { group, lists: Mutex::default(), written: Mutex::default() }
    }

    /// The part of this process's first rank.
    fn first<'a>(&self, buffer: &'a RawBuffer) -> Result<&'a Buffer> {
        Ok(&buffer.downcast::<Parts>()?.0[0])
    }

    /// Starts the list of each device.
    fn start(&self, lists: &[Arc<CommandList>]) -> Result<Completion> {
        let places = self.group.places();
        let submit = |((device, ranks), list): (&(&Device, Vec<usize>), &Arc<CommandList>)| self.group.named(ranks[0], device.submit(list));
        let submitted = places.iter().zip(lists).map(submit).collect::<Result<Vec<_>>>()?;
        Ok(match <[Completion; 1]>::try_from(submitted) {
            Ok([one]) if self.group.0.joined.is_none() => one,
            Ok(one) => Completion::new(Arc::new(All { group: self.group.clone(), completions: one.into() })),
            Err(several) => Completion::new(Arc::new(All { group: self.group.clone(), completions: several })),
        })
    }

    /// Starts a list, and lets the host exchange what devices do not.
    fn run(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        let run = self.lists.lock().unwrap_or_else(PoisonError::into_inner).of(&self.group, commands)?;
        if let (Some(world), true) = (self.group.world(), run.meets) {
            world.note(std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner)))?;
            for (lists, exchange) in &run.exchanges {
                self.start(lists)?;
                self.exchange(world, exchange)?;
            }
        }
        self.start(&run.last)
    }

    /// Gathers parts from all processes, and puts them where each rank has them.
    fn exchange(&self, world: &World, Exchange { parts, wholes }: &Exchange) -> Result<()> {
        let devices = self.group.devices();
        let mut own = Vec::new();
        for (rank, (device, part)) in devices.iter().zip(parts).enumerate() {
            let start = own.len();
            own.resize(start + part.bytes(), 0);
            self.group.named(rank, device.read(part.buffer(), part.offset(), &mut own[start..]))?;
        }
        let whole = world.all_gather(&own)?.concat();
        wholes.iter().try_for_each(|(rank, to)| self.group.named(*rank, devices[*rank].write(to.buffer(), to.offset(), &whole)))
    }
}

impl Backend for GroupBackend {
    fn properties(&self) -> &DeviceProperties {
        &self.group.0.properties
    }

    fn memory(&self) -> MemoryInfo {
        // The processes of a host share its memory, and have GPUs of their own.
        let processes = self.group.world().map_or(1, |world| match self.properties().kind {
            DeviceKind::Cpu | DeviceKind::MetalSim => world.place().local_world_size,
            DeviceKind::Cuda | DeviceKind::Metal | DeviceKind::Null => 1,
        });
        let of_rank = self.group.places().into_iter().map(|(device, ranks)| {
            let (MemoryInfo { total, available }, sharers) = (device.memory(), ranks.len() * processes);
            MemoryInfo { total: total / sharers, available: available / sharers }
        });
        of_rank.min_by_key(|memory| memory.available).unwrap_or(MemoryInfo { total: 0, available: 0 })
    }

    fn allocate(&self, bytes: usize, _storage: Storage) -> Result<RawBuffer> {
        self.group.check()?;
        let part = |(rank, device): (usize, &Device)| self.group.named(rank, device.allocate_dedicated(bytes));
        Ok(RawBuffer::new(Parts(self.group.devices().iter().enumerate().map(part).collect::<Result<_>>()?)))
    }

    fn adopt(&self, memory: HostMemory) -> Result<RawBuffer> {
        self.group.check()?;
        let mut parts = vec![None; self.group.devices().len()];
        for (device, ranks) in self.group.places() {
            let part = self.group.named(ranks[0], device.adopt(memory.clone()))?;
            ranks.into_iter().for_each(|rank| parts[rank] = Some(part.clone()));
        }
        Ok(RawBuffer::new(Parts(parts.into_iter().flatten().collect())))
    }

    fn write(&self, buffer: &RawBuffer, offset: usize, bytes: &[u8]) -> Result<()> {
        if self.group.world().is_some() {
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            *written = written.rotate_left(1) ^ world::hash(bytes);
        }
        let parts = &buffer.downcast::<Parts>()?.0;
        let write = |(rank, (device, part)): (usize, (&Device, &Buffer))| self.group.named(rank, device.write(part, offset, bytes));
        self.group.devices().iter().zip(parts).enumerate().try_for_each(write)
    }

    fn read(&self, buffer: &RawBuffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.group.named(0, self.group.devices()[0].read(self.first(buffer)?, offset, bytes))?;
        self.group.check()
    }

    fn view(&self, buffer: &RawBuffer, offset: usize, bytes: usize, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.group.named(0, self.group.devices()[0].view(self.first(buffer)?, offset, bytes, see))?;
        self.group.check()
    }

    fn read_later(&self, buffer: &RawBuffer, offset: usize, bytes: usize) -> Result<Reading> {
        let (reading, group) = (self.group.devices()[0].read_later(self.first(buffer)?, offset, bytes), self.group.clone());
        self.group.named(0, reading).map(|reading| reading.checked(move || group.check()))
    }

    fn compile(&self, kernel: &Arc<KernelSource>) -> Result<Pipeline> {
        let prepared = match kernel.native::<Collective>() {
            Some(collective) => Prepared::Collective(*collective),
            None => {
                let prepare = |(device, ranks): &(&Device, Vec<usize>)| self.group.named(ranks[0], device.prepare(kernel));
                Prepared::Kernel(self.group.places().iter().map(prepare).collect::<Result<_>>()?)
            }
        };
        let info = match &prepared {
            Prepared::Kernel(pipelines) => pipelines.first().and_then(Pipeline::info),
            Prepared::Collective(_) => None,
        };
        let pipeline = Pipeline::new(kernel.clone(), Arc::new(prepared));
        Ok(match info {
            Some(info) => pipeline.with_info(info),
            None => pipeline,
        })
    }

    fn ready(&self, kernel: &Pipeline) -> Result<()> {
        match kernel.state() {
            Some(Prepared::Kernel(pipelines)) => self
                .group
                .places()
                .iter()
                .zip(pipelines)
                .try_for_each(|((device, ranks), pipeline)| self.group.named(ranks[0], device.ready(pipeline))),
            Some(Prepared::Collective(_)) | None => Ok(()),
        }
    }

    fn submit(&self, commands: &Arc<CommandList>) -> Result<Completion> {
        self.group.check()?;
        let submitted = self.run(commands);
        // What fails because another process is lost is not what went wrong.
        self.group.check().and(submitted)
    }

    fn start_profile(&self) -> Result<()> {
        self.group.places().iter().try_for_each(|(device, _)| device.start_profile())
    }

    fn end_profile(&self) -> Result<Vec<ProfileEvent>> {
        let events = self.group.places().iter().map(|(device, _)| device.end_profile()).collect::<Result<Vec<_>>>()?;
        Ok(events.into_iter().flatten().collect())
    }
}

/// The lists of the devices, each of which has one rank.
struct All {
    group: Group,
    completions: Vec<Completion>,
}

impl Wait for All {
    fn settle(&self) -> (bool, Result<()>) {
        // Each is waited for, so that none still runs when an error is reported.
        let results: Vec<_> = self.completions.iter().map(Completion::wait).collect();
        // A device that failed before one that it kept waiting.
        let is_other = |result: &Result<()>| !result.as_ref().is_err_and(Error::is_device_lost);
        let mut named: Vec<_> = results.into_iter().enumerate().map(|(rank, result)| self.group.named(rank, result)).collect();
        named.sort_by_key(is_other);
        // What was exchanged with a process that is lost is worth nothing.
        (false, self.group.check().and(named.into_iter().collect()))
    }

    fn is_complete(&self) -> bool {
        self.completions.iter().all(Completion::is_complete)
    }

    fn notify(self: Arc<Self>, then: Box<dyn FnOnce() + Send>) {
        let left = Arc::new(Mutex::new((self.completions.len(), Some(then))));
        for completion in &self.completions {
            let left = left.clone();
            completion.on_complete(move |_| {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.0 -= 1;
                let then = if left.0 == 0 { left.1.take() } else { None };
                drop(left);
                then.into_iter().for_each(|then| then());
            });
        }
    }
}
