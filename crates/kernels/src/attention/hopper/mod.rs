//! What the kernels for compute capability 9.0 share: a warpgroup copies rows to a ring in shared memory, two others multiply them by `wgmma`.

use elinvar_core::MetalFile;

use crate::{cuda::CudaArchitecture, metal::metal_file};

pub(super) const ARCHITECTURE: CudaArchitecture = CudaArchitecture::Only(90);

/// Three warpgroups.
pub(super) const THREADS: u32 = 3 * 128;

/// After the kernel's layout: rows and tiles.
pub(super) const MEMORY: MetalFile = metal_file!("attention/hopper/memory.cu");
/// After a kernel's layout and which keys a query attends.
pub(super) const COPY: MetalFile = metal_file!("attention/hopper/copy.cu");
/// After [`MEMORY`] and [`COPY`].
pub(super) const RING: MetalFile = metal_file!("attention/hopper/ring.cu");
/// After [`MEMORY`].
pub(super) const COMPUTE: MetalFile = metal_file!("attention/hopper/compute.cu");

/// For kernels whose tiles are queries, after [`COMPUTE`].
pub(super) const QUERIES: MetalFile = metal_file!("attention/hopper/queries.cu");

/// What the unit that copies takes by maps, after [`TENSOR_MAPS`](crate::cuda::TENSOR_MAPS).
pub(super) const ROWS: MetalFile = metal_file!("attention/hopper/rows.cu");
/// After [`ROWS`], [`QUERIES`] and [`COPIES`](crate::cuda::COPIES).
pub(super) const BOXES: MetalFile = metal_file!("attention/hopper/boxes.cu");

/// Bytes of the maps of keys and values, for each thread block.
pub(super) const MAPS: usize = 2 * 128;

/// Where keys are: in one piece or in pages, after a kernel's tiles.
pub(super) const IN_ONE_PIECE: MetalFile = metal_file!("attention/hopper/whole.cu");
pub(super) const IN_PAGES: MetalFile = metal_file!("attention/hopper/pages.cu");
