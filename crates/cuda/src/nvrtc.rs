//! NVRTC, the CUDA compiler as a library, loaded when asked for.

use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::ManuallyDrop,
    path::{Path, PathBuf},
    ptr,
};

use elinvar_core::{Error, Result};
use libloading::Library;

use crate::libraries::{self, functions};

type Status = c_int;
type Program = *mut c_void;

functions! {
    /// The library's functions, as `nvrtc.h` declares them; no version from 11.1 on has changed them.
    version = b"nvrtcVersion" (*mut c_int, *mut c_int);
    architecture_count = b"nvrtcGetNumSupportedArchs" (*mut c_int);
    architectures = b"nvrtcGetSupportedArchs" (*mut c_int);
    create = b"nvrtcCreateProgram" (*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    compile = b"nvrtcCompileProgram" (Program, c_int, *const *const c_char);
    destroy = b"nvrtcDestroyProgram" (*mut Program);
    cubin_size = b"nvrtcGetCUBINSize" (Program, *mut usize);
    cubin = b"nvrtcGetCUBIN" (Program, *mut c_char);
    log_size = b"nvrtcGetProgramLogSize" (Program, *mut usize);
    log = b"nvrtcGetProgramLog" (Program, *mut c_char);
}

/// The loaded compiler. It may compile on several threads at once.
pub(crate) struct Nvrtc {
    functions: Functions,
    version: [i32; 2],
    architectures: Vec<u32>,
    /// Never unloaded: it keeps state of its own until the process ends.
    _library: ManuallyDrop<Library>,
}

/// What to compile.
pub(crate) struct Request<'a> {
    /// What messages call it.
    pub(crate) name: &'a str,
    /// CUDA C++.
    pub(crate) text: &'a str,
    /// Headers by name.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// Options.
    pub(crate) options: &'a [String],
}

const ADVICE: &str = "install it (pip install nvidia-cuda-nvrtc, or the CUDA toolkit) or name its file in ELINVAR_NVRTC";

impl Nvrtc {
    /// The file that `ELINVAR_NVRTC` names, else the first that can be loaded.
    ///
    /// # Errors
    /// None; the message says how to get one.
    pub(crate) fn find() -> Result<Self> {
        if let Some(named) = env::var_os("ELINVAR_NVRTC").filter(|value| !value.is_empty()).map(PathBuf::from) {
            let rejected = |cause: String| Error::device_unavailable(format!("ELINVAR_NVRTC is {}: {cause}; {ADVICE}", named.display()));
            return Self::load(&named).map_err(rejected);
        }
        let mut failures = Vec::new();
        for candidate in libraries::candidates("nvrtc", libraries::TOOLKIT) {
            match Self::load(&candidate) {
                Ok(found) => return Ok(found),
                // A bare name that the loader does not know is no news.
                Err(cause) if candidate.is_absolute() => failures.push(format!("{}: {cause}", candidate.display())),
                Err(_) => {}
            }
        }
        let failures = if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
        Err(Error::device_unavailable(format!("no CUDA compiler library (NVRTC 12 or 13) was found{failures}: {ADVICE}")))
    }

    fn load(path: &Path) -> Result<Self, String> {
        if path.is_absolute() {
            load_builtins(path);
        }
        // SAFETY: the initialisers of NVIDIA's library have no conditions.
        let library = unsafe { Library::new(path) }.map_err(|cause| cause.to_string())?;
        let functions = Functions::of(&library).map_err(|cause| format!("it is no NVRTC: {cause}"))?;
        let (mut version, mut count) = ([0; 2], 0);
        let [major, minor] = &mut version;
        // SAFETY: the pointers are to integers that live through the calls.
        let status = unsafe { [(functions.version)(major, minor), (functions.architecture_count)(&mut count)] };
        let mut architectures = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: as many integers as the library said it writes.
        let listed = unsafe { (functions.architectures)(architectures.as_mut_ptr()) };
        if status != [0, 0] || listed != 0 {
            return Err("it does not report its version".into());
        }
        if version[0] < 12 {
            return Err(format!("it is version {}.{}: 12 or later is needed", version[0], version[1]));
        }
        let architectures = architectures.into_iter().filter_map(|a| u32::try_from(a).ok()).collect();
        Ok(Self { functions, version, architectures, _library: ManuallyDrop::new(library) })
    }

