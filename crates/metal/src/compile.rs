//! Pipelines, found again by what they are made from: in memory while they are held, and as machine code on disk.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use elinvar_core::{Cache, CacheKey, ConstantValue, Error, MetalCode, PipelineInfo, Result};

use crate::api::{Api, DeviceInfo, Kernel, LibrarySource};

/// A pipeline and what it says of itself.
pub(crate) struct Compiled<A: Api> {
    pipeline: Arc<A::Pipeline>,
    pub(crate) info: PipelineInfo,
    narrow: Option<Narrow<A>>,
}

/// What pipelines for larger threadgroups are made from, where the compiler's own choice of registers does not leave room for every threadgroup, and
/// those that were made, by their threads.
struct Narrow<A: Api> {
    library: A::Library,
    name: String,
    constants: Vec<(u32, ConstantValue)>,
    wider: Mutex<HashMap<usize, Arc<A::Pipeline>>>,
}

impl<A: Api> Compiled<A> {
    /// The pipeline for a threadgroup of so many threads: another one, with fewer registers for each, where this one cannot run so many.
    pub(crate) fn for_threads(&self, api: &A, threads: usize) -> Result<Arc<A::Pipeline>> {
        if threads <= self.info.max_threads {
            return Ok(self.pipeline.clone());
        }
        let rejected = |why: &str| {
            let most = self.info.max_threads;
            let message =
                format!("{threads} threads in a threadgroup: this device can run the kernel with at most {most}, for it needs many registers");
            Error::invalid_launch(format!("{message}{why}; launch fewer"))
        };
        let narrow = self.narrow.as_ref().ok_or_else(|| rejected(""))?;
        let mut wider = narrow.wider.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = wider.get(&threads) {
            return Ok(found.clone());
        }
        let kernel = Kernel { library: &narrow.library, name: &narrow.name, constants: &narrow.constants, threads: Some(threads) };
        let made = api.pipeline(kernel, None).map_err(|e| rejected(&format!(", and does not compile for more ({e})")))?;
        if api.pipeline_info(&made).max_threads < threads {
            return Err(rejected(", even when it is compiled for more"));
        }
        let made = Arc::new(made);
        wider.insert(threads, made.clone());
        Ok(made)
    }
}

/// A device's pipelines.
pub(crate) struct Pipelines<A: Api> {
    device: String,
    max_threads: usize,
    known: Mutex<HashMap<CacheKey, Weak<Compiled<A>>>>,
    archives: Option<Cache>,
}

impl<A: Api> Pipelines<A> {
    /// None yet, and none on disk.
    pub(crate) fn new(info: &DeviceInfo) -> Self {
        let device = format!("{}, {}, {}", info.name, info.system, env!("CARGO_PKG_VERSION"));
        Self { device, max_threads: info.max_threads, known: Mutex::default(), archives: None }
    }

    /// The same with machine code kept in the cache folder.
    pub(crate) fn with_archives(self, folder: Option<&Path>) -> Self {
        Self { archives: Cache::open(folder, "metal").ok(), ..self }
    }

    /// The pipeline of a text's kernel.
    pub(crate) fn get(&self, api: &A, source: LibrarySource<'_>, name: &str, constants: &[(u32, ConstantValue)]) -> Result<Arc<Compiled<A>>> {
        let how = format!("{name} {constants:?} {} {}", source.fast_math, source.version);
        let code = match source.code {
            MetalCode::Text(text) => text.as_bytes(),
            MetalCode::Library(library) => library.key().as_bytes(),
        };
        let key = CacheKey::of([self.device.as_bytes(), how.as_bytes(), code]);
        if let Some(found) = self.known().get(&key).and_then(Weak::upgrade) {
            return Ok(found);
        }
        let library = api.library(source)?;
        let pipeline = self.pipeline(api, Kernel { library: &library, name, constants, threads: None }, &key)?;
        let info = api.pipeline_info(&pipeline);
        if info.execution_width != 32 {
            return Err(Error::unsupported(format!("{name}: its simdgroups have {} threads, kernels need 32", info.execution_width)));
        }
        let narrow = || Narrow { library, name: name.to_owned(), constants: constants.to_vec(), wider: Mutex::default() };
        let made = Arc::new(Compiled { pipeline: Arc::new(pipeline), info, narrow: (info.max_threads < self.max_threads).then(narrow) });
        let mut known = self.known();
        known.retain(|_, compiled| compiled.strong_count() > 0);
        known.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<CacheKey, Weak<Compiled<A>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the kernel's archive on disk; one is made if there is none, or none that is of use. Without one the kernel is compiled all the same.
    fn pipeline(&self, api: &A, kernel: Kernel<'_, A::Library>, key: &CacheKey) -> Result<A::Pipeline> {
        let Some(cache) = &self.archives else { return api.pipeline(kernel, None) };
        let place = cache.path(key, "metalarchive");
        if place.exists()
            && let Ok(archive) = api.archive(Some(&place))
            && let Ok(pipeline) = api.pipeline(kernel, Some(&archive))
        {
            return Ok(pipeline);
        }
        let archive = api.archive(None).and_then(|archive| {
            api.add(&archive, kernel)?;
            Ok(archive)
        });
        if let Ok(archive) = &archive {
            let scratch = cache.scratch("metalarchive");
            // A full disk or a folder that cannot be written costs the next start its time, and nothing else.
            if api.save(archive, &scratch).and_then(|()| cache.keep(&scratch, &place)).is_err() {
                let _ = std::fs::remove_file(&scratch);
            }
        }
        api.pipeline(kernel, archive.ok().as_ref())
    }
}

/// A compiler's messages on one line: the first errors, each with its file and line, and how many there are more.
#[cfg_attr(not(target_vendor = "apple"), allow(dead_code, reason = "for Apple's compiler, whose messages it is tested on"))]
pub(crate) fn first_errors(messages: &str) -> String {
    const SHOWN: usize = 4;
    let errors: Vec<_> = messages.lines().filter(|line| line.contains(": error: ")).map(str::trim).collect();
    match errors.as_slice() {
        [] => messages.split_whitespace().collect::<Vec<_>>().join(" "),
        few if few.len() <= SHOWN => few.join("; "),
        [..] => format!("{} (and {} other errors)", errors[..SHOWN].join("; "), errors.len() - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_errors_are_reported_with_their_lines() {
        let messages = "Compilation failed: \n\nsoftmax/row.metal:7:3: error: unknown type name 'flot'\n  flot x;\n  ^\n\
                        softmax/row.metal:9:1: error: expected '}'\n";
        assert_eq!(first_errors(messages), "softmax/row.metal:7:3: error: unknown type name 'flot'; softmax/row.metal:9:1: error: expected '}'");
        let many: String = (1..=9).map(|line| format!("k.metal:{line}:1: error: no\n")).collect();
        assert!(first_errors(&many).ends_with("k.metal:4:1: error: no (and 5 other errors)"));
        assert_eq!(first_errors("no such\n  function"), "no such function");
    }
}
