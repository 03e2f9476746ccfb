//! Files made once and found again by the hash of what they were made from.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Arc, Once,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::error::{Error, Result};

/// A folder of files named by content hash. Several processes may share it.
///
/// What is found there is run, so only the user may write it. The first file that is kept has unfinished files of long ago removed, and those that were
/// used longest ago once all together exceed [`Cache::MAX_BYTES`].
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    tidied: Arc<Once>,
}

impl Cache {
    /// Bytes that files may take once the first of a process is kept.
    pub const MAX_BYTES: u64 = 2 << 30;

    /// The subfolder `part` of `folder`, else of `$ELINVAR_CACHE`, else of `elinvar` in the user's cache folder.
    ///
    /// # Errors
    /// It cannot be created; none is named, and the user has no folder.
    pub fn open(folder: Option<&Path>, part: &str) -> Result<Self> {
        let folder = folder.map_or_else(Self::default_folder, |folder| Ok(folder.to_owned()))?.join(part);
        fs::create_dir_all(&folder).map_err(|cause| cache_error("create", &folder, cause))?;
        let folder = folder.canonicalize().map_err(|cause| cache_error("find", &folder, cause))?;
        Ok(Self { folder, tidied: Arc::new(Once::new()) })
    }

    /// Where the files are if no folder is named: `$ELINVAR_CACHE`, else `elinvar` in the user's cache folder. That is `$XDG_CACHE_HOME`, else on Windows
    /// `%LOCALAPPDATA%` and on iOS the app's `Library/Caches`, else `.cache` at home, which the user's account names where `HOME` does not.
    ///
    /// # Errors
    /// Neither the environment nor the system names one.
    pub fn default_folder() -> Result<PathBuf> {
        folder_from(|variable| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from), env::home_dir())
    }

    /// Where the files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the file for `key` is or will be.
    pub fn path(&self, key: &CacheKey, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", key.0))
    }

    /// Where to make a file before it goes to its place; nothing else uses the name.
    pub fn scratch(&self, extension: &str) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.folder.join(format!("{UNFINISHED}{}-{}.{extension}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Moves a finished file to its place in one step.
    ///
    /// # Errors
    /// The system rejects.
    pub fn keep(&self, made: &Path, place: &Path) -> Result<()> {
        self.tidied.call_once(|| tidy(&self.folder, Self::MAX_BYTES, SystemTime::now()));
        fs::rename(made, place).map_err(|cause| cache_error("move a file to", place, cause))
    }

    /// Whether a sealed file is there and whole.
    pub fn is_sound(&self, place: &Path) -> bool {
        self.read_sealed(place).is_some()
    }

    /// A sealed file's content, if it is there and whole.
    pub fn read_sealed(&self, place: &Path) -> Option<Vec<u8>> {
        let mut bytes = fs::read(place).ok()?;
        let (content, seal) = bytes.split_last_chunk::<32>()?;
        let (sound, length) = (blake3::hash(content).as_bytes() == seal, content.len());
        bytes.truncate(length);
        sound.then_some(bytes)
    }

    /// Writes a file in one step, with its hash after the content.
    ///
    /// # Errors
    /// The system rejects.
    pub fn write_sealed(&self, place: &Path, mut bytes: Vec<u8>) -> Result<()> {
        bytes.extend_from_slice(blake3::hash(&bytes).as_bytes());
        self.write(place, &bytes)
    }

    /// Writes a whole file in one step.
    ///
    /// # Errors
    /// The system rejects.
    pub fn write(&self, place: &Path, bytes: &[u8]) -> Result<()> {
        let scratch = self.scratch("part");
        fs::write(&scratch, bytes).map_err(|cause| cache_error("write", &scratch, cause))?;
        self.keep(&scratch, place)
    }
}

/// [`Cache::default_folder`] in this environment, and with this home.
fn folder_from(variable: impl Fn(&str) -> Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf> {
    // What the account of a user that is none says.
    let home = home.filter(|home| home.is_absolute() && *home != Path::new("/nonexistent"));
    let in_home = |folder: &str| home.as_ref().map(|home| home.join(folder));
    let of_user = if cfg!(windows) {
        variable("LOCALAPPDATA").or_else(|| in_home("AppData/Local"))
    } else if cfg!(target_os = "ios") {
        // An app may write nowhere else, and the system removes what lies there when it lacks room.
        in_home("Library/Caches")
    } else {
        in_home(".cache")
    };
    let folder = variable("ELINVAR_CACHE").or_else(|| variable("XDG_CACHE_HOME").or(of_user).map(|folder| folder.join("elinvar")));
    let message = "no folder for compiled kernels: the user has no home folder; name a folder that only you can write in ELINVAR_CACHE";
    folder.ok_or_else(|| Error::io(message))
}

/// Removes unfinished files of more than a day before `now`, then those used longest ago until the others have `most` bytes. What the system rejects is
/// left for the next time.
fn tidy(folder: &Path, most: u64, now: SystemTime) {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(data) = entry.metadata() else { continue };
        let modified = data.modified().unwrap_or(now);
        let is_stale = now.duration_since(modified).is_ok_and(|age| age > DAY);
        match entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            true if is_stale => drop(fs::remove_file(entry.path())),
            true => {}
            false => files.push((data.accessed().unwrap_or(modified).max(modified), data.len(), entry.path())),
        }
    }
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, length, path) in files {
        if bytes <= most {
            break;
        }
        if fs::remove_file(path).is_ok() {
            bytes -= length;
        }
    }
}

