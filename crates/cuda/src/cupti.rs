//! CUPTI, which has the GPU's own times of kernels and copies, loaded when a profile is asked for. It is one for the whole process, and so is what is here.

use std::{
    collections::{BTreeSet, HashMap},
    env,
    ffi::{CStr, c_char, c_int, c_void},
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    ptr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use elinvar_core::{Error, Result};
use libloading::Library;

use crate::libraries::{self, functions};

type Status = c_int;
type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

functions! {
    /// The library's functions, as `cupti_activity.h` and `cupti_result.h` declare them; no version from 12.0 to 13.0 has changed them.
    register = b"cuptiActivityRegisterCallbacks" (Requested, Completed);
    enable = b"cuptiActivityEnable" (c_int);
    disable = b"cuptiActivityDisable" (c_int);
    flush = b"cuptiActivityFlushAll" (u32);
    next = b"cuptiActivityGetNextRecord" (*mut u8, usize, *mut *const u32);
    dropped = b"cuptiActivityGetNumDroppedRecords" (*mut c_void, u32, *mut usize);
    describe = b"cuptiGetResultString" (c_int, *mut *const c_char);
}

/// Kinds of records (`CUpti_ActivityKind`): copies, fills, and kernels without making them wait for each other.
const KINDS: [c_int; 3] = [MEMCPY as c_int, MEMSET as c_int, CONCURRENT_KERNEL as c_int];
const MEMCPY: u32 = 1;
const MEMSET: u32 = 2;
const CONCURRENT_KERNEL: u32 = 10;

/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FORCED: u32 = 1;

/// How a kernel's record begins: the same in `CUpti_ActivityKernel9` of CUPTI 12.0 and in the latest of 13.0, which have grown at the end.
#[repr(C)]
struct KernelRecord {
    kind: u32,
    cache: [u32; 3],
    start: u64,
    end: u64,
    completed: u64,
    device: u32,
    launch: [u32; 12],
    correlation: u32,
    grid: i64,
    name: *const c_char,
    reserved: [u64; 4],
    node: u64,
}

/// How the record of a copy (`CUpti_ActivityMemcpy5`) or a fill (`CUpti_ActivityMemset4`) begins.
#[repr(C)]
struct TransferRecord {
    kind: u32,
    /// A copy's kind in the first byte; a fill's value.
    detail: [u8; 4],
    bytes: u64,
    start: u64,
    end: u64,
    device: u32,
    context: u32,
    stream: u32,
    correlation: u32,
}

/// What the GPU did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A kernel by its symbol.
    Kernel(Arc<str>),
    /// A copy of so many bytes.
    Copy(Direction, u64),
    /// A fill of so many bytes.
    Fill(u64),
}

/// Where a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    FromHost,
    ToHost,
    Within,
}

/// A record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) what: What,
    /// The driver's number of the device.
    pub(crate) device: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// The number of the call that asked for it, and that of the graph's node where a graph did.
    pub(crate) asked: (u32, u64),
}

/// The loaded library.
pub(crate) struct Cupti {
    functions: Functions,
    file: PathBuf,
    /// Never unloaded: it has hooks in the driver until the process ends.
    _library: ManuallyDrop<Library>,
}

/// Records that have arrived.
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// The devices whose records are kept.
static PROFILED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

static FOUND: OnceLock<Result<Cupti>> = OnceLock::new();

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What has arrived of a device; the others' stays.
fn arrived(device: u32) -> Vec<Record> {
    records().extract_if(.., |record| record.device == device).collect()
}

fn profiled() -> MutexGuard<'static, BTreeSet<u32>> {
    PROFILED.lock().unwrap_or_else(PoisonError::into_inner)
}

const ADVICE: &str = "install it in the driver's version (pip install nvidia-cuda-cupti, or the CUDA toolkit) or name its file in ELINVAR_CUPTI";

