//! A kernel on the device: compiled beside whatever asked for it, loaded, launched.

use std::{
    ffi::{CStr, CString, c_int, c_uint, c_void},
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::{
        Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUjit_option as JitOption};
use elinvar_core::{Dispatch, Error, Result};
use elinvar_msl::cuda::Threadgroups;

use crate::{
    compile::{Code, Slot},
    driver::Context,
};

/// What a pipeline of the device's is.
pub(crate) enum Kernel {
    /// A function.
    Function(Forms),
    /// A matrix product of the vendor's library.
    Product,
    /// An exchange with the devices of other processes, by the vendor's library.
    Gather,
}

/// A function for launches of threadgroups that are all of one size, and for others.
pub(crate) struct Forms {
    uniform: Arc<Pending<Function>>,
    /// Compiled when it is first asked for.
    nonuniform: LazyLock<Arc<Pending<Function>>, Begin>,
}

/// Begins to compile and load a function.
pub(crate) type Begin = Box<dyn FnOnce() -> Arc<Pending<Function>> + Send>;

impl Forms {
    /// Of which one is being compiled.
    pub(crate) fn new(uniform: Arc<Pending<Function>>, nonuniform: Begin) -> Self {
        Self { uniform, nonuniform: LazyLock::new(nonuniform) }
    }

    /// The form for such threadgroups, perhaps still being compiled.
    pub(crate) fn of(&self, threadgroups: Threadgroups) -> &Pending<Function> {
        match threadgroups {
            Threadgroups::Uniform => &self.uniform,
            Threadgroups::Nonuniform => &self.nonuniform,
        }
    }
}

/// What another thread compiles and loads.
pub(crate) struct Pending<T> {
    made: Mutex<Made<T>>,
    done: Condvar,
}

enum Made<T> {
    NotYet,
    /// Its code, which the device would not load: for want of memory, say, which may come back.
    Compiled(Code),
    Loaded(Arc<T>),
    Failed(Error),
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { made: Mutex::new(Made::NotYet), done: Condvar::new() }
    }
}

impl<T> Pending<T> {
    /// Makes it, and reports the outcome to the threads that wait, even if making it panics.
    pub(crate) fn make(&self, name: &str, compile: impl FnOnce() -> Result<Code>, load: impl Fn(&Code) -> Result<T>) {
        let made = panic::catch_unwind(AssertUnwindSafe(|| match compile() {
            Ok(code) => load(&code).map_or(Made::Compiled(code), |loaded| Made::Loaded(Arc::new(loaded))),
            Err(error) => Made::Failed(error),
        }));
        *self.made() = made.unwrap_or_else(|_| {
            Made::Failed(Error::compile_failed(format!("{name}: compiling or loading it panicked: this is a defect in Elinvar, please report it")))
        });
        self.done.notify_all();
    }

    /// The function, once it is made. One that could not be loaded is tried again.
    pub(crate) fn wait(&self, load: impl Fn(&Code) -> Result<T>) -> Result<Arc<T>> {
        let mut made = self.made();
        loop {
            match &*made {
                Made::NotYet => made = self.done.wait(made).unwrap_or_else(PoisonError::into_inner),
                Made::Compiled(code) => *made = Made::Loaded(Arc::new(load(code)?)),
                Made::Loaded(loaded) => return Ok(loaded.clone()),
                Made::Failed(error) => return Err(error.clone()),
            }
        }
    }

