//! Exchanges with the GPUs of other processes, by NVIDIA's library, NCCL: `nccl.h` of versions 2.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::PathBuf,
    ptr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use cudarc::driver::sys;
use elinvar_core::{Dispatch, Error, Peers, Result};
use libloading::Library;

use crate::{
    driver::Context,
    libraries::{self, functions},
};

type Status = c_int;

/// `ncclUniqueId`: a name for what is to come.
#[derive(Clone, Copy)]
#[repr(C)]
struct Name([c_char; 128]);

functions! {
    /// Of `nccl.h`.
    name = b"ncclGetUniqueId" (*mut Name);
    join = b"ncclCommInitRank" (*mut *mut c_void, c_int, Name, c_int);
    gather = b"ncclAllGather" (*const c_void, *mut c_void, usize, c_int, *mut c_void, sys::CUstream);
    abort = b"ncclCommAbort" (*mut c_void);
}

/// `ncclUint8`.
const BYTES: c_int = 1;

struct Nccl {
    functions: Functions,
    describe: unsafe extern "C" fn(Status) -> *const c_char,
    _library: Library,
}

impl Nccl {
    /// The library, which is loaded once.
    fn find() -> Result<&'static Self> {
        static FOUND: OnceLock<Result<Nccl>> = OnceLock::new();
        FOUND.get_or_init(|| Self::load(libraries::candidates("nccl", &["2"]))).as_ref().map_err(Clone::clone)
    }

    /// The first of these files that is the library.
    fn load(candidates: Vec<PathBuf>) -> Result<Self> {
        for candidate in candidates {
            // SAFETY: the initialisers of NVIDIA's library have no conditions.
            let Ok(library) = (unsafe { Library::new(candidate) }) else { continue };
            let functions = Functions::of(&library);
            // SAFETY: the type is that of the header.
            let describe = unsafe { library.get(b"ncclGetErrorString") }.map(|function| *function);
            if let (Ok(functions), Ok(describe)) = (functions, describe) {
                return Ok(Self { functions, describe, _library: library });
            }
        }
        Err(Error::device_unavailable(
            "GPUs of several processes exchange by NCCL, and libnccl.so.2 was not found: pip install nvidia-nccl-cu13, or put it on LD_LIBRARY_PATH",
        ))
    }

    fn check(&self, what: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: a string of the library's own.
        let why = unsafe { CStr::from_ptr((self.describe)(status)) }.to_string_lossy();
        Err(Error::device_lost(format!("NCCL: {what}: {why}; NCCL_DEBUG=WARN has it say more")))
    }
}

/// A device's place among those of other processes. It lasts as long as this process, unless it is given up: to end it would wait for the others.
pub(crate) struct Communicator {
    nccl: &'static Nccl,
    /// None once it was given up.
    raw: Mutex<Option<Raw>>,
}

#[derive(Clone, Copy)]
struct Raw(*mut c_void);

// SAFETY: a handle that any thread may pass to the library.
unsafe impl Send for Raw {}

impl Communicator {
    /// Joins the devices of `peers`, which do so, too.
    pub(crate) fn join(context: &Arc<Context>, peers: &dyn Peers) -> Result<Self> {
        let found = Nccl::find();
        let missing = found.as_ref().err().map_or_else(String::new, ToString::to_string);
        let missing = peers.all_gather(missing.as_bytes())?.into_iter().enumerate().find(|(_, missing)| !missing.is_empty());
        if let Some((rank, missing)) = missing {
            return Err(Error::device_unavailable(format!("rank {rank}: {}", String::from_utf8_lossy(&missing))));
        }
        let (nccl, [rank, ranks]) = (found?, peers.place().map(|number| number as c_int));
        let mut name = Name([0; 128]);
        if rank == 0 {
            // SAFETY: the pointer is to a variable of ours.
            nccl.check("finding an address", unsafe { (nccl.functions.name)(&mut name) })?;
        }
        let names = peers.all_gather(&name.0.map(|byte| byte as u8))?;
        let first = names.first().and_then(|name| <[u8; 128]>::try_from(&name[..]).ok());
        let name = Name(first.ok_or_else(|| Error::internal("the name of a communicator has another size"))?.map(|byte| byte as c_char));
        // Joining waits for the others, which may end instead.
        let (sender, joined) = mpsc::channel();
        let context = context.clone();
        let join = move || {
            let mut raw = ptr::null_mut();
            let done = context.enter().and_then(|()| {
                // SAFETY: the device's context is current; the pointer is to a variable of ours.
                nccl.check("joining the other GPUs", unsafe { (nccl.functions.join)(&mut raw, ranks, name, rank) })
            });
            sender.send(done.map(|()| Raw(raw))).ok();
        };
        thread::Builder::new().name("elinvar-nccl".into()).spawn(join).map_err(|e| Error::io(format!("no thread for NCCL: {e}")))?;
        loop {
            match joined.recv_timeout(Duration::from_millis(50)) {
                Ok(raw) => return Ok(Self { nccl, raw: Mutex::new(Some(raw?)) }),
                Err(RecvTimeoutError::Timeout) => peers.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::internal("a thread ended before it had joined other GPUs")),
            }
        }
    }

    /// Gathers the first buffer of every rank, side by side, into the second, in the order of the stream.
    pub(crate) fn gather(&self, stream: sys::CUstream, dispatch: &Dispatch, addresses: &[sys::CUdeviceptr]) -> Result<()> {
        let (&[part, whole], Some(Some(binding))) = (addresses, dispatch.bindings.first()) else {
            return Err(Error::invalid_launch("a gather binds a part and the whole"));
        };
        let raw = *self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Raw(raw)) = raw else { return Err(gone()) };
        // SAFETY: both buffers live until the exchange has completed in stream order; the whole has room for the parts of all, as the plan made it.
        let status = unsafe { (self.nccl.functions.gather)(part as *const c_void, whole as *mut c_void, binding.bytes(), BYTES, raw, stream) };
        self.nccl.check("gathering", status)
    }
}

fn gone() -> Error {
    Error::device_lost("another process of this job is gone: start all of them again")
}

impl elinvar_core::Joined for Communicator {
    fn abort(&self) {
        // Taken, so that it is given up once.
        if let Some(Raw(raw)) = self.raw.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // SAFETY: the handle was in use until now; what waits in it ends.
            unsafe { (self.nccl.functions.abort)(raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_library_is_passed_over_and_a_missing_one_named_with_its_remedy() {
        let error = Nccl::load(vec!["/dev/null".into(), env!("CARGO_MANIFEST_DIR").into()]).err().unwrap();
        assert!(error.is_device_unavailable() && error.to_string().contains("libnccl.so.2 was not found: pip install nvidia-nccl-cu13"), "{error}");
    }
}
