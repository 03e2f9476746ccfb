//! Matrix products of the vendor's library, cuBLASLt: for fast precision, where a launch plan asks for one.

use std::{
    collections::HashMap,
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use cudarc::{
    cublaslt::sys::{
        self, cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as DescriptionAttribute,
        cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasStatus_t as Status,
        cudaDataType_t as DataType,
    },
    driver::sys as driver,
};
use elinvar_core::{DType, Dispatch, Error, Result};
use elinvar_kernels::cuda::MatrixProduct;
use libloading::Library;

use crate::{driver::Context, libraries, memory::Memory};

/// Whether the library is here; it is loaded if so.
pub(crate) fn is_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        // SAFETY: the initialisers of NVIDIA's library have no conditions.
        let found = libraries::candidates("cublasLt", libraries::TOOLKIT).iter().find_map(|candidate| unsafe { Library::new(candidate) }.ok());
        // It stays loaded, so that the bindings find it by its bare name.
        found.map(std::mem::forget).is_some()
    })
}

/// The library's state for one device.
pub(crate) struct Products {
    handle: Mutex<Option<Handle>>,
    context: Arc<Context>,
}

struct Handle {
    raw: sys::cublasLtHandle_t,
    workspace: Memory,
    /// Prepared products by what decides them.
    prepared: HashMap<Shape, Prepared>,
}

// SAFETY: used under the lock.
unsafe impl Send for Handle {}

/// Everything that decides how a product is computed, but for its addresses and factors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Shape {
    extents: [u64; 4],
    a: [i64; 3],
    b: [i64; 3],
    operands: DType,
    output: DType,
    bias: bool,
    /// Of `a`, `b`, the addend and `y`.
    alignments: [u32; 4],
}

fn check(what: &str, status: Status) -> Result<()> {
    match status {
        Status::CUBLAS_STATUS_SUCCESS => Ok(()),
        Status::CUBLAS_STATUS_ALLOC_FAILED => Err(Error::out_of_memory(format!("cuBLASLt: {what}: the GPU's memory is full"))),
        Status::CUBLAS_STATUS_NOT_SUPPORTED => Err(Error::unsupported(format!("cuBLASLt: {what}: not offered for these operands"))),
        other => Err(Error::device_lost(format!("cuBLASLt: {what}: {other:?}"))),
    }
}

/// Bytes of scratch memory the library may use.
const WORKSPACE: usize = 32 << 20;

/// Elements of a result from which on it gets none: there are enough tiles for all multiprocessors, and what it would zero and read there takes time.
const UNSPLIT: u64 = 1 << 23;

impl Products {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { handle: Mutex::default(), context }
    }

    /// Makes the library ready, which takes a while.
    pub(crate) fn prepare(&self) -> Result<()> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if handle.is_some() {
            return Ok(());
        }
        if !is_present() {
            return Err(Error::unsupported("cuBLASLt is not installed (pip install nvidia-cublas, or the CUDA toolkit)"));
        }
        self.context.enter()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current; the pointer is to a variable of ours.
        check("starting", unsafe { sys::cublasLtCreate(&mut raw) })?;
        *handle = Some(Handle { raw, workspace: Memory::new(&self.context, WORKSPACE)?, prepared: HashMap::new() });
        Ok(())
    }

    /// Starts a product on a stream.
    pub(crate) fn launch(&self, context: &Context, stream: driver::CUstream, dispatch: &Dispatch, addresses: &[driver::CUdeviceptr]) -> Result<()> {
        self.prepare()?;
        let params: MatrixProduct = bytemuck::try_pod_read_unaligned(&dispatch.params)
            .map_err(|_| Error::invalid_launch("the parameter block of a matrix product is of another size"))?;
        let parameters = &dispatch.pipeline.source().parameters;
        let (&[a, b, bias, addend, y], [first, _, _, _, output]) = (addresses, parameters.as_slice()) else {
            return Err(Error::invalid_launch("a matrix product binds a, b, bias, addend and y"));
        };
        let addend = if addend == 0 { y } else { addend };
        let at = |base: u64, origin: u64| base + origin * first.dtype.size() as u64;
        let (a, b) = (at(a, params.origins[0]), at(b, params.origins[1]));
        let shape = Shape {
            extents: [params.batches, params.m, params.n, params.k],
            a: params.a,
            b: params.b,
            operands: first.dtype,
            output: output.dtype,
            bias: bias != 0,
            alignments: [a, b, addend, y].map(|address| 1 << address.trailing_zeros().min(8)),
        };
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Handle { raw, workspace, prepared }) = handle.as_mut() else { return Err(Error::device_lost("cuBLASLt is gone")) };
        let product = match prepared.entry(shape) {
            std::collections::hash_map::Entry::Occupied(found) => found.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let made = Prepared::new(*raw, place.key())?;
                place.insert(made)
            }
        };
        context.enter()?;
        product.start(*raw, stream, [params.alpha, params.beta].map(|factor| factor as f32), [b, a, bias, addend, y], workspace)
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let handle = self.handle.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle
            && self.context.enter().is_ok()
            && self.context.synchronize().is_ok()
        {
            // SAFETY: made once, destroyed once; nothing of it runs any more.
            unsafe { sys::cublasLtDestroy(handle.raw) };
        }
    }
}

