//! The layer that everything stands on: data types, shapes, errors, and the interface between what asks for work and the devices that do it.
//!
//! Everything above a device hands it **data**: a [`CommandList`] of dispatches, copies and fills over [`Buffer`]s. A device
//! implements [`Backend`]: allocate, copy in, copy out, compile, submit; freeing is RAII and waiting is a [`Completion`].
//! Because commands are data, a list is recorded once and replayed any number of times.
//!
//! # Where validation happens
//!
//! Once, above the backend interface, while a list is recorded: [`ListBuilder`] checks every binding against its buffer's bounds, the
//! kernel's signature (count, access, alignment), aliasing (a written range may not overlap another bound range), read-only
//! memory, and the device's launch limits. A backend may rely on all of it and checks nothing again.

mod backend;
mod buffer;
mod cache;
mod commands;
mod completion;
mod device;
mod device_id;
mod dtype;
mod error;
mod forward;
mod grid;
mod hash;
mod host;
mod host_memory;
mod kernel;
mod key;
mod layout;
mod memory;
mod metal;
mod null;
mod pages;
mod pool;
mod profile;
mod properties;
mod random;
mod reading;
mod signature;
mod units;

pub use backend::{Backend, Joined, MemoryPressure, Peers, Relief};
pub use buffer::{Binding, Buffer};
pub use cache::{Cache, CacheKey, cache_error};
pub use commands::{Command, CommandList, Copy, Dispatch, Fill, ListBuilder, Work};
pub use completion::{Completion, InFlight, Signal, Wait};
pub use device::Device;
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use grid::{Extent, Grid};
pub use hash::{FastHasher, FastMap};
pub use host::{HostArguments, HostBinding, HostForm, HostKernel, HostProgram};
pub use host_memory::MemoryInfo;
pub use kernel::{KernelSource, NativeForm, Pipeline, PipelineInfo, first_rejection};
pub use key::KernelKey;
pub use layout::{Layout, MAX_RANK, Shape};
pub use memory::{DeviceMemory, HostMemory, HostMemoryMut, RawBuffer, StandIn, Storage};
pub use metal::{
    CompiledMetal, ConstantValue, ERROR_FLAG_BYTES, METAL_VERSION, Metal, MetalCode, MetalFile, MetalForm, UserMetal, metal_type, rejection,
};
pub use null::NullBackend;
pub use pages::advise_huge_pages;
pub use pool::{Pool, PoolStatistics};
pub use profile::{Activity, ProfileEvent, ProfileLog};
pub use properties::{DeviceFeatures, DeviceKind, DeviceProperties};
pub use random::SplitMix64;
pub use reading::Reading;
pub use signature::{Access, Parameter};
pub use units::format_bytes;
