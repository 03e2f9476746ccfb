//! The driver as the device uses it: whether it is there, a device's context with its stream, and what its errors mean.

use std::{
    any::Any,
    collections::VecDeque,
    env,
    ffi::{CStr, c_char, c_int, c_void},
    fs,
    path::Path,
    ptr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};
use elinvar_core::{Error, KernelSource, Peers, Result};
use libloading::Library;

use crate::nccl::Communicator;

/// CUDA's version of the oldest driver whose functions suffice.
const OLDEST_DRIVER: i32 = 12000;

/// Every function of the driver's that is called. The bindings look for a function when it is first called, and panic if there is none.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetMemPool",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemPoolSetAccess",
    "cuMemPoolTrimTo",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// What the driver says of itself and its devices.
pub(crate) struct Driver {
    /// 13000 for CUDA 13.0.
    pub(crate) version: i32,
    pub(crate) devices: i32,
}

impl Driver {
    /// The driver, ready.
    ///
    /// # Errors
    /// It is missing or too old, or sees no device; the message says what to do.
    pub(crate) fn open() -> Result<Self> {
        let Some(library) = library() else {
            return Err(Error::device_unavailable("no NVIDIA driver (libcuda) was found: install one for CUDA 12 or later, or use another device"));
        };
        // SAFETY: the functions are not called.
        let lacks = |name: &str| unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err();
        if let Some(missing) = FUNCTIONS.iter().find(|name| lacks(name)) {
            return Err(Error::device_unavailable(format!("the NVIDIA driver has no {missing}: a driver for CUDA 12.0 or later is needed")));
        }
        let mut version = 0;
        // SAFETY: the library has this function.
        let status = unsafe { sys::cuDriverGetVersion(&mut version) };
        if status != CUresult::CUDA_SUCCESS || version < OLDEST_DRIVER {
            let found = if status == CUresult::CUDA_SUCCESS { shown(version) } else { "none".into() };
            return Err(Error::device_unavailable(format!("the NVIDIA driver offers CUDA {found}: a driver for CUDA 12.0 or later is needed")));
        }
        let mut devices = 0;
        // SAFETY: initialises the driver, then counts into an integer of ours.
        let result = unsafe { [sys::cuInit(0), sys::cuDeviceGetCount(&mut devices)] };
        match result.into_iter().find(|result| *result != CUresult::CUDA_SUCCESS) {
            Some(CUresult::CUDA_ERROR_NO_DEVICE) => devices = 0,
            Some(other) => return Err(Error::device_unavailable(format!("the NVIDIA driver does not start: {}", describe(other)))),
            None => {}
        }
        if devices == 0 {
            return Err(Error::device_unavailable(
                "the NVIDIA driver sees no GPU: pass one to this container or machine, and look at CUDA_VISIBLE_DEVICES",
            ));
        }
        Ok(Self { version, devices })
    }
}

/// The driver's library, loaded. The bindings find it by the same names, unless the program was linked with it.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let names: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so", "libcuda.so.1"] };
    // SAFETY: the initialisers of NVIDIA's library have no conditions.
    LIBRARY.get_or_init(|| names.iter().find_map(|name| unsafe { Library::new(*name) }.ok())).as_ref()
}

/// Whether there is an NVIDIA GPU, as far as the system reports, or a driver for one.
pub(crate) fn is_expected() -> bool {
    library().is_some() || has_gpu(Path::new("/sys/bus/pci/devices"))
}

/// Whether one of Linux's PCI devices is a display controller of NVIDIA's.
fn has_gpu(devices: &Path) -> bool {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|device| {
        let begins = |file: &str, with: &str| fs::read_to_string(device.join(file)).is_ok_and(|text| text.starts_with(with));
        begins("vendor", "0x10de") && begins("class", "0x03")
    })
}

/// A CUDA version number as people write it.
pub(crate) fn shown(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// What an error of the driver's is called.
fn describe(result: CUresult) -> String {
    let text = |get: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text = ptr::null();
        // SAFETY: on success the pointer is to a static string.
        (unsafe { get(result, &mut text) } == CUresult::CUDA_SUCCESS && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
    };
    match (text(sys::cuGetErrorString), text(sys::cuGetErrorName)) {
        (Some(said), Some(name)) => format!("{said} ({name})"),
        _ => format!("error {}", result as u32),
    }
}

/// Whether kernels of one device reach the memory of another.
///
/// # Errors
/// The driver rejects: there is no such device.
pub(crate) fn reaches([from, to]: [c_int; 2]) -> Result<bool> {
    let (mut devices, mut reaches) = ([0; 2], 0);
    let asked = |result: CUresult| match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(Error::device_unavailable(format!("CUDA devices {from} and {to}: {}", describe(other)))),
    };
    for (device, number) in devices.iter_mut().zip([from, to]) {
        // SAFETY: a driver that was opened is initialised; the pointer is to a variable of ours.
        asked(unsafe { sys::cuDeviceGet(device, number) })?;
    }
    // SAFETY: as above.
    asked(unsafe { sys::cuDeviceCanAccessPeer(&mut reaches, devices[0], devices[1]) })?;
    Ok(reaches != 0)
}