/// What the names of files begin with that are being made.
const UNFINISHED: &str = "new-";

/// An error of the system's about a file, with what to do.
pub fn cache_error(action: &str, path: &Path, cause: std::io::Error) -> Error {
    let advice = if cause.kind() == ErrorKind::PermissionDenied { "; name a writable folder in ELINVAR_CACHE" } else { "" };
    Error::io(format!("cannot {action} {}: {cause}{advice}", path.display()))
}

/// The hash of everything a file is made from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey(String);

impl CacheKey {
    /// Of `parts`, in order.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().to_hex()[..32].to_owned())
    }

    /// As part of a file's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As part of another key.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_distinguish_parts() {
        let of = |parts: &[&str]| CacheKey::of(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
    }

    #[test]
    fn the_folder_is_the_one_named_or_the_user_s() {
        let of = |set: &[(&str, &str)], home: Option<&str>| {
            let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| PathBuf::from(value));
            folder_from(variable, home.map(PathBuf::from)).map_err(|error| error.to_string())
        };
        let root = if cfg!(windows) { "C:/" } else { "/" };
        let (home, local) = (format!("{root}me"), if cfg!(windows) { "AppData/Local" } else { ".cache" });
        assert_eq!(of(&[("ELINVAR_CACHE", "here"), ("XDG_CACHE_HOME", "there")], Some(&home)).unwrap(), Path::new("here"));
        assert_eq!(of(&[("XDG_CACHE_HOME", "there")], Some(&home)).unwrap(), Path::new("there/elinvar"));
        assert_eq!(of(&[], Some(&home)).unwrap(), Path::new(&home).join(local).join("elinvar"));
        for homeless in [None, Some(""), Some("/nonexistent")] {
            assert!(of(&[], homeless).unwrap_err().contains("ELINVAR_CACHE"));
        }
    }

    #[test]
    fn files_are_written_whole() {
        let folder = env::temp_dir().join(format!("elinvar-cache-test-{}", std::process::id()));
        let cache = Cache::open(Some(&folder), "part").unwrap();
        let place = cache.path(&CacheKey::of([b"x".as_slice()]), "bin");
        cache.write(&place, b"content").unwrap();
        assert_eq!(fs::read(&place).unwrap(), b"content");
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn old_files_make_room_and_unfinished_ones_do_not_stay() {
        let folder = env::temp_dir().join(format!("elinvar-tidy-test-{}", std::process::id()));
        let cache = Cache::open(Some(&folder), "part").unwrap();
        let now = SystemTime::now();
        for (name, hours) in [("new-1-1.part", 25), ("new-2-1.part", 23), ("a.so", 3), ("b.so", 2), ("c.so", 1)] {
            fs::write(cache.folder().join(name), [0; 100]).unwrap();
            let then = now - Duration::from_secs(3600 * hours);
            let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
            fs::File::options().write(true).open(cache.folder().join(name)).unwrap().set_times(times).unwrap();
        }
        tidy(cache.folder(), 200, now);
        let mut left: Vec<_> = fs::read_dir(cache.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["b.so", "c.so", "new-2-1.part"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_damaged_file_is_not_sound() {
        let folder = env::temp_dir().join(format!("elinvar-seal-test-{}", std::process::id()));
        let cache = Cache::open(Some(&folder), "part").unwrap();
        let place = cache.path(&CacheKey::of([b"x".as_slice()]), "so");
        cache.write_sealed(&place, b"library".to_vec()).unwrap();
        assert_eq!(cache.read_sealed(&place).unwrap(), b"library");
        let mut bytes = fs::read(&place).unwrap();
        bytes[2] ^= 1;
        fs::write(&place, bytes).unwrap();
        assert!(!cache.is_sound(&place));
        fs::remove_dir_all(&folder).unwrap();
    }
}
