//! Ranges for tools such as Nsight Systems, by the protocol of NVTX 3: the environment names the tool's library, which is handed tables of functions to
//! fill in. Without a tool a range costs a look at a pointer.

use std::{
    env,
    ffi::{CString, c_char, c_int, c_uint, c_void},
    marker::PhantomData,
    mem,
    ptr::{self, null_mut},
    sync::{
        LazyLock,
        atomic::{AtomicPtr, Ordering::Relaxed},
    },
};

use libloading::Library;

/// Names the tool's library.
const VARIABLE: &str = if cfg!(target_pointer_width = "64") { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };

/// Functions of each module, the first of which is none: `nvtxDetail/nvtxTypes.h`, `NVTX_CBID_…_SIZE` of none, core, CUDA, OpenCL, CUDA's runtime, core 2
/// and synchronisation. Two of the core's are called; a tool may fill in all.
const FUNCTIONS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

/// Functions of the largest module.
const MOST: usize = 16;

type Function = AtomicPtr<c_void>;

/// Where a tool writes its functions.
static PLACES: [[Function; MOST]; FUNCTIONS.len()] = [const { [const { AtomicPtr::new(null_mut()) }; MOST] }; FUNCTIONS.len()];

type Table = [AtomicPtr<Function>; MOST + 1];

/// The places of each module, between nulls.
static TABLES: LazyLock<[Table; FUNCTIONS.len()]> = LazyLock::new(|| {
    let place = |module: usize, function: usize| match function {
        0 => null_mut(),
        function if function < FUNCTIONS[module] => ptr::from_ref(&PLACES[module][function]).cast_mut(),
        _ => null_mut(),
    };
    std::array::from_fn(|module| std::array::from_fn(|function| AtomicPtr::new(place(module, function))))
});

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    table: unsafe extern "C" fn(c_int, *mut *const AtomicPtr<Function>, *mut c_uint) -> c_int,
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), table };

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set: extern "C" fn(u32),
}

static VERSION: Version = Version { size: size_of::<Version>(), version: 3, reserved: 0, set: tool_version };

extern "C" fn tool_version(_version: u32) {}

/// Gives a tool a module's places.
unsafe extern "C" fn table(module: c_int, places: *mut *const AtomicPtr<Function>, size: *mut c_uint) -> c_int {
    let module = usize::try_from(module).unwrap_or(0);
    let (Some(table), Some(&count @ 1..)) = (TABLES.get(module), FUNCTIONS.get(module)) else { return 0 };
    // SAFETY: the tool passes places for what it asks, or null.
    unsafe {
        if !places.is_null() {
            *places = table.as_ptr();
        }
        if !size.is_null() {
            *size = count as c_uint;
        }
    }
    1
}

/// Gives a tool what it fills in (`NvtxGetExportTableFunc_t`).
unsafe extern "C" fn export(table: u32) -> *const c_void {
    match table {
        1 => ptr::from_ref(&CALLBACKS).cast(),
        3 => ptr::from_ref(&VERSION).cast(),
        _ => ptr::null(),
    }
}

/// A tool's functions.
struct Tool {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
}

/// The tool that the environment names; what it cannot do is the tool's to say.
static TOOL: LazyLock<Option<Tool>> = LazyLock::new(|| {
    let path = env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
    // SAFETY: naming a library runs its initialisers.
    let library = unsafe { Library::new(path) }.ok()?;
    type Initialize = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: the function that every tool for NVTX has, with NVTX's type.
    let filled = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2").ok()?(export) };
    // It has threads and hooks of its own until the process ends.
    mem::forget(library);
    let function = |index: usize| Some(PLACES[CORE][index].load(Relaxed)).filter(|function| filled != 0 && !function.is_null());
    let (push, pop) = (function(RANGE_PUSH)?, function(RANGE_POP)?);
    // SAFETY: the tool has put functions of these types there: `nvtxRangePushA` and `nvtxRangePop`.
    Some(unsafe {
        Tool {
            push: mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(push),
            pop: mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(pop),
        }
    })
});

/// What this thread does until it is dropped, which is on this thread.
pub(crate) struct Range(PhantomData<*const ()>);

/// Begins a range, if a tool looks on.
pub(crate) fn range(label: impl ToString) -> Option<Range> {
    let tool = TOOL.as_ref()?;
    let label = CString::new(label.to_string()).ok()?;
    // SAFETY: a tool's function; the string lives through the call.
    unsafe { (tool.push)(label.as_ptr()) };
    Some(Range(PhantomData))
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(tool) = &*TOOL {
            // SAFETY: ends what was begun on this thread.
            unsafe { (tool.pop)() };
        }
    }
}
