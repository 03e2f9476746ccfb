//! Files and folders that are there as a whole or not at all: written beside their place, and renamed.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use elinvar::{Error, ErrorKind, Result};

/// What is written beside `path`, and removed unless it was renamed.
struct Beside<'a> {
    path: &'a Path,
    at: PathBuf,
}

impl<'a> Beside<'a> {
    fn new(path: &'a Path) -> Result<Self> {
        let name = path.file_name().ok_or_else(|| Error::invalid_argument(format!("'{}' names no file", path.display())))?;
        let at = path.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        Ok(Self { path, at })
    }

    fn error(&self, cause: io::Error) -> Error {
        Error::with_source(ErrorKind::Io, format!("cannot write {}", self.path.display()), cause)
    }

    fn finish(&self) -> Result<()> {
        fs::rename(&self.at, self.path).map_err(|e| self.error(e))
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        // One of the two fails; after a rename both do.
        let _ = fs::remove_file(&self.at);
        let _ = fs::remove_dir_all(&self.at);
    }
}

/// Removes from a folder what processes left that were ended while they wrote a file of it. No other process may write there.
///
/// # Errors
/// The system's.
pub(crate) fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(".part") && path.is_file() {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Streams what `body` writes into a file, which takes the place of one that is there. After an error nothing has changed.
///
/// # Errors
/// `body`'s, or the system's: a full disk, no permission.
pub(crate) fn write_file(path: &Path, body: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let beside = Beside::new(path)?;
    if path.is_dir() {
        return Err(Error::invalid_argument(format!("cannot write {}: it is a folder", path.display())));
    }
    let mut file = BufWriter::with_capacity(1 << 20, File::create_new(&beside.at).map_err(|e| beside.error(e))?);
    body(&mut file)?;
    let file = file.into_inner().map_err(|e| beside.error(e.into_error()))?;
    file.sync_all().map_err(|e| beside.error(e))?;
    drop(file);
    beside.finish()
}

/// A new folder with what `body` puts into the one it is given. After an error there is none.
///
/// # Errors
/// As [`write_file`], or there is something at `path`.
pub(crate) fn write_folder(path: &Path, body: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Err(Error::invalid_argument(format!("{} exists: give the name of a new folder", path.display())));
    }
    let beside = Beside::new(path)?;
    fs::create_dir(&beside.at).map_err(|e| beside.error(e))?;
    body(&beside.at)?;
    beside.finish()
}
