//! Compiled libraries in this process.

use std::{
    ffi::{c_int, c_void},
    ops::Range,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use elinvar_core::{Error, Result};
use elinvar_msl::Location;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use crate::{
    abi::{Context, Entry},
    elf,
    symbols::Symbols,
};

/// A loaded library of kernels; unloaded with its last pipeline.
pub(crate) struct Loaded {
    library: Library,
    image: OnceLock<Image>,
    path: PathBuf,
    symbols: Mutex<Symbols>,
}

impl Loaded {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let library = load(path, RTLD_LOCAL)?;
        Ok(Self { library, image: OnceLock::new(), path: path.to_owned(), symbols: Mutex::new(Symbols::new(path)) })
    }

    /// The entry point of a kernel.
    pub(crate) fn entry(&self, symbol: &str) -> Result<Entry> {
        // SAFETY: entry points have this type; the pipeline that holds the pointer holds the library.
        let entry = unsafe { self.library.get::<Entry>(symbol.as_bytes()) }.map_err(|cause| damaged(&self.path, &cause))?;
        self.image.get_or_init(|| image(*entry as *const () as u64));
        Ok(*entry)
    }

    /// Reads the line tables now, as there may be no right to later. The addresses the library occupies.
    pub(crate) fn prepare(&self) -> Range<u64> {
        self.symbols.lock().unwrap_or_else(PoisonError::into_inner).read();
        self.range()
    }

    /// The addresses the library occupies.
    pub(crate) fn range(&self) -> Range<u64> {
        self.image.get().map_or(0..0, |image| image.range.clone())
    }

    /// The initialisers that have not run yet; the thread that takes them runs them before it releases the lock.
    pub(crate) fn initialisers(&self) -> Option<MutexGuard<'_, Vec<Entry>>> {
        self.image.get().map(|image| image.initialisers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The user's line for return addresses, innermost call first, relative to the library.
    pub(crate) fn line(&self, addresses: impl IntoIterator<Item = u64>) -> Option<Location> {
        self.symbols.lock().unwrap_or_else(PoisonError::into_inner).line(addresses)
    }
}

/// The runtime's library, which kernels call; it stays loaded.
pub(crate) struct Runtime {
    enter: unsafe extern "C" fn(*mut Context),
    _library: Library,
}

impl Runtime {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // Kernels call its functions. The loader finds them in what is already loaded.
        static MATH: OnceLock<Option<Library>> = OnceLock::new();
        MATH.get_or_init(|| load(Path::new("libm.so.6"), RTLD_GLOBAL).ok());
        let library = load(path, RTLD_LOCAL)?;
        // SAFETY: the runtime's source defines it so.
        let enter = unsafe { library.get::<unsafe extern "C" fn(*mut Context)>(b"elv_enter") }.map_err(|cause| damaged(path, &cause))?;
        let enter = *enter;
        Ok(Self { enter, _library: library })
    }

    /// Makes `context` the one that checks on this host thread refer to.
    ///
    /// # Safety
    /// It must stay valid until another is entered.
    pub(crate) unsafe fn enter(&self, context: *mut Context) {
        // SAFETY: promised by the caller.
        unsafe { (self.enter)(context) }
    }
}

fn load(path: &Path, scope: c_int) -> Result<Library> {
    // SAFETY: the files are compiled by this crate, and have no initialisers that the loader knows of.
    unsafe { Library::open(Some(path), RTLD_NOW | scope) }.map_err(|cause| damaged(path, &cause))
}

fn damaged(path: &Path, cause: &libloading::Error) -> Error {
    Error::compile_failed(format!("cannot load the compiled {}: {cause}", path.display()))
}

/// A library in memory.
#[derive(Default)]
struct Image {
    range: Range<u64>,
    initialisers: Mutex<Vec<Entry>>,
}

/// The loaded library that `address` lies in.
fn image(address: u64) -> Image {
    struct Search {
        address: u64,
        found: Image,
    }
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid object, and the pointer given below.
        let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
        // SAFETY: the object's own headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let high = segments.map(|header| info.dlpi_addr + header.p_vaddr + header.p_memsz).max().unwrap_or(0);
        let range = info.dlpi_addr..high;
        let here = range.contains(&search.address);
        if here {
            // SAFETY: the headers of this object, in which `address` lies: a kernel's entry.
            let initialisers = headers.iter().flat_map(|header| unsafe { elf::initialisers(info.dlpi_addr, header) }).collect();
            search.found = Image { range, initialisers: Mutex::new(initialisers) };
        }
        c_int::from(here)
    }
    let mut search = Search { address, found: Image::default() };
    // SAFETY: the callback gets what it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}