/// Descriptions of a product and the algorithm chosen for it.
///
/// The library counts columns first, so it computes the transpose of `y`: its first operand is `b`, its second `a`.
struct Prepared {
    description: Description,
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
}

macro_rules! owned {
    ($($name:ident: $raw:ty, $destroy:path;)*) => {
        $(
            /// Destroyed when dropped.
            struct $name($raw);

            impl Drop for $name {
                fn drop(&mut self) {
                    // SAFETY: made once, destroyed once.
                    unsafe { $destroy(self.0) };
                }
            }
        )*
    };
}

owned! {
    Description: sys::cublasLtMatmulDesc_t, sys::cublasLtMatmulDescDestroy;
    Layout: sys::cublasLtMatrixLayout_t, sys::cublasLtMatrixLayoutDestroy;
    Preference: sys::cublasLtMatmulPreference_t, sys::cublasLtMatmulPreferenceDestroy;
}

fn data_type(dtype: DType) -> Result<DataType> {
    match dtype {
        DType::F32 => Ok(DataType::CUDA_R_32F),
        DType::F16 => Ok(DataType::CUDA_R_16F),
        DType::BF16 => Ok(DataType::CUDA_R_16BF),
        other => Err(Error::unsupported(format!("a matrix product of {other} by cuBLASLt"))),
    }
}

/// How lines of an operand lie: whether the library must transpose it, the step from line to line, and rows and columns as the library counts.
fn orientation([_, line, along]: [i64; 3], lines: u64, k: u64) -> (bool, i64, [u64; 2]) {
    if along == 1 || k <= 1 {
        let step = if lines <= 1 { k as i64 } else { line };
        (true, step.max(k as i64).max(1), [k, lines])
    } else {
        (false, along, [lines, k])
    }
}

impl Layout {
    fn new(dtype: DType, [rows, columns]: [u64; 2], leading: i64, batches: u64, step: i64) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a variable of ours.
        check("describing a matrix", unsafe { sys::cublasLtMatrixLayoutCreate(&mut raw, data_type(dtype)?, rows, columns, leading) })?;
        let layout = Self(raw);
        if batches > 1 {
            let count = i32::try_from(batches).map_err(|_| Error::unsupported(format!("{batches} products at once: too many for cuBLASLt")))?;
            layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count)?;
            layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step)?;
        }
        Ok(layout)
    }

    fn set<T: Copy>(&self, attribute: LayoutAttribute, value: &T) -> Result<()> {
        // SAFETY: the layout lives; the value has the attribute's type and the size given.
        check("describing a matrix", unsafe { sys::cublasLtMatrixLayoutSetAttribute(self.0, attribute, ptr::from_ref(value).cast(), size_of::<T>()) })
    }
}

impl Description {
    fn set<T: Copy>(&self, attribute: DescriptionAttribute, value: &T) -> Result<()> {
        // SAFETY: the description lives; the value has the attribute's type and the size given.
        check("describing a product", unsafe { sys::cublasLtMatmulDescSetAttribute(self.0, attribute, ptr::from_ref(value).cast(), size_of::<T>()) })
    }
}