    /// Major and minor version.
    pub(crate) fn version(&self) -> [i32; 2] {
        self.version
    }

    /// Whether it makes code for a compute capability.
    ///
    /// # Errors
    /// It does not; the message says what to do.
    pub(crate) fn check_architecture(&self, capability: u32) -> Result<()> {
        if self.architectures.contains(&capability) {
            return Ok(());
        }
        let ([major, minor], range) = (self.version, (self.architectures.first(), self.architectures.last()));
        let range = if let (Some(first), Some(last)) = range { format!("sm_{first} to sm_{last}") } else { "none".into() };
        Err(Error::device_unavailable(format!(
            "NVRTC {major}.{minor} makes no code for this GPU (sm_{capability}; it knows {range}): install another version and name its file in ELINVAR_NVRTC"
        )))
    }

    /// Machine code, or what the compiler says.
    pub(crate) fn compile(&self, request: &Request<'_>) -> Result<Vec<u8>, String> {
        let string = |text: &str| CString::new(text).map_err(|_| format!("{}: a zero byte in the text", request.name));
        let strings = |texts: &mut dyn Iterator<Item = &str>| texts.map(string).collect::<Result<Vec<_>, _>>();
        let (text, name) = (string(request.text)?, string(request.name)?);
        let headers = strings(&mut request.headers.iter().map(|(_, text)| *text))?;
        let names = strings(&mut request.headers.iter().map(|(name, _)| *name))?;
        let options = strings(&mut request.options.iter().map(String::as_str))?;
        let (headers, names, options) = (pointers(&headers), pointers(&names), pointers(&options));
        let mut program = Made { nvrtc: self, raw: ptr::null_mut() };
        // SAFETY: the strings live through the call, and there are as many headers as names.
        let status = unsafe {
            (self.functions.create)(&mut program.raw, text.as_ptr(), name.as_ptr(), names.len() as c_int, headers.as_ptr(), names.as_ptr())
        };
        if status != 0 {
            return Err(format!("NVRTC rejects the text (error {status})"));
        }
        // SAFETY: the program was made above; the options live through the call.
        let status = unsafe { (self.functions.compile)(program.raw, options.len() as c_int, options.as_ptr()) };
        if status != 0 {
            let log = program.bytes(self.functions.log_size, self.functions.log).unwrap_or_default();
            let log = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned()).unwrap_or_default();
            return Err(if log.trim().is_empty() { format!("NVRTC error {status}") } else { log });
        }
        program.bytes(self.functions.cubin_size, self.functions.cubin).filter(|code| !code.is_empty()).ok_or_else(|| "NVRTC made no code".into())
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).collect()
}

/// A program of the compiler's.
struct Made<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl Made<'_> {
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> Status,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    ) -> Option<Vec<u8>> {
        let mut length = 0;
        // SAFETY: the program lives; the pointer is to an integer.
        if unsafe { size(self.raw, &mut length) } != 0 {
            return None;
        }
        let mut bytes = vec![0u8; length];
        // SAFETY: as many bytes as the library said it writes.
        (unsafe { get(self.raw, bytes.as_mut_ptr().cast()) } == 0).then_some(bytes)
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made by this library and destroyed once.
            unsafe { (self.nvrtc.functions.destroy)(&mut self.raw) };
        }
    }
}

/// Loads the library of built-in functions that lies beside NVRTC: it asks the loader for it by its bare name.
fn load_builtins(nvrtc: &Path) {
    let Some(folder) = nvrtc.parent() else { return };
    let beside = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let builtins = beside.filter(|file| file.file_name().to_str().is_some_and(|name| name.starts_with("libnvrtc-builtins.so.")));
    for file in builtins {
        // SAFETY: the initialisers of NVIDIA's library have no conditions. If it does not load, NVRTC says so itself when it compiles.
        if let Ok(library) = unsafe { Library::new(file.path()) } {
            std::mem::forget(library);
        }
    }
}