    fn made(&self) -> MutexGuard<'_, Made<T>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A function of a loaded module.
pub(crate) struct Function {
    context: Arc<Context>,
    module: sys::CUmodule,
    raw: sys::CUfunction,
    /// What the driver calls it.
    pub(crate) symbol: Arc<str>,
    arguments: Vec<Slot>,
    overlaps: bool,
    max_threads: usize,
    /// Bytes of dynamic shared memory it was last allowed.
    shared: AtomicUsize,
}

// SAFETY: modules and functions may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// What the driver's compiler says first, if it says anything.
fn first_line(log: &[u8]) -> Option<String> {
    let said = CStr::from_bytes_until_nul(log).ok()?.to_string_lossy().into_owned();
    said.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Dynamic shared memory that needs no permission.
const FREE_SHARED: usize = 48 << 10;

/// Percent of what a multiprocessor can have of shared memory that kernels prefer which may begin before others have ended: all the same, since a multiprocessor
/// whose memory is divided again has to be empty. So much holds two of attention's thread blocks, and leaves a cache for what products have in flight.
const SHARED_SHARE: c_int = 71;

impl Function {
    /// Loads the only kernel of `code`.
    pub(crate) fn load(context: &Arc<Context>, code: &Code) -> Result<Self> {
        let Some(entry) = code.entries.first() else { return Err(Error::compile_failed("no kernel in the code")) };
        context.enter()?;
        let mut module = ptr::null_mut();
        let mut log = [0u8; 1024];
        let mut options = [JitOption::CU_JIT_ERROR_LOG_BUFFER, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
        // SAFETY: the context is current; the image is machine code, which says itself how long it is, or text with a zero at its end, and the driver
        // checks it. As many options as values; the log is as long as they say.
        let loaded = unsafe {
            sys::cuModuleLoadDataEx(&mut module, code.image.as_ptr().cast(), options.len() as c_uint, options.as_mut_ptr(), values.as_mut_ptr())
        };
        context.check("loading a kernel's code", loaded).map_err(|error| match first_line(&log) {
            Some(said) if error.is_compile_failed() => error.context(said),
            _ => error,
        })?;
        let (context, raw, shared) = (context.clone(), ptr::null_mut(), AtomicUsize::new(FREE_SHARED));
        let (name, arguments) = (entry.symbol.as_str().into(), entry.arguments.clone());
        let mut function = Self { context, module, raw, symbol: name, arguments, overlaps: entry.overlaps, max_threads: 0, shared };
        let symbol = CString::new(entry.symbol.as_str()).map_err(|_| Error::compile_failed("a zero byte in a kernel's symbol"))?;
        // SAFETY: the module is loaded; the name lives through the call.
        let found = unsafe { sys::cuModuleGetFunction(&mut function.raw, module, symbol.as_ptr()) };
        function.context.check(&format!("finding {}", symbol.to_string_lossy()), found)?;
        let mut threads: c_int = 0;
        // SAFETY: the function exists; the pointer is to a variable of ours.
        let status = unsafe { sys::cuFuncGetAttribute(&mut threads, Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function.raw) };
        function.context.check("asking for a kernel's limit", status)?;
        function.max_threads = usize::try_from(threads).unwrap_or(0);
        if function.overlaps {
            function.set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, SHARED_SHARE, "dividing a multiprocessor's memory")?;
        }
        Ok(function)
    }

    /// Starts it on a stream. `addresses` are those of the bindings; `rejection` is that of the launch's word; `overlaps` if it may begin before the
    /// launch ahead has ended.
    pub(crate) fn launch(
        &self,
        stream: sys::CUstream,
        dispatch: &Dispatch,
        addresses: &[sys::CUdeviceptr],
        rejection: sys::CUdeviceptr,
        overlaps: bool,
    ) -> Result<()> {
        let (grid, [width, height, depth]) = (dispatch.grid.threadgroups(dispatch.threadgroup), dispatch.threadgroup.0);
        check_grid(grid)?;
        if dispatch.threadgroup.count() > self.max_threads as u128 {
            let (threads, most) = (dispatch.threadgroup.count(), self.max_threads);
            return Err(Error::invalid_launch(format!("{threads} threads in a threadgroup: as compiled, the kernel allows {most}")));
        }
        let (shared, mut starts) = shared_memory(&dispatch.threadgroup_memory);
        self.allow_shared(shared)?;
        let starts = starts.as_mut_slice();
        let mut zero = 0u32;
        let counted = self.arguments.iter().any(|argument| matches!(argument, Slot::Threads));
        let mut threads = if counted { dispatch.grid.threads(dispatch.threadgroup)? } else { [0; 3] };
        let mut rejection = rejection;
        let mut values: Vec<*mut c_void> = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            values.push(match *argument {
                Slot::Buffer(index) => match addresses.get(index) {
                    Some(address) => ptr::from_ref(address).cast_mut().cast(),
                    None => return Err(Error::invalid_launch(format!("nothing is bound to buffer {index}"))),
                },
                Slot::Params => dispatch.params.as_ptr().cast_mut().cast(),
                Slot::ErrorFlag => ptr::from_mut(&mut rejection).cast(),
                Slot::Threadgroup(number) => starts.get_mut(number).map_or(ptr::from_mut(&mut zero), ptr::from_mut).cast(),
                Slot::Threads => ptr::from_mut(&mut threads).cast(),
            });
        }
        let mut overlap = overlapping();
        let config = sys::CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: width,
            blockDimY: height,
            blockDimZ: depth,
            sharedMemBytes: shared as u32,
            hStream: stream,
            attrs: &mut overlap,
            numAttrs: (self.overlaps && overlaps).into(),
        };
        // SAFETY: there is a value of the right size for each of the kernel's arguments, which the driver reads, as the configuration, before it returns;
        // the list's buffers live until the launch has completed in stream order; a kernel that overlaps waits for what ran before.
        let result = unsafe { sys::cuLaunchKernelEx(&config, self.raw, values.as_mut_ptr(), ptr::null_mut()) };
        self.context.check("starting it", result)
    }

