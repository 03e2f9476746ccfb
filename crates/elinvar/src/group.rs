//! Several devices as one executor.

use std::{num::NonZeroUsize, sync::Arc, thread};

use elinvar_core::{DType, Device, Error, HostMemory, Layout, Result, Shape};
use elinvar_cpu::CpuBackend;
use elinvar_group::{Group, GroupBackend, World};
use elinvar_kernels::collective::{AllGather, OwnPart};

use crate::{
    backend::BackendType,
    executor::{Executor, only},
    tensor::Tensor,
};

impl Executor {
    /// Several devices as one: each is a rank, has memory of its own for every tensor, and runs every operator. A device that is named several times has
    /// several ranks, so that what is made for many GPUs can be tested on one device.
    ///
    /// Ranks differ in what they are given by [`Executor::adopt_parts`] and [`Tensor::own_part`]; [`Tensor::all_gather`] puts their parts together. Results are
    /// read from the first rank.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let executor = Executor::group(&[BackendType::Cpu, BackendType::Cpu])?;
    /// let x = executor.tensor(&[1, 4], &[1f32, 2.0, 3.0, 4.0])?;
    /// let part = x.own_part()?;
    /// assert_eq!(part.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert_eq!(part.exp()?.all_gather()?.to_vec::<f32>()?, x.exp()?.to_vec::<f32>()?);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// No device, one that is not available, or devices of different kinds.
    pub fn group(backends: &[BackendType]) -> Result<Self> {
        Ok(Self::of_group(Group::new(open_all(backends, 0, |backend| backend.open())?)?))
    }

