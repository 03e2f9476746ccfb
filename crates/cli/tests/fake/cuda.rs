//! A CUDA driver, an NVRTC, a CUPTI and a tool for NVTX without a GPU behind them. `FAKE_CUDA` says what is wrong: a `version`, a result of `init`, of
//! `allocate` or of `cupti`, the number of `devices`, whether they are `peers`, the bytes `free`, the `architecture` that the compiler knows, or which device is `lost`, and
//! `after` how many pieces of work of all devices; as `key=number`, with commas between several. What the compiler
//! makes is a byte, which the driver loads; what is launched does nothing, but CUPTI has its time: a kernel takes ten nanoseconds, and the next begins
//! after eight.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

use std::{
    cell::Cell,
    env,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    mem, ptr,
    sync::Mutex,
};

fn setting(key: &str, otherwise: u64) -> u64 {
    let text = env::var("FAKE_CUDA").unwrap_or_default();
    let mut settings = text.split(',').filter_map(|setting| setting.split_once('='));
    settings.find(|(name, _)| *name == key).and_then(|(_, number)| number.parse().ok()).unwrap_or(otherwise)
}

fn give<T>(place: *mut T, value: T) -> c_int {
    // SAFETY: every caller gives a place for the value.
    unsafe { ptr::write(place, value) };
    0
}

/// What is not there to be called answers: CUDA_ERROR_NOT_SUPPORTED.
const NEVER: c_int = 801;

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) => $body:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($argument: $type),*) -> c_int {
                $body
            }
        )*
    };
}

