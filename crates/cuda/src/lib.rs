//! The CUDA device: kernels' Metal text, lowered to CUDA C++ (the `msl` crate), compiled by NVRTC when first used and kept in the disk cache as
//! machine code.
//!
//! Needed at run time are NVIDIA's driver and NVRTC; cuBLASLt is used for fast matrix products where it is installed. All three are loaded when the
//! device is opened, and CUPTI when a profile is asked for; so a program built with this crate starts on machines without them.
//!
//! # Order
//!
//! A device has one stream. Lists, copies and frees take effect in its order; so memory goes back to the pool as soon as a list is submitted: whatever uses
//! it next comes later in the stream. A list submitted again becomes a CUDA graph, and its replay is one call of the driver's.
//!
//! # Errors
//!
//! What a kernel rejects (an index outside its axis) is reported by the list's completion, or by the next read. A fault of the GPU, such as an access
//! outside every allocation, ends the device: that call and every later one fail with the names of the kernels that may have caused it.

mod backend;
mod commands;
mod compile;
mod cupti;
mod driver;
mod graph;
mod host_copy;
mod kernel;
mod libraries;
mod memory;
mod nccl;
mod nvrtc;
mod nvtx;
mod order;
mod products;
mod profile;
mod ptx;
mod staging;
mod submission;

pub use backend::CudaBackend;
pub use compile::Compiler;
pub use order::StreamOrder;
pub use ptx::{LibraryCompiler, Ptx};
