use std::{
    borrow::Cow,
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use elinvar::{Error, ErrorKind, HostMemory, Result};
use serde::de::DeserializeOwned;

use crate::{gguf::Gguf, map::Mapped};

/// Where a model's files are: `config.json`, `model.safetensors`, `tokenizer.json` and so on, as Hugging Face lays them out, or one GGUF file.
#[derive(Clone, Debug)]
pub enum ModelFiles {
    /// A folder on disk.
    Folder(PathBuf),
    /// A GGUF file, which holds everything, and no files by name.
    Gguf(Arc<Gguf>),
    /// Files compiled into the program.
    Embedded {
        /// What error messages call them.
        name: &'static str,
        /// Names and contents.
        files: &'static [(&'static str, &'static [u8])],
    },
}

/// The largest text file that is read: tokenizers take tens of megabytes.
const MAX_TEXT_BYTES: u64 = 256 << 20;

impl ModelFiles {
    /// The folder at `path`, or the GGUF file.
    ///
    /// # Errors
    /// There is neither, or the file is damaged or none of GGUF.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        if path.exists() {
            return Gguf::open(path).map(|file| Self::Gguf(Arc::new(file)));
        }
        Err(Error::io(format!(
            "{} does not exist: give a GGUF file, or the folder that holds config.json, model.safetensors and tokenizer.json",
            path.display()
        )))
    }

    /// How messages name a file.
    pub fn label(&self, name: &str) -> String {
        match self {
            Self::Folder(path) => path.join(name).display().to_string(),
            Self::Gguf(file) => file.label().to_owned(),
            Self::Embedded { name: model, .. } => format!("{model}/{name}"),
        }
    }

    /// Whether the file is there.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::Folder(path) => path.join(name).is_file(),
            Self::Gguf(_) => false,
            Self::Embedded { files, .. } => files.iter().any(|(n, _)| *n == name),
        }
    }

    /// A file's contents, or `None` if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or is too large for a text file.
    pub fn read(&self, name: &str) -> Result<Option<Cow<'static, [u8]>>> {
        match self {
            Self::Embedded { files, .. } => Ok(files.iter().find(|(n, _)| *n == name).map(|(_, bytes)| Cow::Borrowed(*bytes))),
            Self::Gguf(_) => Ok(None),
            Self::Folder(_) if !self.contains(name) => Ok(None),
            Self::Folder(path) => {
                let path = path.join(name);
                let reject = |e| Error::with_source(ErrorKind::Io, format!("cannot read {}", path.display()), e);
                let bytes = fs::metadata(&path).map_err(reject)?.len();
                if bytes > MAX_TEXT_BYTES {
                    return Err(Error::invalid_data(format!("{}: {bytes} bytes, at most {MAX_TEXT_BYTES} are read", path.display())));
                }
                fs::read(&path).map(|bytes| Some(Cow::Owned(bytes))).map_err(reject)
            }
        }
    }

    /// A JSON file, or `None` if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or is not the JSON that is expected.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::with_source(ErrorKind::InvalidData, self.label(name), e))
    }

    /// A file as host memory, mapped rather than read. It must not be changed while it is in use.
    ///
    /// # Errors
    /// It is not there, or the system cannot map it.
    pub fn map(&self, name: &str) -> Result<HostMemory> {
        match self {
            Self::Embedded { files, .. } => {
                let (_, bytes) = files.iter().find(|(n, _)| *n == name).ok_or_else(|| Error::io(format!("{}: no such file", self.label(name))))?;
                Ok(HostMemory::new(Arc::new(*bytes)))
            }
            Self::Folder(path) => Mapped::open(&path.join(name)).map(|file| file.memory()),
            Self::Gguf(file) => Err(file.reject(format!("it holds no file '{name}'"))),
        }
    }
}

impl fmt::Display for ModelFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            Self::Gguf(file) => f.write_str(file.label()),
            Self::Embedded { name, .. } => f.write_str(name),
        }
    }
}