    /// Starts a kernel whose arguments are two addresses on one threadgroup of `threads`.
    pub(crate) fn launch_between(&self, stream: sys::CUstream, mut addresses: [sys::CUdeviceptr; 2], threads: u32) -> sys::CUresult {
        let [one, two] = &mut addresses;
        let (mut values, mut overlap) = ([ptr::from_mut(one).cast(), ptr::from_mut(two).cast()], overlapping());
        let config = sys::CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream,
            attrs: &mut overlap,
            numAttrs: self.overlaps.into(),
        };
        // SAFETY: the kernel has two arguments of eight bytes, which the driver reads, as the configuration, before it returns; the caller answers for what is
        // there.
        unsafe { sys::cuLaunchKernelEx(&config, self.raw, values.as_mut_ptr(), ptr::null_mut()) }
    }

    fn allow_shared(&self, bytes: usize) -> Result<()> {
        if bytes <= self.shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.set(attribute, bytes as c_int, &format!("asking for {bytes} bytes of shared memory"))?;
        self.shared.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn set(&self, attribute: Attribute, value: c_int, doing: &str) -> Result<()> {
        // SAFETY: the function is loaded.
        self.context.check(doing, unsafe { sys::cuFuncSetAttribute(self.raw, attribute, value) })
    }
}

/// Lets a launch begin before the one ahead has ended.
fn overlapping() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

/// Bytes of dynamic shared memory for a launch's threadgroup memory, and where each argument starts. There are whole words of 16 bytes: the compiler loads
/// such a word where the text loads a part of it.
fn shared_memory(arguments: &[usize]) -> (usize, Vec<u32>) {
    const ALIGNMENT: usize = 16;
    let mut end = 0usize;
    let mut place = |&bytes: &usize| {
        let start = end;
        end += bytes.next_multiple_of(ALIGNMENT);
        start as u32
    };
    let starts = arguments.iter().map(&mut place).collect();
    (end, starts)
}

/// CUDA counts blocks along y and z in 16 bits.
fn check_grid(grid: [u32; 3]) -> Result<()> {
    const MOST: [u32; 3] = [i32::MAX as u32, 65535, 65535];
    if grid.iter().zip(&MOST).any(|(count, most)| count > most) {
        return Err(Error::unsupported(format!("a grid of {grid:?} threadgroups: a GPU of this kind allows {MOST:?}; split the batch")));
    }
    Ok(())
}

impl Drop for Function {
    fn drop(&mut self) {
        // A launch may still be running it; a lost device has nothing left to unload.
        if self.context.enter().is_ok() && self.context.synchronize().is_ok() {
            // SAFETY: loaded once, unloaded once, and used by nothing any more.
            unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_too_high_is_rejected() {
        assert!(check_grid([1 << 30, 65535, 1]).is_ok());
        let error = check_grid([1, 65536, 1]).unwrap_err();
        assert!(error.is_unsupported() && error.to_string().contains("65536"), "{error}");
    }

    #[test]
    fn threadgroup_memory_is_laid_out_in_order() {
        assert_eq!(shared_memory(&[]), (0, vec![]));
        assert_eq!(shared_memory(&[100, 4, 32]), (160, vec![0, 112, 128]));
        assert_eq!(shared_memory(&[52]), (64, vec![0]));
    }

    #[test]
    fn waiting_threads_get_the_error() {
        let pending = Arc::new(Pending::<()>::default());
        let other = pending.clone();
        let waiting = std::thread::spawn(move || other.wait(|_| Ok(())));
        pending.make("it", || Err(Error::compile_failed("no such luck")), |_| Ok(()));
        assert!(waiting.join().unwrap().unwrap_err().is_compile_failed());
        assert!(pending.wait(|_| Ok(())).is_err());
    }

    #[test]
    fn waiting_threads_get_an_error_after_a_panic() {
        let code = || Ok(Code { image: vec![], entries: vec![] });
        let (compiled, loaded) = (Pending::<()>::default(), Pending::<()>::default());
        compiled.make("a", || panic!("while compiling"), |_| Ok(()));
        loaded.make("b", code, |_| panic!("while loading"));
        for pending in [compiled, loaded] {
            let error = pending.wait(|_| Ok(())).unwrap_err();
            assert!(error.is_compile_failed() && error.to_string().contains("panicked"), "{error}");
        }
    }

    #[test]
    fn what_could_not_be_loaded_is_tried_again() {
        let pending = Pending::default();
        let code = || Ok(Code { image: vec![7], entries: vec![] });
        let full = |_: &Code| Err(Error::out_of_memory("full"));
        pending.make("it", code, full);
        assert!(pending.wait(full).unwrap_err().is_out_of_memory());
        assert_eq!(*pending.wait(|code| Ok(code.image[0])).unwrap(), 7);
        assert_eq!(*pending.wait(full).unwrap(), 7);
    }
}
