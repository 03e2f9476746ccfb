//! Transformer kernels with the same bits on every device.
//!
//! An [`Executor`] is a device, chosen automatically or by name. A [`Tensor`] lives on one; operators are its methods. What an executor
//! does can be recorded once and replayed any number of times with [`Executor::record`].
//!
//! ```
//! use elinvar::Executor;
//!
//! let executor = Executor::new_auto()?;
//! let x = executor.tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! let y = x.softmax(-1)?.mul(&x)?;
//! assert_eq!(y.shape().to_vec(), [2, 3]);
//! println!("{:?}", y.to_vec::<f32>()?);
//! # Ok::<(), elinvar::Error>(())
//! ```

mod arithmetic;
mod backend;
mod creation;
mod display;
mod executor;
mod gradient;
mod graph;
mod group;
pub mod guide;
mod host;
mod lend;
mod metal;
mod ops;
mod programs;
mod rendered;
mod shape;
mod tensor;
mod threadgroups;

pub use backend::{BackendType, DeviceReport, DeviceState, cuda_compiler, devices};
pub use elinvar_atlas as atlas;
pub use elinvar_core::{
    Access, Activity, Binding, Cache, Completion, ConstantValue, DType, Device, DeviceKind, DeviceProperties, Element, Error, ErrorKind, FastMap,
    HostMemory, HostMemoryMut, Layout, MemoryInfo, PipelineInfo, Pool, PoolStatistics, ProfileEvent, RawBuffer, Reading, Result, Shape, SplitMix64,
    Storage, advise_huge_pages, format_bytes,
};
pub use elinvar_group::{Place, World};
pub use elinvar_kernels as kernels;
pub use elinvar_kernels::{Operator, Precision, Scalar, cross_entropy::LossReduction};
#[cfg(feature = "metal")]
pub use elinvar_metal::chips;
pub use elinvar_metallib as metallib;
pub use elinvar_msl as msl;
pub use executor::{Executor, KeptOperator};
pub use gradient::{Gradients, grad};
pub use graph::{Recorder, Recording, Workspace};
pub use lend::{Loan, Turns};
pub use metal::{KernelArgument, MetalKernel, MetalLibrary, MetalSource};
pub use ops::optimizers::{Adam, Momentum};
pub use programs::{ProgramArgument, ProgramKernel};
pub use rendered::{program_cuda, program_metal};
pub use shape::{AxisIndex, TensorIndex};
pub use tensor::Tensor;