functions! {
    cuDriverGetVersion(version: *mut c_int) => give(version, setting("version", 13000) as c_int);
    cuInit(_flags: c_uint) => setting("init", 0) as c_int;
    cuDeviceGetCount(count: *mut c_int) => give(count, setting("devices", 1) as c_int);
    cuGetErrorString(_result: c_int, text: *mut *const c_char) => give(text, c"said by the fake".as_ptr());
    cuGetErrorName(_result: c_int, text: *mut *const c_char) => give(text, c"FAKE".as_ptr());
    cuDeviceGet(device: *mut c_int, ordinal: c_int) => give(device, ordinal);
    cuDeviceGetName(name: *mut c_char, _length: c_int, _device: c_int) => give(name.cast(), *b"Fake\0");
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) => give(value, match attribute {
        75 => 9,
        76 => 0,
        97 => 227 << 10,
        _ => 100,
    });
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) => give(context, ptr::without_provenance_mut(device as usize + 1));
    cuDevicePrimaryCtxRelease_v2(_device: c_int) => 0;
    cuCtxSetCurrent(context: *mut c_void) => {
        DEVICE.set(context.addr() as u64 - 1);
        0
    };
    cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) => give(stream, ptr::dangling_mut());
    cuStreamDestroy_v2(_stream: *mut c_void) => 0;
    cuStreamSynchronize(_stream: *mut c_void) => 0;
    cuStreamWaitEvent(_stream: *mut c_void, _event: *mut c_void, _flags: u32) => 0;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => give(free, setting("free", 1 << 36) as usize) + give(total, 1 << 36);
    cuMemAllocAsync(memory: *mut u64, _bytes: usize, _stream: *mut c_void) => give(memory, 256) + setting("allocate", 999) as c_int;
    cuMemFreeAsync(_memory: u64, _stream: *mut c_void) => 0;
    cuMemHostAlloc(memory: *mut *mut c_void, bytes: usize, _flags: c_uint) => {
        give(memory, vec![0u64; bytes / 8 + 1].leak().as_mut_ptr().cast());
        setting("allocate", 999) as c_int
    };
    cuDeviceGetMemPool(pool: *mut *mut c_void, _device: c_int) => give(pool, ptr::dangling_mut());
    cuDeviceCanAccessPeer(can: *mut c_int, _device: c_int, _peer: c_int) => give(can, setting("peers", 1) as c_int);
    cuMemPoolSetAccess() => 0;
    cuMemPoolTrimTo(_pool: *mut c_void, _bytes: usize) => 0;
    cuModuleGetFunction(function: *mut *const c_char, _module: *mut c_void, name: *const c_char) => {
        // SAFETY: the driver is given a string.
        give(function, unsafe { CStr::from_ptr(name) }.to_owned().into_raw())
    };
    cuModuleUnload() => 0;
    cuFuncGetAttribute(value: *mut c_int) => give(value, 1024);
    cuEventCreate(event: *mut *mut c_void) => give(event, ptr::dangling_mut());
    cuEventDestroy_v2() => 0;
    cuEventQuery() => 0;
    cuEventRecord() => 0;
    cuEventSynchronize() => 0;
    cuFuncSetAttribute() => 0;
    cuStreamBeginCapture_v2() => {
        STATE.lock().unwrap().graph = Some(Vec::new());
        0
    };
    cuStreamEndCapture(_stream: *mut c_void, graph: *mut *mut Vec<Work>) => {
        give(graph, Box::into_raw(Box::new(STATE.lock().unwrap().graph.take().unwrap())))
    };
    cuGraphInstantiateWithFlags(exec: *mut *const Vec<Work>, graph: *const Vec<Work>) => give(exec, graph);
    // SAFETY: a graph that was instantiated, and never destroyed.
    cuGraphLaunch(graph: *const Vec<Work>) => unsafe { &*graph }.iter().map(|work| ask(*work)).max().unwrap_or(0);
    cuGraphDestroy() => 0;
    cuGraphExecDestroy() => 0;
    cuLaunchKernelEx(_config: *const c_void, function: *const c_char) => ask(Work::Kernel(function.addr()));
    cuMemFreeHost() => 0;
    cuMemcpyDtoDAsync_v2(_to: u64, _from: u64, bytes: usize) => ask(Work::Copy(8, bytes));
    cuMemcpyDtoHAsync_v2(_to: *mut c_void, _from: u64, bytes: usize) => ask(Work::Copy(2, bytes));
    cuMemcpyHtoDAsync_v2(_to: u64, _from: *const c_void, bytes: usize) => ask(Work::Copy(1, bytes));
    cuMemsetD8Async(_to: u64, _value: u8, bytes: usize) => ask(Work::Fill(bytes));

    nvrtcVersion(major: *mut c_int, minor: *mut c_int) => give(major, 13) + give(minor, 0);
    nvrtcGetNumSupportedArchs(count: *mut c_int) => give(count, 1);
    nvrtcGetSupportedArchs(architectures: *mut c_int) => give(architectures, setting("architecture", 90) as c_int);
    nvrtcCreateProgram(program: *mut *mut c_void) => give(program, ptr::dangling_mut());
    nvrtcCompileProgram() => 0;
    nvrtcDestroyProgram() => 0;
    nvrtcGetCUBINSize(_program: *mut c_void, bytes: *mut usize) => give(bytes, 1);
    nvrtcGetCUBIN(_program: *mut c_void, code: *mut u8) => give(code, 1);
    nvrtcGetProgramLogSize() => NEVER;
    nvrtcGetProgramLog() => NEVER;

    cuptiActivityRegisterCallbacks(request: Request, complete: Complete) => {
        STATE.lock().unwrap().callbacks = Some((request, complete));
        0
    };
    cuptiActivityEnable(kind: c_int) => {
        STATE.lock().unwrap().enabled.push(kind as u32);
        setting("cupti", 0) as c_int
    };
    cuptiActivityDisable(kind: c_int) => {
        STATE.lock().unwrap().enabled.retain(|enabled| *enabled != kind as u32);
        0
    };
    cuptiActivityFlushAll(_flag: u32) => flush();
    cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) => {
        // SAFETY: the place of a record, or of none.
        let next = unsafe { if (*record).is_null() { buffer } else { (*record).add(RECORD) } };
        if next.addr() < buffer.addr() + valid { give(record, next) } else { 12 }
    };
    cuptiActivityGetNumDroppedRecords(_context: *mut c_void, _stream: u32, dropped: *mut usize) => give(dropped, 0);
    cuptiGetResultString(_result: c_int, text: *mut *const c_char) => give(text, c"said by the fake".as_ptr());

    InitializeInjectionNvtx2(export: extern "C" fn(u32) -> *const Callbacks) => {
        let (mut table, mut size) = (ptr::null(), 0);
        // SAFETY: the table of callbacks, and the core's functions, of which two are filled in.
        unsafe {
            ((*export(1)).table)(1, &mut table, &mut size);
            **table.add(9) = push as *const c_void;
            **table.add(11) = pop as *const c_void;
        }
        c_int::from(size == 16)
    };
}

