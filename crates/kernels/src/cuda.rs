//! Forms of kernels for NVIDIA's GPUs alone, and what plans know of those.

use std::sync::Arc;

use elinvar_core::{DeviceFeatures, DeviceProperties, Error, MetalFile, NativeForm, rejection};

use crate::metal::metal_file;

/// Types of numbers.
pub(crate) const NUMBERS: MetalFile = metal_file!("cuda/numbers.cu");

/// What [`math::METAL`](crate::math::METAL) takes from its language, after [`NUMBERS`].
pub(crate) const MATH: MetalFile = metal_file!("cuda/math.cu");

/// What the formats of quantised blocks take from their language, after [`MATH`].
pub(crate) const VECTORS: MetalFile = metal_file!("cuda/vectors.cu");

/// Launches that overlap, after [`NUMBERS`].
pub(crate) const LAUNCHES: MetalFile = metal_file!("cuda/launches.cu");

/// Instructions of warps from compute capability 8.0 on, after [`NUMBERS`].
pub(crate) const WARPS: MetalFile = metal_file!("cuda/warps.cu");

/// Clusters of thread blocks, after [`NUMBERS`].
pub(crate) const CLUSTERS: MetalFile = metal_file!("cuda/clusters.cu");

/// Copies to shared memory in whole pieces, after [`INSTRUCTIONS`].
pub(crate) const COPIES: MetalFile = metal_file!("cuda/copies.cu");

/// Maps of tensors for the unit that copies boxes of them, after [`INSTRUCTIONS`].
pub(crate) const TENSOR_MAPS: MetalFile = metal_file!("cuda/maps.cu");

/// Instructions of compute capability 9.0, after [`NUMBERS`].
pub(crate) const INSTRUCTIONS: MetalFile = metal_file!("cuda/instructions.cu");

/// Products of warpgroups of 64 rows and any number of eights of others.
pub(crate) const EIGHTS: MetalFile = metal_file!("cuda/eights.cu");

/// What a CUDA device runs in place of a kernel's Metal form: for kernels written for its hardware, of fast or invariant precision or with exact sums.
///
/// A launch plan gives one only to a device with [`CudaFeatures`].
#[derive(Clone, Copy, Debug)]
pub enum CudaForm {
    /// A kernel written in CUDA C++.
    Source(CudaSource),
    /// A matrix product by the vendor's library (cuBLASLt). Buffers `a`, `b`, `bias` (optional), `addend` (optional, as `y`; what `y` holds where absent) and `y`;
    /// the parameter block is a [`MatrixProduct`].
    MatrixProduct,
    /// What every rank has, gathered from the devices of other processes by the vendor's library (NCCL). Buffers `part`, equally large on all, and `whole`, the
    /// parts one after the other; no parameters.
    AllGather,
}

impl NativeForm for CudaForm {
    fn rejected(&self, flag: u32) -> Option<Error> {
        match self {
            Self::Source(source) => source.rejection.map(|why| rejection(why, flag)),
            Self::MatrixProduct | Self::AllGather => None,
        }
    }
}

/// What plans know of an NVIDIA GPU beyond the properties that all devices have.
#[derive(Clone, Copy, Debug)]
pub struct CudaFeatures {
    /// Compute capability: ten times the major number and the minor one, 90 for 9.0.
    pub compute_capability: u32,
    /// cuBLASLt is there: [`CudaForm::MatrixProduct`] can run.
    pub matrix_library: bool,
    /// It is of a group whose GPUs reach each other's memory: launches may [push](crate::collective::Push) their results.
    pub pushes: bool,
}

impl DeviceFeatures for CudaFeatures {}

impl CudaFeatures {
    /// As [`DeviceProperties::features`].
    pub fn of(compute_capability: u32, matrix_library: bool) -> Option<Arc<dyn DeviceFeatures>> {
        Some(Arc::new(Self { compute_capability, matrix_library, pushes: false }))
    }
}

