//! Files as host memory.

use std::{fs::File, path::Path, sync::Arc};

use elinvar::{Error, ErrorKind, HostMemory, Result};
use memmap2::Mmap;

/// A file, mapped rather than read. It must not be changed while it is in use.
///
/// # Errors
/// It is not there, no regular file, or the system cannot map it.
pub(crate) fn map(path: &Path) -> Result<HostMemory> {
    let reject = |e| Error::with_source(ErrorKind::Io, format!("cannot open {}", path.display()), e);
    let file = File::open(path).map_err(reject)?;
    if !file.metadata().map_err(reject)?.is_file() {
        return Err(Error::io(format!("{} is not a regular file", path.display())));
    }
    // SAFETY: a map is sound while nobody truncates or writes the file, which the documentation asks of the user.
    let map = unsafe { Mmap::map(&file) }.map_err(reject)?;
    Ok(HostMemory::new(Arc::new(map)))
}
