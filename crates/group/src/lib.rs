//! Several devices as one.
//!
//! A group has ranks, each on a device; several may share one. Its memory is memory of every rank, and a list runs on each of them with the rank's own: so what is
//! recorded once runs everywhere. Ranks hold different weights ([`Group::adopt`]) and exchange results by [`Collective`]s, the only commands that see more
//! than one rank. What the host writes goes to all ranks; what it reads is the first one's.
//!
//! The ranks of a group may be in several processes, those of a [`World`]: each has the memory of its own ranks, runs the same program, and reads from the first
//! of them.

mod backend;
mod lists;
mod memory;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;

use elinvar_core::{Binding, Buffer, Device, DeviceKind, DeviceProperties, Error, HostMemory, Joined, ListBuilder, Pipeline, RawBuffer, Result};
use elinvar_kernels::{
    collective::{Collective, Delivery, INBOX_BYTES, MOST_RANKS},
    cuda::CudaFeatures,
};

pub use backend::GroupBackend;
use memory::Parts;
pub use world::{Place, World};

/// The ranks of a group. Clones are the same group.
#[derive(Clone)]
pub struct Group(Arc<Ranks>);

struct Ranks {
    /// The device of each rank of this process.
    devices: Vec<Device>,
    properties: DeviceProperties,
    /// Of each rank the inboxes of all, as its device reaches them; none where all ranks share a device, or are in several processes.
    inboxes: Vec<Vec<Buffer>>,
    /// Of each rank that has an inbox what its launches need that deliver.
    deliveries: Vec<Delivery>,
    /// The processes that it spans, if there are several.
    world: Option<World>,
    /// The place of this process's device among those of the others, where devices exchange by themselves.
    joined: Option<Arc<dyn Joined>>,
}

/// What a kernel is to a group: prepared on each of its devices, or a collective.
enum Prepared {
    Kernel(Vec<Pipeline>),
    Collective(Collective),
}

impl Group {
    /// A group of a rank for each of `devices`; one that is named several times has several ranks.
    ///
    /// # Errors
    /// No device, or devices of different kinds or names, whose plans would differ.
    pub fn new(devices: Vec<Device>) -> Result<Self> {
        let (like, shared) = like(&devices)?;
        let mut properties = properties(like, devices.len(), shared);
        let inboxes = if shared == devices.len() { Vec::new() } else { inboxes(&devices)? };
        if let (Some(features), false) = (properties.features::<CudaFeatures>(), inboxes.is_empty()) {
            properties.features = Some(Arc::new(CudaFeatures { pushes: true, ..*features }));
        }
        let deliveries = if inboxes.is_empty() { Vec::new() } else { opened(&devices, &inboxes)? };
        Ok(Self(Arc::new(Ranks { devices, properties, inboxes, deliveries, world: None, joined: None })))
    }

    /// A group of the `devices` of every process: those of the first are its first ranks.
    ///
    /// # Errors
    /// As [`Group::new`], but that ranks of a process may share its devices; processes with other devices, or more of them; what [`World`] reports.
    pub fn among(world: World, devices: Vec<Device>) -> Result<Self> {
        let (like, shared) = like(&devices)?;
        world.agree("device", format!("{} × {} ({})", devices.len(), like.name, like.kind).as_bytes())?;
        let ranks = devices.len() * world.place().world_size;
        let properties = properties(like, ranks, shared);
        let joined = match &devices[..] {
            [one] => one.join(&world)?,
            several if properties.kind == DeviceKind::Cuda => {
                let gpus = several.len();
                return Err(Error::unsupported(format!(
                    "{gpus} GPUs in each of several processes: start a process for each (torchrun --nproc-per-node {gpus})"
                )));
            }
            _ => None,
        };
        if let Some(joined) = joined.as_ref().map(Arc::downgrade) {
            world.on_failure(move || joined.upgrade().into_iter().for_each(|joined| joined.abort()));
        }
        Ok(Self(Arc::new(Ranks { devices, properties, inboxes: Vec::new(), deliveries: Vec::new(), world: Some(world), joined })))
    }

    /// How many ranks it has.
    pub fn ranks(&self) -> usize {
        self.0.devices.len() * self.0.world.as_ref().map_or(1, |world| world.place().world_size)
    }

    /// The device of each rank of this process.
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// The processes that it spans, if there are several.
    pub fn world(&self) -> Option<&World> {
        self.0.world.as_ref()
    }

    /// The number of this process's first rank.
    fn first_rank(&self) -> usize {
        self.0.devices.len() * self.0.world.as_ref().map_or(0, |world| world.place().rank)
    }

    /// Whether all processes are there.
    fn check(&self) -> Result<()> {
        self.0.world.as_ref().map_or(Ok(()), World::check)
    }

    /// Memory that holds for each rank what it is given: equally many bytes for all.
    ///
    /// # Errors
    /// Parts for more or fewer ranks than there are, parts of different sizes, or out of memory.
    pub fn adopt(&self, parts: Vec<HostMemory>) -> Result<RawBuffer> {
        if parts.len() != self.ranks() || parts.windows(2).any(|pair| pair[0].bytes().len() != pair[1].bytes().len()) {
            return Err(Error::invalid_argument(format!("{} parts for {} ranks: one for each expected, all of one size", parts.len(), self.ranks())));
        }
        self.check()?;
        let own = parts.into_iter().skip(self.first_rank());
        let parts = self.0.devices.iter().zip(own).enumerate().map(|(rank, (device, part))| self.named(rank, device.adopt(part)));
        let parts = parts.collect::<Result<_>>()?;
        Ok(RawBuffer::new(Parts(parts)))
    }