impl Cupti {
    /// The file that `ELINVAR_CUPTI` names, else the first that can be loaded.
    ///
    /// # Errors
    /// None; the message says how to get one.
    pub(crate) fn find() -> Result<&'static Self> {
        FOUND.get_or_init(Self::search).as_ref().map_err(Error::clone)
    }

    fn search() -> Result<Self> {
        let named = env::var_os("ELINVAR_CUPTI").filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut failures = Vec::new();
        for candidate in named.clone().map_or_else(|| libraries::candidates("cupti", libraries::TOOLKIT), |file| vec![file]) {
            match Self::load(&candidate) {
                Ok(found) => return Ok(found),
                // A bare name that the loader does not know is no news.
                Err(cause) if candidate.is_absolute() || named.is_some() => failures.push(format!("{}: {cause}", candidate.display())),
                Err(_) => {}
            }
        }
        let failures = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
        Err(Error::device_unavailable(format!("a profile on an NVIDIA GPU needs CUPTI 12 or 13, and none was found{failures}: {ADVICE}")))
    }

    fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: the initialisers of NVIDIA's library have no conditions.
        let library = unsafe { Library::new(path) }.map_err(|cause| cause.to_string())?;
        let functions = Functions::of(&library).map_err(|cause| format!("it is no CUPTI: {cause}"))?;
        let cupti = Self { functions, file: path.to_owned(), _library: ManuallyDrop::new(library) };
        // SAFETY: the callbacks live as long as the process.
        cupti.check("registering callbacks", unsafe { (cupti.functions.register)(requested, completed) }).map_err(|e| e.to_string())?;
        Ok(cupti)
    }

    /// Keeps records of a device from now on; what was kept of it before is dropped. Nothing runs on it.
    ///
    /// # Errors
    /// The library rejects: it does not fit the driver, or another profiler uses it.
    pub(crate) fn start(&self, device: u32) -> Result<()> {
        let mut profiled = profiled();
        // SAFETY: calls without conditions.
        KINDS.into_iter().try_for_each(|kind| self.check("starting", unsafe { (self.functions.enable)(kind) }))?;
        // SAFETY: as above.
        self.check("asking for its records", unsafe { (self.functions.flush)(FORCED) })?;
        profiled.insert(device);
        records().retain(|record| record.device != device && profiled.contains(&record.device));
        Ok(())
    }

    /// Keeps no more of a device; what was kept of it since the start. Nothing runs on it any more.
    ///
    /// # Errors
    /// The library rejects, or says that it has lost records.
    pub(crate) fn end(&self, device: u32) -> Result<Vec<Record>> {
        let mut profiled = profiled();
        // SAFETY: calls without conditions.
        let flushed = unsafe { (self.functions.flush)(FORCED) };
        profiled.remove(&device);
        let ended = match profiled.is_empty() {
            // SAFETY: as above, for each kind.
            true => KINDS.map(|kind| unsafe { (self.functions.disable)(kind) }),
            false => [0; KINDS.len()],
        };
        let records = arrived(device);
        self.check("asking for its records", flushed)?;
        ended.into_iter().try_for_each(|status| self.check("ending", status))?;
        let mut dropped = 0;
        // SAFETY: no context means all; the pointer is to a variable of ours.
        self.check("asking for what it lost", unsafe { (self.functions.dropped)(ptr::null_mut(), 0, &mut dropped) })?;
        if dropped > 0 {
            return Err(Error::device_lost(format!("CUPTI has lost {dropped} records: profile a shorter run")));
        }
        Ok(records)
    }

    fn check(&self, what: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: the pointer is to a variable of ours; on success it is to a static string.
        let said = (unsafe { (self.functions.describe)(status, &mut text) } == 0 && !text.is_null())
            .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        let (file, said) = (self.file.display(), said.unwrap_or_default());
        Err(Error::device_unavailable(format!(
            "CUPTI ({file}): {what}: {said} (error {status}): it must fit the driver, and serve no other profiler meanwhile"
        )))
    }
}

/// Words of a buffer of records.
const WORDS: usize = 1 << 19;