thread_local! {
    static DEVICE: Cell<u64> = const { Cell::new(0) };
}

/// What the GPU is asked to do.
#[derive(Clone, Copy)]
pub enum Work {
    /// A kernel, by the address of its name.
    Kernel(usize),
    /// A copy of a kind of CUPTI's.
    Copy(u8, usize),
    Fill(usize),
}

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

struct State {
    /// What is recorded, while a graph is.
    graph: Option<Vec<Work>>,
    callbacks: Option<(Request, Complete)>,
    enabled: Vec<u32>,
    records: Vec<[u64; RECORD / 8]>,
    clock: u64,
}

static STATE: Mutex<State> = Mutex::new(State { graph: None, callbacks: None, enabled: Vec::new(), records: Vec::new(), clock: 1000 });

/// Bytes of a record: as many as CUPTI 13's of a kernel has.
const RECORD: usize = 216;

fn ask(work: Work) -> c_int {
    let mut state = STATE.lock().unwrap();
    if let Some(graph) = &mut state.graph {
        graph.push(work);
        return 0;
    }
    let (start, mut record) = (state.clock, [0; RECORD / 8]);
    state.clock += 8;
    if setting("lost", u64::MAX) == DEVICE.get() && state.clock > 1000 + 8 * setting("after", 0) {
        return 719;
    }
    (record[2], record[3]) = (start, start + 10);
    match work {
        Work::Kernel(name) => (record[0], record[13]) = (10, name as u64),
        Work::Copy(kind, bytes) => (record[0], record[1]) = (1 | u64::from(kind) << 32, bytes as u64),
        Work::Fill(bytes) => (record[0], record[1]) = (2, bytes as u64),
    }
    if state.enabled.contains(&(record[0] as u32)) {
        state.records.push(record);
    }
    0
}

fn flush() -> c_int {
    let (records, callbacks) = {
        let mut state = STATE.lock().unwrap();
        (mem::take(&mut state.records), state.callbacks)
    };
    let Some((request, complete)) = callbacks else { return 1 };
    let (mut buffer, mut size, mut most) = (ptr::null_mut(), 0, 1);
    request(&mut buffer, &mut size, &mut most);
    assert!(most == 0 && size >= RECORD * records.len());
    // SAFETY: the buffer has room for the records.
    unsafe { buffer.cast::<[u64; RECORD / 8]>().copy_from_nonoverlapping(records.as_ptr(), records.len()) };
    complete(ptr::null_mut(), 0, buffer, size, RECORD * records.len());
    0
}

/// NVTX's table of callbacks.
#[repr(C)]
pub struct Callbacks {
    size: usize,
    table: extern "C" fn(c_int, *mut *const *mut *const c_void, *mut c_uint) -> c_int,
}

extern "C" fn push(label: *const c_char) -> c_int {
    // SAFETY: a range has a string.
    eprintln!("NVTX: {}", unsafe { CStr::from_ptr(label) }.to_str().unwrap());
    0
}

extern "C" fn pop() -> c_int {
    eprintln!("NVTX: end");
    0
}

#[cfg(not(incomplete))]
functions! {
    cuModuleLoadDataEx(module: *mut *mut c_void) => give(module, ptr::dangling_mut());
}