/// CUDA C++ text and its entry.
///
/// The entry is an `extern "C" __global__ void` function that takes one pointer for each of the kernel's buffers in binding order (null where an
/// optional one is absent), then the parameter block by value, as `const __grid_constant__ Params`, if there is one, and the error flag, if it has any.
/// Grid, block and dynamic shared memory are the launch's.
/// It is compiled with contraction off and without headers other than the compiler's own.
#[derive(Clone, Copy, Debug)]
pub struct CudaSource {
    /// Files in the order they are read.
    pub files: &'static [MetalFile],
    /// The entry's symbol.
    pub entry: &'static str,
    /// Macros and their values, such as the type of the elements.
    pub defines: &'static [(&'static str, &'static str)],
    /// The devices it runs on.
    pub architecture: CudaArchitecture,
    /// Whether it may begin before the launches ahead have ended, for which it then waits itself (`griddepcontrol.wait`) before it reads what is not
    /// [`prefetched`](elinvar_core::Parameter::prefetched), or writes.
    pub overlaps: bool,
    /// What is wrong with an input that the kernel rejects, if it can: it then takes a pointer to the word after the parameter block, as
    /// [`MetalForm::with_error_flag`](elinvar_core::MetalForm::with_error_flag) says.
    pub rejection: Option<&'static str>,
    /// The files of the same kernel where it pushes its results to the ranks of a group, if it can: see [`Push`](crate::collective::Push). Not for one that
    /// rejects inputs: its error flag reports a rank that sends nothing.
    pub pushing: Option<&'static [MetalFile]>,
    /// The files of the same kernel where it delivers its result to them, if it can: see [`Delivery`](crate::collective::Delivery).
    pub delivering: Option<&'static [MetalFile]>,
}

impl CudaSource {
    /// One that waits for the launches ahead to end, rejects nothing, and gives its results to nobody else.
    pub(crate) const fn new(
        files: &'static [MetalFile],
        entry: &'static str,
        defines: &'static [(&'static str, &'static str)],
        architecture: CudaArchitecture,
    ) -> Self {
        Self { files, entry, defines, architecture, overlaps: false, rejection: None, pushing: None, delivering: None }
    }
}

/// The devices a CUDA kernel runs on, by compute capability: 90 is 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaArchitecture {
    /// This one and later ones.
    From(u32),
    /// This one alone, with the instructions that no other has (`sm_90a`).
    Only(u32),
}

/// The most threadgroups of a cluster.
pub(crate) const LARGEST_CLUSTER: usize = 8;

impl CudaArchitecture {
    /// The devices that have clusters.
    pub(crate) const CLUSTERED: Self = Self::From(90);

    /// Whether a device has it; no device but a CUDA device does.
    pub fn is_of(self, device: &DeviceProperties) -> bool {
        device.features().is_some_and(|CudaFeatures { compute_capability, .. }| match self {
            Self::From(least) => *compute_capability >= least,
            Self::Only(one) => *compute_capability == one,
        })
    }
}

/// The parameter block of [`CudaForm::MatrixProduct`]: `y[m, n] = round(alpha · Σ_k a[m, k] b[n, k] + beta · addend[m, n] + bias[n])` for each of
/// a batch of products. With a `beta` of 0 the addend does not matter.
///
/// `y` is row-major. Steps are in elements; of an operand's two, one is 1 or belongs to an extent of 1, and the other reaches at least from line to line.
/// The operands have one type, f32, f16 or bf16, and are not rounded; sums are f32; the bias has the type of `y`.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct MatrixProduct {
    /// Products.
    pub batches: u64,
    /// Rows of `a` and `y`.
    pub m: u64,
    /// Columns of `y`.
    pub n: u64,
    /// Elements of a sum.
    pub k: u64,
    /// In `a`: from product to product, from row to row, along k.
    pub a: [i64; 3],
    /// In `b`: from product to product, from column to column, along k.
    pub b: [i64; 3],
    /// Elements before the first of `a` and of `b`.
    pub origins: [u64; 2],
    /// The factor, an f32's value.
    pub alpha: f64,
    /// The factor of the addend, an f32's value.
    pub beta: f64,
}

/// A large GPU of a compute capability, for tests of plans.
#[cfg(test)]
pub(crate) fn gpu(capability: u32) -> DeviceProperties {
    DeviceProperties {
        kind: elinvar_core::DeviceKind::Cuda,
        name: format!("sm_{capability}"),
        compute_units: 132,
        simd_width: 32,
        max_threads_per_threadgroup: 1024,
        threadgroup_memory: 227 << 10,
        max_buffer_bytes: 1 << 36,
        unified_memory: false,
        dtypes: elinvar_core::DType::ALL,
        features: CudaFeatures::of(capability, false),
    }
}