impl Prepared {
    fn new(handle: sys::cublasLtHandle_t, shape: &Shape) -> Result<Self> {
        let [batches, m, n, k] = shape.extents;
        let (b_lines, b_step, b_dims) = orientation(shape.b, n, k);
        let (a_lines, a_step, a_dims) = orientation(shape.a, m, k);
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a variable of ours.
        check("describing a product", unsafe { sys::cublasLtMatmulDescCreate(&mut raw, Compute::CUBLAS_COMPUTE_32F, DataType::CUDA_R_32F) })?;
        let description = Description(raw);
        // `CUBLAS_OP_N` and `CUBLAS_OP_T`.
        let operation = |transpose: bool| u32::from(transpose);
        // `b` as `[n, k]`: lines along k are the library's columns, to be transposed. `a` as `[k, m]`: the other way round.
        description.set(DescriptionAttribute::CUBLASLT_MATMUL_DESC_TRANSA, &operation(b_lines))?;
        description.set(DescriptionAttribute::CUBLASLT_MATMUL_DESC_TRANSB, &operation(!a_lines))?;
        if shape.bias {
            description.set(DescriptionAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &Epilogue::CUBLASLT_EPILOGUE_BIAS)?;
        }
        let layouts = [
            Layout::new(shape.operands, b_dims, b_step, batches, shape.b[0])?,
            Layout::new(shape.operands, a_dims, a_step, batches, shape.a[0])?,
            Layout::new(shape.output, [n, m], n as i64, batches, (m * n) as i64)?,
        ];
        let workspace = if batches * m * n < UNSPLIT { WORKSPACE } else { 0 };
        let algorithm = Self::choose(handle, &description, &layouts, shape.alignments, workspace)?;
        Ok(Self { description, layouts, algorithm })
    }

    fn choose(
        handle: sys::cublasLtHandle_t,
        description: &Description,
        [b, a, y]: &[Layout; 3],
        alignments: [u32; 4],
        workspace: usize,
    ) -> Result<sys::cublasLtMatmulAlgo_t> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a variable of ours.
        check("choosing an algorithm", unsafe { sys::cublasLtMatmulPreferenceCreate(&mut raw) })?;
        let preference = Preference(raw);
        let set = |attribute, value: *const c_void, bytes| {
            // SAFETY: the preference lives; the value has the attribute's type and the size given.
            check("choosing an algorithm", unsafe { sys::cublasLtMatmulPreferenceSetAttribute(preference.0, attribute, value, bytes) })
        };
        set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ptr::from_ref(&workspace).cast(), size_of::<usize>())?;
        let [at_a, at_b, at_addend, at_y] = alignments;
        for (attribute, alignment) in [
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, at_b),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, at_a),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, at_addend),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, at_y),
        ] {
            set(attribute, ptr::from_ref(&alignment).cast(), size_of::<u32>())?;
        }
        // SAFETY: an all-zero result is a valid value of the struct, which the call fills in.
        let mut found: sys::cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let mut count = 0;
        // SAFETY: everything described above lives; one result is asked for, and there is place for one.
        check("choosing an algorithm", unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(handle, description.0, b.0, a.0, y.0, y.0, preference.0, 1, &mut found, &mut count)
        })?;
        if count == 0 {
            return check("choosing an algorithm", Status::CUBLAS_STATUS_NOT_SUPPORTED).map(|()| found.algo);
        }
        Ok(found.algo)
    }

    fn start(
        &self,
        handle: sys::cublasLtHandle_t,
        stream: driver::CUstream,
        [alpha, beta]: [f32; 2],
        [b, a, bias, addend, y]: [driver::CUdeviceptr; 5],
        workspace: &Memory,
    ) -> Result<()> {
        if bias != 0 {
            self.description.set(DescriptionAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
        }
        let [first, second, output] = &self.layouts;
        let at = |address: u64| address as *mut c_void;
        // SAFETY: the descriptions live; the launch plan's extents and steps stay inside the bound ranges, which live until the product has
        // completed in stream order, as does the workspace, which one stream uses at a time.
        check("starting a product", unsafe {
            sys::cublasLtMatmul(
                handle,
                self.description.0,
                ptr::from_ref(&alpha).cast(),
                at(b),
                first.0,
                at(a),
                second.0,
                ptr::from_ref(&beta).cast(),
                at(addend),
                output.0,
                at(y),
                output.0,
                &self.algorithm,
                at(workspace.pointer),
                WORKSPACE,
                stream.cast(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_along_k_and_across_it_are_distinguished() {
        // A linear layer's weight [n, k], then a weight [k, n], a column of k = 1, and a single row inside a wider matrix.
        assert_eq!(orientation([0, 64, 1], 32, 64), (true, 64, [64, 32]));
        assert_eq!(orientation([0, 1, 32], 32, 64), (false, 32, [32, 64]));
        assert_eq!(orientation([0, 1, 7], 32, 1), (true, 1, [1, 32]));
        assert_eq!(orientation([0, 999, 1], 1, 64), (true, 64, [64, 1]));
    }
}
