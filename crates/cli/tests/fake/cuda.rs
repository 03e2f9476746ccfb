//! A CUDA driver and an NVRTC without a GPU behind them. `FAKE_CUDA` says what is wrong: a `version`, a result of `init` or of `allocate`, the number of
//! `devices`, the bytes `free`, or the `architecture` that the compiler knows; as `key=number`. What the compiler makes is a byte, which the driver loads;
//! nothing is ever launched.

#![allow(non_snake_case, clippy::missing_safety_doc, clippy::not_unsafe_ptr_arg_deref)]

use std::{
    env,
    ffi::{c_char, c_int, c_uint, c_void},
    ptr,
};

fn told(key: &str, otherwise: u64) -> u64 {
    let text = env::var("FAKE_CUDA").unwrap_or_default();
    text.split_once('=').filter(|(name, _)| *name == key).and_then(|(_, number)| number.parse().ok()).unwrap_or(otherwise)
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
    cuDriverGetVersion(version: *mut c_int) => give(version, told("version", 13000) as c_int);
    cuInit(_flags: c_uint) => told("init", 0) as c_int;
    cuDeviceGetCount(count: *mut c_int) => give(count, told("devices", 1) as c_int);
    cuGetErrorString(_result: c_int, text: *mut *const c_char) => give(text, c"said by the fake".as_ptr());
    cuGetErrorName(_result: c_int, text: *mut *const c_char) => give(text, c"FAKE".as_ptr());
    cuDeviceGet(device: *mut c_int, ordinal: c_int) => give(device, ordinal);
    cuDeviceGetName(name: *mut c_char, _length: c_int, _device: c_int) => give(name.cast(), *b"Fake\0");
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) => give(value, match attribute {
        75 => 9,
        76 => 0,
        _ => 100,
    });
    cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) => give(context, ptr::dangling_mut());
    cuDevicePrimaryCtxRelease_v2(_device: c_int) => 0;
    cuCtxSetCurrent(_context: *mut c_void) => 0;
    cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) => give(stream, ptr::dangling_mut());
    cuStreamDestroy_v2(_stream: *mut c_void) => 0;
    cuStreamSynchronize(_stream: *mut c_void) => 0;
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => give(free, told("free", 1 << 36) as usize) + give(total, 1 << 36);
    cuMemAllocAsync(memory: *mut u64, _bytes: usize, _stream: *mut c_void) => give(memory, 256) + told("allocate", 999) as c_int;
    cuMemFreeAsync(_memory: u64, _stream: *mut c_void) => 0;
    cuMemHostAlloc(_memory: *mut *mut c_void, _bytes: usize, _flags: c_uint) => told("allocate", 999) as c_int;
    cuDeviceGetMemPool(pool: *mut *mut c_void, _device: c_int) => give(pool, ptr::dangling_mut());
    cuMemPoolTrimTo(_pool: *mut c_void, _bytes: usize) => 0;
    cuModuleGetFunction(function: *mut *mut c_void) => give(function, ptr::dangling_mut());
    cuModuleUnload() => 0;
    cuFuncGetAttribute(value: *mut c_int) => give(value, 1024);
    cuEventCreate() => NEVER;
    cuEventDestroy_v2() => NEVER;
    cuEventQuery() => NEVER;
    cuEventRecord() => NEVER;
    cuEventSynchronize() => NEVER;
    cuFuncSetAttribute() => NEVER;
    cuGraphDestroy() => NEVER;
    cuGraphExecDestroy() => NEVER;
    cuGraphInstantiateWithFlags() => NEVER;
    cuGraphLaunch() => NEVER;
    cuLaunchKernel() => NEVER;
    cuLaunchKernelEx() => NEVER;
    cuMemFreeHost() => NEVER;
    cuMemcpyDtoDAsync_v2() => NEVER;
    cuMemcpyDtoHAsync_v2() => NEVER;
    cuMemcpyHtoDAsync_v2() => NEVER;
    cuMemsetD8Async() => NEVER;
    cuStreamBeginCapture_v2() => NEVER;
    cuStreamEndCapture() => NEVER;

    nvrtcVersion(major: *mut c_int, minor: *mut c_int) => give(major, 13) + give(minor, 0);
    nvrtcGetNumSupportedArchs(count: *mut c_int) => give(count, 1);
    nvrtcGetSupportedArchs(architectures: *mut c_int) => give(architectures, told("architecture", 90) as c_int);
    nvrtcCreateProgram(program: *mut *mut c_void) => give(program, ptr::dangling_mut());
    nvrtcCompileProgram() => 0;
    nvrtcDestroyProgram() => 0;
    nvrtcGetCUBINSize(_program: *mut c_void, bytes: *mut usize) => give(bytes, 1);
    nvrtcGetCUBIN(_program: *mut c_void, code: *mut u8) => give(code, 1);
    nvrtcGetProgramLogSize() => NEVER;
    nvrtcGetProgramLog() => NEVER;
}

#[cfg(not(incomplete))]
functions! {
    cuModuleLoadData(module: *mut *mut c_void) => give(module, ptr::dangling_mut());
}