/// Errors after which the context answers every call with the same one.
fn is_sticky(result: CUresult) -> bool {
    use CUresult as R;
    matches!(
        result,
        R::CUDA_ERROR_ILLEGAL_ADDRESS
            | R::CUDA_ERROR_LAUNCH_FAILED
            | R::CUDA_ERROR_LAUNCH_TIMEOUT
            | R::CUDA_ERROR_ASSERT
            | R::CUDA_ERROR_HARDWARE_STACK_ERROR
            | R::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | R::CUDA_ERROR_MISALIGNED_ADDRESS
            | R::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | R::CUDA_ERROR_INVALID_PC
            | R::CUDA_ERROR_ECC_UNCORRECTABLE
            | R::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | R::CUDA_ERROR_DEVICE_UNAVAILABLE
            | R::CUDA_ERROR_DEINITIALIZED
            | R::CUDA_ERROR_SYSTEM_NOT_READY
            | R::CUDA_ERROR_NO_DEVICE
            | R::CUDA_ERROR_INVALID_DEVICE
            | R::CUDA_ERROR_UNKNOWN
    )
}

/// A stream that another library made on the device's primary context.
pub(crate) struct Lent {
    pub(crate) stream: *mut c_void,
    /// Keeps it alive.
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
}

/// A device's primary context and the streams of one backend on it.
pub(crate) struct Context {
    pub(crate) device: sys::CUdevice,
    raw: sys::CUcontext,
    stream: sys::CUstream,
    /// Whose stream that is, if it is not this context's.
    lender: Option<Arc<dyn Any + Send + Sync>>,
    /// Nothing ever runs on it: it records graphs.
    capture: sys::CUstream,
    events: Mutex<Vec<sys::CUevent>>,
    /// Kernels started since the last wait: one of them failed if the device does. Without their state, which belongs to this context and waits for it.
    suspects: Mutex<VecDeque<Arc<[Arc<KernelSource>]>>>,
    /// Each launch waits for its end (the driver's own debugging aid).
    blocking: bool,
    lost: OnceLock<Error>,
    watcher: Watcher,
    communicator: OnceLock<Arc<Communicator>>,
}

/// A thread that waits for events in the order of the stream, made when a callback is first asked for.
#[derive(Default)]
pub(crate) struct Watcher(Mutex<Option<mpsc::Sender<Watch>>>);

type Watch = Box<dyn FnOnce() + Send>;

impl Watcher {
    /// Has the thread do this after what it was given before.
    pub(crate) fn start(&self, watch: Watch) {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = match &*sender {
            Some(known) => known.send(watch).err().map(|unsent| unsent.0),
            None => Some(watch),
        };
        let Some(watch) = watch else { return };
        let (new, watches) = mpsc::channel::<Watch>();
        let watcher = thread::Builder::new().name("elinvar-completions".into());
        match watcher.spawn(move || watches.into_iter().for_each(|watch| watch())) {
            Ok(_) => {
                let _ = new.send(watch);
                *sender = Some(new);
            }
            // A system that gives no thread has the caller wait.
            Err(_) => watch(),
        }
    }
}