    /// The `backends` of each of several processes, of one host or more, as one executor: those of the first process are the first ranks. Each process runs the
    /// same program on the same input, and reads results from its own first rank. The processes of a host share its cores.
    ///
    /// ```no_run
    /// # use elinvar::{BackendType, Executor, Place, World};
    /// // What `torchrun` starts.
    /// let place = Place::from_environment()?.expect("one of several processes");
    /// let gpu = BackendType::Cuda(place.local_rank);
    /// let executor = Executor::among(World::join(place)?, &[gpu])?;
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::group`]; a process that has other devices, or ended.
    pub fn among(world: World, backends: &[BackendType]) -> Result<Self> {
        let processes = world.place().local_world_size;
        let open = |backend: BackendType| match backend {
            BackendType::Cpu => {
                let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
                Ok(Device::new(CpuBackend::new(NonZeroUsize::new(cores / processes).or(Some(NonZeroUsize::MIN)))?))
            }
            BackendType::Metal(_) | BackendType::Cuda(_) | BackendType::MetalSim | BackendType::Null => backend.open(),
        };
        let devices = open_all(backends, world.place().rank * backends.len(), open)?;
        Ok(Self::of_group(Group::among(world, devices)?))
    }

    /// The processes that the executor spans, if there are several.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let executor = Executor::group(&[BackendType::Cpu; 2])?;
    /// assert!(executor.world().is_none());
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn world(&self) -> Option<&World> {
        self.group.as_ref().and_then(Group::world)
    }

    pub(crate) fn of_group(group: Group) -> Self {
        let mut executor = Self::from_device(Device::new(GroupBackend::new(group.clone())));
        executor.group = Some(group);
        executor
    }

    /// The same devices as replicas: each computes everything, of models that are whole on each, so that there are no ranks that share them. Replicas differ in
    /// what [`Tensor::own_replica`] gives them.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let executor = Executor::group(&[BackendType::Cpu; 2])?.replicated();
    /// assert_eq!((executor.ranks(), executor.replicas()), (1, 2));
    /// let own = executor.tensor(&[2, 1], &[1f32, 2.0])?.own_replica()?.exp()?;
    /// let [first, second] = &own.all_replicas()?[..] else { unreachable!() };
    /// assert_eq!((first.item::<f32>()?, second.item::<f32>()?), (1f32.exp(), 2f32.exp()));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    #[must_use]
    pub fn replicated(&self) -> Self {
        let mut executor = self.clone();
        executor.is_replicated = true;
        executor
    }

    /// The group, where its ranks share models.
    fn sharing(&self) -> Option<&Group> {
        self.group.as_ref().filter(|_| !self.is_replicated)
    }

    /// How many devices compute the same, each of what it has: see [`Executor::replicated`].
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let executor = Executor::group(&[BackendType::Cpu; 3])?;
    /// assert_eq!((executor.replicas(), executor.replicated().replicas()), (1, 3));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn replicas(&self) -> usize {
        self.group.as_ref().filter(|_| self.is_replicated).map_or(1, Group::ranks)
    }

    /// The ranks of the group that share what is computed, or one.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// assert_eq!(Executor::group(&[BackendType::Cpu; 3])?.ranks(), 3);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    pub fn ranks(&self) -> usize {
        self.sharing().map_or(1, Group::ranks)
    }

    /// A read-only tensor that each rank has other elements of: the first rank the first of `parts`, of `dims` each.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use elinvar::{BackendType, DType, Executor, HostMemory};
    /// let executor = Executor::group(&[BackendType::Cpu; 2])?;
    /// let parts = [vec![1u8, 2], vec![3, 4]].map(|part| HostMemory::new(Arc::new(part)));
    /// assert_eq!(executor.adopt_parts(DType::U8, &[2], parts.to_vec())?.all_gather()?.to_vec::<u8>()?, [1, 2, 3, 4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Parts for more or fewer ranks than there are, too small or too large for the shape, or out of memory.
    pub fn adopt_parts(&self, dtype: DType, dims: &[usize], mut parts: Vec<HostMemory>) -> Result<Tensor> {
        match (self.sharing(), parts.len()) {
            (Some(group), _) => self.adopt_raw(dtype, &Layout::contiguous(Shape::new(dims)?), group.adopt(parts)?),
            (None, 1) => self.adopt(dtype, dims, parts.remove(0)),
            (None, count) => Err(Error::invalid_argument(format!("{count} parts for one device: expected one"))),
        }
    }
}

/// Opens the devices of ranks from `first` on, each once.
fn open_all(backends: &[BackendType], first: usize, open: impl Fn(BackendType) -> Result<Device>) -> Result<Vec<Device>> {
    let mut opened: Vec<(BackendType, Device)> = Vec::new();
    for &backend in backends {
        let known = opened.iter().find(|(other, _)| *other == backend).map(|(_, device)| device.clone());
        let device = known.map_or_else(|| open(backend).map_err(|e| e.context(format!("rank {} ({backend})", first + opened.len()))), Ok)?;
        opened.push((backend, device));
    }
    Ok(opened.into_iter().map(|(_, device)| device).collect())
}

impl Tensor {
    /// The parts that the ranks of a group have, side by side along the last axis, on each of them; of one device the tensor itself.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let x = Executor::group(&[BackendType::Cpu; 2])?.tensor(&[2, 1], &[1i32, 2])?;
    /// assert_eq!(x.all_gather()?.to_vec::<i32>()?, [1, 1, 2, 2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A tensor without an axis, or out of memory.
    pub fn all_gather(&self) -> Result<Tensor> {
        self.gathered(self.executor().ranks())
    }

    /// Each rank's own part of the last axis, of what all ranks have; of one device the tensor itself.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let x = Executor::group(&[BackendType::Cpu; 2])?.tensor(&[2, 2], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.own_part()?.to_vec::<i32>()?, [1, 3]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A last axis that cannot be cut into a part for each rank, or out of memory.
    pub fn own_part(&self) -> Result<Tensor> {
        self.part_of(self.executor().ranks())
    }

    /// Each rank's own part of the first axis, of what all ranks have; of one device the tensor itself.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let x = Executor::group(&[BackendType::Cpu; 2])?.tensor(&[2, 2], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.own_rows()?.to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A first axis that cannot be cut into a part for each rank, or out of memory.
    pub fn own_rows(&self) -> Result<Tensor> {
        let ranks = self.executor().ranks();
        let mut dims = self.shape().to_vec();
        match dims.first_mut() {
            Some(rows) if rows.is_multiple_of(ranks) => *rows /= ranks,
            _ => return Err(Error::invalid_argument(format!("{self:?} cannot be cut into {ranks} parts along its first axis"))),
        }
        self.reshape(&[self.shape().elements()])?.own_part()?.reshape(&dims)
    }

    /// Each replica's own row of what all have, `[replicas, …]`: the first replica the first. It has the other axes.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let executor = Executor::group(&[BackendType::Cpu; 2])?.replicated();
    /// let own = executor.tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?.own_replica()?;
    /// assert_eq!(own.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// More or fewer rows than [replicas](Executor::replicas), or out of memory.
    pub fn own_replica(&self) -> Result<Tensor> {
        let replicas = self.executor().replicas();
        match &self.shape()[..] {
            [rows, dims @ ..] if *rows == replicas => self.reshape(&[self.shape().elements()])?.part_of(replicas)?.reshape(dims),
            _ => Err(Error::invalid_argument(format!("{self:?} for {replicas} replicas: a row for each expected"))),
        }
    }

    /// What each replica has, in their order, on all of them; of one device the tensor itself.
    ///
    /// ```
    /// # use elinvar::{BackendType, Executor};
    /// let executor = Executor::group(&[BackendType::Cpu; 2])?.replicated();
    /// let [_, second] = &executor.tensor(&[2, 1], &[1f32, 2.0])?.own_replica()?.all_replicas()?[..] else { unreachable!() };
    /// assert_eq!(second.item::<f32>()?, 2.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Out of memory.
    pub fn all_replicas(&self) -> Result<Vec<Tensor>> {
        let (replicas, elements) = (self.executor().replicas(), self.shape().elements());
        if replicas == 1 {
            return Ok(vec![self.clone()]);
        }
        let all = self.reshape(&[elements])?.gathered(replicas)?;
        (0..replicas).map(|replica| all.slice(0, replica * elements, elements, 1)?.reshape(self.shape())).collect()
    }

    fn gathered(&self, ranks: usize) -> Result<Tensor> {
        match ranks {
            1 => Ok(self.clone()),
            ranks => only(self.executor().apply(Arc::new(AllGather { ranks }), &[Some(self)])?),
        }
    }

    fn part_of(&self, ranks: usize) -> Result<Tensor> {
        match ranks {
            1 => Ok(self.clone()),
            ranks => only(self.executor().apply(Arc::new(OwnPart { ranks }), &[Some(self)])?),
        }
    }
}
