//! For Metal programmers: what in this crate takes the place of what there, in one page.
//!
//! The examples run on the Mac's GPU with `BackendType::Metal(0)`; here they run over the simulator, which needs clang 19 or later and Linux.
//!
//! | Metal | here |
//! | --- | --- |
//! | `MTLCreateSystemDefaultDevice`, `MTLCopyAllDevices` | [`Executor::new_with_backend`](crate::Executor::new_with_backend) with [`BackendType::Metal`](crate::BackendType::Metal), [`devices`](crate::devices), [`BackendType::is_available`](crate::BackendType::is_available) |
//! | `MTLDevice.name`, limits | [`Executor::properties`](crate::Executor::properties) |
//! | `recommendedMaxWorkingSetSize`, `currentAllocatedSize` | [`Executor::memory`](crate::Executor::memory); [`Executor::new_auto_for`](crate::Executor::new_auto_for) chooses a device that has room |
//! | `newBufferWithBytes`, `newBufferWithLength` | [`Executor::tensor`](crate::Executor::tensor), [`Executor::zeros`](crate::Executor::zeros): shared with the host where memory is unified, else private |
//! | `MTLStorageModeShared`, `MTLStorageModePrivate` | [`Executor::empty`](crate::Executor::empty), [`Tensor::is_shared`](crate::Tensor::is_shared) |
//! | `newBufferWithBytesNoCopy` | [`Executor::adopt`](crate::Executor::adopt): a file mapped into memory, say, kept resident |
//! | `contents` | [`Tensor::with_values`](crate::Tensor::with_values), [`Tensor::with_values_mut`](crate::Tensor::with_values_mut), [`Tensor::write`](crate::Tensor::write) |
//! | `newLibraryWithSource`, function constants | [`Executor::compile_metal`](crate::Executor::compile_metal), [`MetalLibrary::kernel`](crate::MetalLibrary::kernel) |
//! | `threadExecutionWidth`, `maxTotalThreadsPerThreadgroup`, `staticThreadgroupMemoryLength` | [`MetalKernel::info`](crate::MetalKernel::info) |
//! | `dispatchThreads:threadsPerThreadgroup:` | [`MetalKernel::launch_threads`](crate::MetalKernel::launch_threads), with smaller threadgroups at the end; [`MetalKernel::threadgroup_for`](crate::MetalKernel::threadgroup_for) sizes them |
//! | `dispatchThreadgroups:threadsPerThreadgroup:` | [`MetalKernel::launch`](crate::MetalKernel::launch) |
//! | `MPSMatrixMultiplication`, `MPSGraph` | [`Tensor`](crate::Tensor)'s methods; their forms `_into` take the place of `encodeToCommandBuffer` with a result matrix |
//! | a command buffer encoded once | [`Executor::record`](crate::Executor::record), [`Executor::replay`](crate::Executor::replay); barriers come from what commands read and write |
//! | `dispatch_source` of memory pressure | the device listens to it: the pool releases unused memory |
//! | `MTLHeap` | [`Executor::pool`](crate::Executor::pool): memory that tensors release is used again |
//! | `MTLBinaryArchive` | kept by itself, in the folder `ELINVAR_CACHE` or the user's cache folder |
//!
//! # A kernel of one's own
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use elinvar::{BackendType, Executor, KernelArgument, MetalSource};
//!
//! let executor = Executor::new_with_backend(BackendType::MetalSim)?;
//! let source = "kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float& factor [[buffer(2)]],
//!                                 uint2 at [[thread_position_in_grid]], uint2 extent [[threads_per_grid]]) {
//!                   y[at.y * extent.x + at.x] = factor * x[at.y * extent.x + at.x];
//!               }";
//! let scale = executor.compile_metal(&MetalSource::new("scale.metal", source))?.kernel("scale", &[])?;
//! assert_eq!((scale.info().execution_width, scale.info().max_threads), (32, 1024));
//!
//! let (rows, columns) = (3, 50);
//! let x = executor.tensor(&[rows, columns], &vec![1.5f32; rows * columns])?;
//! let y = executor.zeros(x.dtype(), &[rows, columns])?;
//! let threads = [columns as u32, rows as u32, 1];
//! assert_eq!(scale.threadgroup_for(threads), [32, 3, 1]);
//! let factor = 2f32.to_ne_bytes();
//! let arguments = [("x", KernelArgument::Tensor(&x)), ("y", KernelArgument::Tensor(&y)), ("factor", KernelArgument::Bytes(&factor))];
//! scale.launch_threads(threads, scale.threadgroup_for(threads), &arguments)?;
//! assert!(y.with_values(|values: &[f32]| values.iter().all(|y| *y == 3.0))?);
//! # }
//! # Ok::<(), elinvar::Error>(())
//! ```
//!
//! # Memory, shared or private
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use elinvar::{BackendType, DType, Executor, Storage};
//!
//! let executor = Executor::new_with_backend(BackendType::MetalSim)?;
//! let values = [1.0f32, 2.0, 3.0, 4.0];
//! let shared = executor.tensor(&[2, 2], &values)?;
//! assert!(shared.is_shared()? && shared.with_values(|seen: &[f32]| seen == values)?);
//!
//! // The device's alone: written and read through copies.
//! let private = executor.empty(DType::F32, &[2, 2], Storage::Private)?;
//! private.copy_from(&shared)?;
//! assert!(!private.is_shared()? && private.to_vec::<f32>()? == values);
//! # }
//! # Ok::<(), elinvar::Error>(())
//! ```
//!
//! # A cache of keys, appended to at an offset
//!
//! ```
//! # #[cfg(target_os = "linux")] {
//! use elinvar::{BackendType, DType, Executor};
//!
//! let executor = Executor::new_with_backend(BackendType::MetalSim)?;
//! let (heads, capacity, width) = (1, 4, 2);
//! let cache = executor.zeros(DType::F32, &[heads, capacity, width])?;
//! let rows = executor.tensor(&[2, heads, width], &[1.0f32, 2.0, 3.0, 4.0])?;
//! // Where the rows go is data on the device: a recorded step is replayed for the next position.
//! let positions = executor.tensor(&[2], &[0i32, 1])?;
//! let (append, ()) = executor.record(|recorded| cache.on(recorded)?.kv_append(&rows, &positions))?;
//! executor.replay(&append)?.wait()?;
//! positions.write(&[2i32, 3])?;
//! executor.replay(&append)?.wait()?;
//! assert_eq!(cache.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
//! # }
//! # Ok::<(), elinvar::Error>(())
//! ```
//!
//! # The pool
//!
//! ```
//! use elinvar::Executor;
//!
//! let executor = Executor::new_auto()?;
//! drop(executor.tensor(&[1000], &[0f32; 1000])?);
//! let before = executor.pool().statistics();
//! let x = executor.tensor(&[1000], &[1f32; 1000])?;
//! assert_eq!(executor.pool().statistics().hits, before.hits + 1);
//! drop(x);
//! assert!(executor.pool().statistics().cached_bytes >= 4000);
//! executor.pool().clear();
//! assert_eq!(executor.pool().statistics().cached_bytes, 0);
//! # Ok::<(), elinvar::Error>(())
//! ```