// SAFETY: contexts, streams and events may be used from any thread; calls go to the driver, which locks.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context of device `ordinal`, with a stream of its own unless one is lent.
    ///
    /// # Errors
    /// No such device; the driver rejects.
    pub(crate) fn open(driver: &Driver, ordinal: usize, lent: Option<Lent>) -> Result<Arc<Self>> {
        let number = c_int::try_from(ordinal).ok().filter(|number| *number < driver.devices);
        let Some(number) = number else {
            let devices = driver.devices;
            return Err(Error::device_unavailable(format!("there is no CUDA device {ordinal}: this machine has {devices}, counted from 0")));
        };
        let (mut device, mut raw) = (0, ptr::null_mut());
        let opened = |result: CUresult| match result {
            CUresult::CUDA_SUCCESS => Ok(()),
            other => Err(Error::device_unavailable(format!("CUDA device {ordinal} does not open: {}", describe(other)))),
        };
        // SAFETY: the driver is initialised; pointers are to variables of ours.
        opened(unsafe { sys::cuDeviceGet(&mut device, number) })?;
        // SAFETY: as above; the context is released when dropped.
        opened(unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        let mut context = Self {
            device,
            raw,
            stream: ptr::null_mut(),
            lender: None,
            capture: ptr::null_mut(),
            events: Mutex::default(),
            suspects: Mutex::default(),
            blocking: env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| value == "1"),
            lost: OnceLock::new(),
            watcher: Watcher::default(),
            communicator: OnceLock::new(),
        };
        if context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            return Err(Error::device_unavailable(format!("CUDA device {ordinal} has no stream-ordered memory: use another device")));
        }
        context.enter()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let (mut stream, mut capture) = (ptr::null_mut(), ptr::null_mut());
        match lent {
            Some(lent) => (stream, context.lender) = (lent.stream.cast(), Some(lent.owner)),
            // SAFETY: the context is current; pointers are to variables of ours.
            None => opened(unsafe { sys::cuStreamCreate(&mut stream, flags) })?,
        }
        context.stream = stream;
        // SAFETY: as above.
        opened(unsafe { sys::cuStreamCreate(&mut capture, flags) })?;
        context.capture = capture;
        Ok(Arc::new(context))
    }

    /// Joins the devices of other processes, once.
    pub(crate) fn join(self: &Arc<Self>, peers: &dyn Peers) -> Result<Arc<Communicator>> {
        let joined = Arc::new(Communicator::join(self, peers)?);
        match self.communicator.set(joined.clone()) {
            Ok(()) => Ok(joined),
            Err(_) => Err(Error::unsupported("this GPU is in a group of several processes already: open it again for another")),
        }
    }

    /// The device's place among those of other processes.
    pub(crate) fn communicator(&self) -> Result<&Communicator> {
        self.communicator.get().map(Arc::as_ref).ok_or_else(|| Error::internal("an exchange by a device that joined no others"))
    }

    /// What everything is ordered by.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.stream
    }

    /// What graphs are recorded on.
    pub(crate) fn capture(&self) -> sys::CUstream {
        self.capture
    }

    /// Makes the context this thread's.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn enter(&self) -> Result<()> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        // SAFETY: the context lives as long as `self`.
        self.check("making the context current", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// The result of a call of the driver's.
    ///
    /// # Errors
    /// What it was, for `what`; one that no later call survives is kept.
    pub(crate) fn check(&self, what: &str, result: CUresult) -> Result<()> {
        match result {
            CUresult::CUDA_SUCCESS => Ok(()),
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::out_of_memory(format!("{what}: the GPU's memory is full"))),
            sticky if is_sticky(sticky) => Err(self.lost.get_or_init(|| self.loss(what, sticky)).clone()),
            CUresult::CUDA_ERROR_INVALID_VALUE | CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES => {
                Err(Error::invalid_launch(format!("{what}: {}", describe(result))))
            }
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU | CUresult::CUDA_ERROR_INVALID_IMAGE | CUresult::CUDA_ERROR_INVALID_PTX => {
                Err(Error::compile_failed(format!("{what}: {}", describe(result))))
            }
            CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
                Err(Error::compile_failed(format!("{what}: the driver is older than what was compiled for it: one for CUDA 12.0 or later is needed")))
            }
            other => Err(Error::device_lost(format!("{what}: {}", describe(other)))),
        }
    }

    fn loss(&self, what: &str, result: CUresult) -> Error {
        const SHOWN: usize = 16;
        let mut names: Vec<_> = self.suspects().iter().flat_map(|kernels| kernels.iter()).map(|kernel| kernel.key.to_string()).collect();
        names.sort();
        names.dedup();
        let more = if names.len() > SHOWN { format!(" and {} others", names.len() - SHOWN) } else { String::new() };
        names.truncate(SHOWN);
        let among = match names.as_slice() {
            [] => String::new(),
            [one] => format!(" in {one}"),
            many => format!(" in one of {}{more} (with CUDA_LAUNCH_BLOCKING=1 this message names it)", many.join(", ")),
        };
        Error::device_lost(format!(
            "the GPU failed{among}: {}, found when {what}; nothing on it can be used any more: start a new process, or use another device",
            describe(result)
        ))
    }

    fn suspects(&self) -> MutexGuard<'_, VecDeque<Arc<[Arc<KernelSource>]>>> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kernels are about to be started.
    pub(crate) fn suspect(&self, kernels: Arc<[Arc<KernelSource>]>) {
        const REMEMBERED: usize = 64;
        let mut suspects = self.suspects();
        if suspects.len() == REMEMBERED {
            suspects.pop_front();
        }
        suspects.push_back(kernels);
    }

    /// One kernel is about to be started, and nothing else runs if each launch waits for its end.
    pub(crate) fn suspect_alone(&self, kernel: &Arc<KernelSource>) {
        if self.blocking {
            *self.suspects() = VecDeque::from([Arc::from([kernel.clone()])]);
        }
    }

    /// A number the device reports of itself.
    ///
    /// # Errors
    /// The driver rejects.
    pub(crate) fn attribute(&self, attribute: Attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the device exists; the pointer is to a variable of ours.
        self.check("asking for an attribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.device) })?;
        Ok(value)
    }

    /// The vendor's name for the device.
    ///
    /// # Errors
    /// The driver rejects.
    pub(crate) fn name(&self) -> Result<String> {
        let mut name = [0u8; 256];
        // SAFETY: the call gets the number of bytes, and ends them with zero.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, self.device) };
        self.check("asking for the name", result)?;
        Ok(CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Free and total memory in bytes.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn memory(&self) -> Result<[usize; 2]> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current; pointers are to variables of ours.
        self.check("asking for free memory", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok([free, total])
    }

    /// Blocks until everything submitted is done.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as `self`.
        self.check("waiting for the GPU", unsafe { sys::cuStreamSynchronize(self.stream) })?;
        self.suspects().clear();
        Ok(())
    }

    /// An event after everything submitted so far.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn record(self: &Arc<Self>) -> Result<Event> {
        self.record_on(self.stream)
    }

    /// What waits for events beside the callers.
    pub(crate) fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// An event after everything that a stream of the device was given so far.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn record_on(self: &Arc<Self>, stream: sys::CUstream) -> Result<Event> {
        let reused = self.events.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let raw = match reused {
            Some(raw) => raw,
            None => {
                let mut raw = ptr::null_mut();
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
                // SAFETY: the context is current; the pointer is to a variable of ours.
                self.check("making an event", unsafe { sys::cuEventCreate(&mut raw, flags) })?;
                raw
            }
        };
        let event = Event { context: self.clone(), raw };
        // SAFETY: both live.
        self.check("recording an event", unsafe { sys::cuEventRecord(raw, stream) })?;
        Ok(event)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Errors cannot be reported here; a lost context is torn down all the same.
        let own = if self.lender.is_none() { self.stream } else { ptr::null_mut() };
        // SAFETY: all that is destroyed was made by this context and is not used again; its lender keeps a stream alive that was not.
        unsafe {
            sys::cuCtxSetCurrent(self.raw);
            for event in self.events.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
                sys::cuEventDestroy_v2(event);
            }
            sys::cuStreamSynchronize(self.stream);
            for stream in [own, self.capture] {
                if !stream.is_null() {
                    sys::cuStreamDestroy_v2(stream);
                }
            }
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// A moment in the stream. It goes back to its context when dropped.
pub(crate) struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// The driver's.
    pub(crate) fn raw(&self) -> sys::CUevent {
        self.raw
    }

    /// Whether it has passed, or never will.
    pub(crate) fn is_past(&self) -> bool {
        // SAFETY: the event lives. The context need not be current.
        self.context.enter().is_err() || unsafe { sys::cuEventQuery(self.raw) } != CUresult::CUDA_ERROR_NOT_READY
    }

    /// Blocks until it has passed.
    ///
    /// # Errors
    /// The device is lost.
    pub(crate) fn wait(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the event lives.
        self.context.check("waiting for the GPU", unsafe { sys::cuEventSynchronize(self.raw) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.context.events.lock().unwrap_or_else(PoisonError::into_inner).push(self.raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_is_called_is_looked_for() {
        let mut called = Vec::new();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            for rest in text.split("::cu").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                called.extend(name.starts_with(char::is_uppercase).then(|| format!("cu{name}")));
            }
        }
        called.sort();
        called.dedup();
        assert_eq!(called, FUNCTIONS);
    }

    #[test]
    fn a_gpu_is_known_by_its_vendor_and_class() {
        let root = env::temp_dir().join(format!("elinvar-pci-{}", std::process::id()));
        let device = |name: &str, vendor: &str, class: &str| {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("vendor"), vendor).unwrap();
            fs::write(root.join(name).join("class"), class).unwrap();
        };
        assert!(!has_gpu(&root));
        device("0000:00:01.0", "0x8086\n", "0x030000\n");
        device("0000:00:02.0", "0x10de\n", "0x040300\n");
        assert!(!has_gpu(&root));
        device("0000:00:03.0", "0x10de\n", "0x030200\n");
        assert!(has_gpu(&root));
        fs::remove_dir_all(&root).unwrap();
    }
}
