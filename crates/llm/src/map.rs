//! Files as host memory.

use std::{fs::File, ops::Range, path::Path, sync::Arc};

use elinvar::{Error, ErrorKind, HostMemory, Result};
use memmap2::Mmap;

/// A file, mapped rather than read. It must not be changed while it is in use.
#[derive(Clone)]
pub(crate) struct Mapped(Arc<Mmap>);

impl Mapped {
    /// The file at `path`.
    ///
    /// # Errors
    /// It is not there, no regular file, or the system cannot map it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let reject = |e| Error::with_source(ErrorKind::Io, format!("cannot open {}", path.display()), e);
        let file = File::open(path).map_err(reject)?;
        if !file.metadata().map_err(reject)?.is_file() {
            return Err(Error::io(format!("{} is not a regular file", path.display())));
        }
        // SAFETY: a map is sound while nobody truncates or writes the file, which the documentation asks of the user.
        Ok(Self(Arc::new(unsafe { Mmap::map(&file) }.map_err(reject)?)))
    }

    pub(crate) fn memory(&self) -> HostMemory {
        HostMemory::new(self.0.clone())
    }

    /// Announces that these bytes will be read soon.
    pub(crate) fn announce(&self, range: &Range<usize>) {
        #[cfg(unix)]
        {
            let end = range.end.min(self.0.len());
            // Advice only.
            let _ = self.0.advise_range(memmap2::Advice::WillNeed, range.start.min(end), end.saturating_sub(range.start));
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Announces what follows these bytes.
    pub(crate) fn announce_after(&self, range: &Range<usize>) {
        const AHEAD: usize = 64 << 20;
        self.announce(&(range.end..range.end.saturating_add(AHEAD)));
    }

    /// Releases the memory that these bytes take here. They are read from the file again when something needs them.
    pub(crate) fn release(&self, range: &Range<usize>) {
        #[cfg(unix)]
        {
            let (start, end) = (range.start.min(self.0.len()), range.end.min(self.0.len()));
            // SAFETY: the map is of a file and is never written, so that its pages have what the file has, whenever they are read.
            // Advice only.
            let _ = unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end.saturating_sub(start)) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}
