//! Where included files come from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::simulator::SYSTEM_HEADERS;

/// What an `#include` stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Included {
    /// A file: what messages call it, and its text.
    File(String, String),
    /// One of Metal's own headers: the line stays in the text, once, for Apple's compiler; a device's prelude declares what the header would.
    System,
}

/// What `#include` finds.
pub trait Includes {
    /// The file written as `name` (between quotes, or angle brackets) in the file called `from`.
    fn open(&self, name: &str, quoted: bool, from: &str) -> Option<Included>;

    /// Where it looks, for the message that a file was not found.
    fn searched(&self) -> String;
}

/// Metal's own headers and nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetalHeaders;

impl Includes for MetalHeaders {
    fn open(&self, name: &str, _quoted: bool, _from: &str) -> Option<Included> {
        SYSTEM_HEADERS.contains(&name).then_some(Included::System)
    }

    fn searched(&self) -> String {
        "Metal's own headers".to_owned()
    }
}

/// Files on disk, then [`MetalHeaders`]. A quoted file is looked for beside the one that includes it, then in `quoted`, then as others in `all`.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// For `#include "…"` only.
    pub quoted: Vec<PathBuf>,
    /// For every `#include`.
    pub all: Vec<PathBuf>,
}

impl Includes for Folders {
    fn open(&self, name: &str, quoted: bool, from: &str) -> Option<Included> {
        let beside = Path::new(from).parent().filter(|folder| !folder.as_os_str().is_empty());
        let own = beside.into_iter().chain(self.quoted.iter().map(PathBuf::as_path)).filter(|_| quoted);
        let mut places = own.chain(self.all.iter().map(PathBuf::as_path)).map(|folder| folder.join(name));
        let found = places.find_map(|path| path.is_file().then(|| fs::read(&path).ok()).flatten().map(|bytes| (path.display().to_string(), bytes)));
        match found {
            Some((path, bytes)) => {
                let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
                Some(Included::File(path, text))
            }
            None => MetalHeaders.open(name, quoted, from),
        }
    }

    fn searched(&self) -> String {
        let shown = |folders: &[PathBuf]| folders.iter().map(|folder| format!("{}, ", folder.display())).collect::<String>();
        format!("beside the file if quoted, {}{}{}", shown(&self.quoted), shown(&self.all), MetalHeaders.searched())
    }
}
