//! From an address in a compiled kernel to a line of its source.

use std::path::{Path, PathBuf};

use addr2line::Loader;

use elinvar_msl::Location;

/// What line tables call the folder of the compiler's run, so that equal inputs give equal outputs anywhere.
pub(crate) const COMPILATION_FOLDER: &str = "/elinvar";
/// What line tables call the prelude's folder.
pub(crate) const PRELUDE_FOLDER: &str = "/elinvar-prelude";

/// The line tables of one compiled kernel library, read when first asked.
pub(crate) struct Symbols {
    path: PathBuf,
    loader: Option<Option<Loader>>,
}

impl Symbols {
    /// Of the library at `path`.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), loader: None }
    }

    /// The innermost line of the user's own source among the calls that lead to one of `addresses`, relative to the library and each
    /// just behind the instruction in question.
    pub(crate) fn line(&mut self, addresses: impl IntoIterator<Item = u64>) -> Option<Location> {
        addresses.into_iter().find_map(|address| self.user_line(address.saturating_sub(1)))
    }

    /// The tables, which are read now unless they were.
    pub(crate) fn read(&mut self) -> Option<&Loader> {
        self.loader.get_or_insert_with(|| Loader::new(&self.path).ok()).as_ref()
    }

    fn user_line(&mut self, probe: u64) -> Option<Location> {
        let mut frames = self.read()?.find_frames(probe).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let (Some(file), Some(line)) = (location.file, location.line) else { continue };
            if line != 0 && !Path::new(file).starts_with(PRELUDE_FOLDER) {
                let file = file.strip_prefix(COMPILATION_FOLDER).map_or(file, |rest| rest.trim_start_matches('/'));
                return Some(Location { file: file.into(), line });
            }
        }
        None
    }
}
