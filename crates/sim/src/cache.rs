//! Files made once and found again by the hash of what they were made from.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use elinvar_core::{Error, Result};

use crate::elf;

/// A folder of files named by content hash. Several processes may share it.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// `folder`, else `$ELINVAR_CACHE`, else `elinvar` in the user's cache folder, else in the temporary one.
    pub(crate) fn open(folder: Option<&Path>) -> Result<Self> {
        let folder = folder.map(Path::to_owned).unwrap_or_else(default_folder).join("sim");
        fs::create_dir_all(&folder).map_err(|cause| io("create", &folder, cause))?;
        let folder = folder.canonicalize().map_err(|cause| io("find", &folder, cause))?;
        Ok(Self { folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the file for `key` is or will be.
    pub(crate) fn path(&self, key: &Key, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", key.0))
    }

    /// Where to make a file before it goes to its place; nobody else uses the name.
    pub(crate) fn scratch(&self, extension: &str) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.folder.join(format!("new-{}-{}.{extension}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Moves a finished file to its place in one step.
    fn keep(&self, made: &Path, place: &Path) -> Result<()> {
        fs::rename(made, place).map_err(|cause| io("move a compiled kernel to", place, cause))
    }

    /// Hides a finished library's initialisers, appends its hash, which loaders ignore, and moves it to its place in one step.
    pub(crate) fn seal(&self, made: &Path, place: &Path) -> Result<()> {
        let mut bytes = fs::read(made).map_err(|cause| io("read", made, cause))?;
        elf::hide_initialisers(&mut bytes);
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        fs::write(made, bytes).map_err(|cause| io("write", made, cause))?;
        self.keep(made, place)
    }

    /// Whether a sealed file is there and whole.
    pub(crate) fn is_sound(&self, place: &Path) -> bool {
        let bytes = fs::read(place).unwrap_or_default();
        bytes.split_last_chunk::<32>().is_some_and(|(content, seal)| blake3::hash(content).as_bytes() == seal)
    }

    /// Writes a whole file in one step.
    pub(crate) fn write(&self, place: &Path, bytes: &[u8]) -> Result<()> {
        let scratch = self.scratch("part");
        fs::write(&scratch, bytes).map_err(|cause| io("write", &scratch, cause))?;
        self.keep(&scratch, place)
    }
}

fn default_folder() -> PathBuf {
    let from = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("ELINVAR_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|folder| folder.join("elinvar")))
        .or_else(|| from("HOME").map(|folder| folder.join(".cache/elinvar")))
        .unwrap_or_else(|| env::temp_dir().join("elinvar"))
}

pub(crate) fn io(action: &str, path: &Path, cause: std::io::Error) -> Error {
    let advice = if cause.kind() == ErrorKind::PermissionDenied { "; name a writable folder in ELINVAR_CACHE" } else { "" };
    Error::io(format!("cannot {action} {}: {cause}{advice}", path.display()))
}

/// The hash of everything a file is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// Of `parts`, in order.
    pub(crate) fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().to_hex()[..32].to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_parts_apart() {
        let of = |parts: &[&str]| Key::of(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    }

    #[test]
    fn files_are_written_whole() {
        let folder = env::temp_dir().join(format!("elinvar-cache-test-{}", std::process::id()));
        let cache = Cache::open(Some(&folder)).unwrap();
        let place = cache.path(&Key::of([b"x".as_slice()]), "bin");
        cache.write(&place, b"content").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"content");
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_not_sound() {
        let folder = env::temp_dir().join(format!("elinvar-seal-test-{}", std::process::id()));
        let cache = Cache::open(Some(&folder)).unwrap();
        let (made, place) = (cache.scratch("so"), cache.path(&Key::of([b"x".as_slice()]), "so"));
        fs::write(&made, b"library").unwrap();
        cache.seal(&made, &place).unwrap();
        assert!(cache.is_sound(&place));
        let mut bytes = fs::read(&place).unwrap();
        bytes[2] ^= 1;
        fs::write(&place, bytes).unwrap();
        assert!(!cache.is_sound(&place));
        fs::remove_dir_all(&folder).unwrap();
    }
}