/// Gives CUPTI a buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let memory: Box<[u64]> = vec![0; WORDS].into_boxed_slice();
    // SAFETY: CUPTI passes places for the three. No limit to the number of records.
    unsafe {
        *buffer = Box::into_raw(memory).cast();
        *size = WORDS * size_of::<u64>();
        *most = 0;
    }
}

/// Takes a buffer back, with records.
unsafe extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, size: usize, valid: usize) {
    if buffer.is_null() || size != WORDS * size_of::<u64>() {
        return;
    }
    // SAFETY: one of the buffers that `requested` gave, which CUPTI is done with.
    let memory = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), WORDS)) };
    let Some(Ok(cupti)) = FOUND.get() else { return };
    let (mut record, mut names, mut arrived) = (ptr::null(), HashMap::new(), Vec::new());
    // SAFETY: the buffer lives until the end of this function; `record` is null or the record before.
    while valid > 0 && unsafe { (cupti.functions.next)(buffer, valid, &mut record) } == 0 && !record.is_null() {
        // SAFETY: a record of the buffer, which begins with its kind.
        arrived.extend(unsafe { read(record, &mut names) });
    }
    records().extend(arrived);
    drop(memory);
}

/// A record, if it is of one of the kinds asked for.
///
/// # Safety
/// `record` is a record of CUPTI's, complete and alive.
unsafe fn read(record: *const u32, names: &mut HashMap<*const c_char, Arc<str>>) -> Option<Record> {
    // SAFETY: every record begins with its kind; what is read is where all records of the kind have it.
    unsafe {
        match record.read_unaligned() {
            CONCURRENT_KERNEL => {
                let kernel = record.cast::<KernelRecord>().read_unaligned();
                let name = names
                    .entry(kernel.name)
                    .or_insert_with(|| if kernel.name.is_null() { Arc::from("") } else { CStr::from_ptr(kernel.name).to_string_lossy().into() });
                let asked = (kernel.correlation, kernel.node);
                Some(Record { what: What::Kernel(name.clone()), device: kernel.device, start_ns: kernel.start, end_ns: kernel.end, asked })
            }
            kind @ (MEMCPY | MEMSET) => {
                let TransferRecord { detail, bytes, start, end, device, correlation, .. } = record.cast::<TransferRecord>().read_unaligned();
                let direction = match detail[0] {
                    1 => Direction::FromHost,
                    2 => Direction::ToHost,
                    _ => Direction::Within,
                };
                let what = if kind == MEMCPY { What::Copy(direction, bytes) } else { What::Fill(bytes) };
                Some(Record { what, device, start_ns: start, end_ns: end, asked: (correlation, 0) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_device_takes_its_own_records() {
        let of = |device, start_ns| Record { what: What::Fill(8), device, start_ns, end_ns: start_ns + 1, asked: (0, 0) };
        records().extend([of(7, 10), of(8, 11), of(7, 12)]);
        let starts = |device| arrived(device).iter().map(|record| record.start_ns).collect::<Vec<_>>();
        assert_eq!([starts(7), starts(7), starts(8)], [vec![10, 12], vec![], vec![11]]);
    }

    /// As a C compiler says of the headers of CUPTI 12.1 and 13.0.
    #[test]
    fn records_are_read_where_cupti_writes_them() {
        let kernel = [
            offset_of!(KernelRecord, start),
            offset_of!(KernelRecord, end),
            offset_of!(KernelRecord, device),
            offset_of!(KernelRecord, correlation),
            offset_of!(KernelRecord, name),
            offset_of!(KernelRecord, node),
        ];
        assert_eq!(kernel, [16, 24, 40, 92, 104, 144]);
        let transfer = [
            offset_of!(TransferRecord, detail),
            offset_of!(TransferRecord, bytes),
            offset_of!(TransferRecord, start),
            offset_of!(TransferRecord, end),
            offset_of!(TransferRecord, device),
            offset_of!(TransferRecord, correlation),
        ];
        assert_eq!(transfer, [4, 8, 16, 24, 32, 44]);
    }
}