    /// A result of the device of a rank of this process: an error names the rank, unless all are on one device.
    fn named<T>(&self, rank: usize, result: Result<T>) -> Result<T> {
        if self.0.inboxes.is_empty() && self.0.world.is_none() { result } else { named(self.first_rank() + rank, result) }
    }

    /// The inboxes of all ranks, as one of them reaches them.
    fn inboxes(&self, rank: usize) -> Result<Vec<Binding>> {
        bound(&self.0.inboxes[rank])
    }

    /// The devices of this process, each once, and its ranks on it.
    fn places(&self) -> Vec<(&Device, Vec<usize>)> {
        let mut places: Vec<(&Device, Vec<usize>)> = Vec::new();
        for (rank, device) in self.0.devices.iter().enumerate() {
            match places.iter_mut().find(|(other, _)| other.same(device)) {
                Some((_, ranks)) => ranks.push(rank),
                None => places.push((device, vec![rank])),
            }
        }
        places
    }
}

/// What the devices of a group have alike, and how many of them are the first.
fn like(devices: &[Device]) -> Result<(&DeviceProperties, usize)> {
    let Some(first) = devices.first() else {
        return Err(Error::invalid_argument("a group of no devices: name at least one"));
    };
    let like = first.properties();
    if let Some((rank, other)) = devices.iter().enumerate().find(|(_, d)| (d.properties().kind, &d.properties().name) != (like.kind, &like.name)) {
        let (first, other) = (&like.name, &other.properties().name);
        return Err(Error::invalid_argument(format!(
            "a group of unlike devices: rank 0 is on {first} ({}), rank {rank} on {other}: name devices of one kind",
            like.kind
        )));
    }
    Ok((like, devices.iter().filter(|device| device.same(first)).count()))
}

/// Those of a group of so many ranks, `shared` of them on a device.
fn properties(like: &DeviceProperties, ranks: usize, shared: usize) -> DeviceProperties {
    DeviceProperties {
        name: format!("{ranks} × {}", like.name),
        max_buffer_bytes: like.max_buffer_bytes / shared,
        // Each rank has memory of its own, so the host reaches none of it where it lies.
        unified_memory: false,
        ..like.clone()
    }
}

fn named<T>(rank: usize, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.context(format_args!("rank {rank}")))
}

/// Memory of each rank that the others write, as each reaches it.
fn inboxes(devices: &[Device]) -> Result<Vec<Vec<Buffer>>> {
    if let Some(twice) = (1..devices.len()).find(|&rank| devices[..rank].iter().any(|device| device.same(&devices[rank]))) {
        return Err(Error::invalid_argument(format!(
            "rank {twice} is on a device that another rank is on: name one device alone, or each of several once"
        )));
    }
    if devices.len() > MOST_RANKS {
        return Err(Error::unsupported(format!("a group of {} devices: {MOST_RANKS} at most exchange parts", devices.len())));
    }
    let of_rank = |device: &Device| {
        let inbox = device.allocate_dedicated(INBOX_BYTES)?;
        device.write(&inbox, 0, &vec![0; INBOX_BYTES])?;
        Ok(inbox)
    };
    let own = devices.iter().enumerate().map(|(rank, device)| named(rank, of_rank(device))).collect::<Result<Vec<_>>>()?;
    let reached = |(rank, device): (usize, &Device)| {
        let inbox = |(other, inbox): (usize, &Buffer)| if other == rank { Ok(inbox.clone()) } else { device.adopt_peer(inbox) };
        named(rank, own.iter().enumerate().map(inbox).collect::<Result<_>>())
    };
    devices.iter().enumerate().map(reached).collect()
}

fn bound(inboxes: &[Buffer]) -> Result<Vec<Binding>> {
    inboxes.iter().map(|inbox| inbox.bind(0, inbox.bytes())).collect()
}

/// Opens the inbox of each rank: what its launches need that deliver.
fn opened(devices: &[Device], inboxes: &[Vec<Buffer>]) -> Result<Vec<Delivery>> {
    let ranks = devices.len();
    let open = |rank: usize| -> Result<Delivery> {
        let (device, reached) = (&devices[rank], &inboxes[rank]);
        let mut list = ListBuilder::new();
        let inputs = bound(reached)?.into_iter().map(Some).collect();
        lists::launched(Delivery::opening(ranks, rank), inputs, reached[rank].bind(0, INBOX_BYTES)?, device, &mut list)?;
        device.submit(&list.finish())?.wait()?;
        let mut addresses = [0u64; MOST_RANKS + 1];
        device.read(&reached[rank], 0, bytemuck::cast_slice_mut(&mut addresses))?;
        Ok(Delivery::between(&addresses, ranks, rank))
    };
    (0..ranks).map(|rank| named(rank, open(rank))).collect()
}
