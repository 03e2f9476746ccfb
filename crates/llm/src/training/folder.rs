//! A folder in which one training keeps its adapter, its checkpoint and its log.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use elinvar::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::trainer::Trainer;
use crate::{
    adapter::{Adapter, read_arrays, write_arrays},
    whole::{remove_unfinished, write_file},
};

const LOCK: &str = ".lock";
const CHECKPOINT: &str = "checkpoint.safetensors";
const LOG: &str = "log.jsonl";
/// The checkpoint's note.
const NOTE: &str = "training";

/// A folder that this process alone trains in, until it is dropped or the process ends.
///
/// It holds the adapter as PEFT has it, `checkpoint.safetensors`, from which training goes on with the same bits, and `log.jsonl`. Each file is there as a whole;
/// a process that is ended while it writes leaves the ones before.
pub struct TrainingFolder {
    path: PathBuf,
    _lock: File,
}

impl TrainingFolder {
    /// Opens a folder, which is made if it is not there.
    ///
    /// # Errors
    /// Another process trains in it, or the system's: no permission, a full disk.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |e| Error::with_source(ErrorKind::Io, format!("cannot train in {}", path.display()), e);
        fs::create_dir_all(path).map_err(failed)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let shown = path.display();
                return Err(Error::invalid_argument(format!("another process trains in {shown}: wait for it, or give another folder")));
            }
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        // What a process left that was ended while it wrote.
        remove_unfinished(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether there is a checkpoint to go on from.
    pub fn has_checkpoint(&self) -> bool {
        self.file(CHECKPOINT).exists()
    }

    /// Writes the adapter and the checkpoint.
    ///
    /// # Errors
    /// The system's: a full disk, no permission. The files that were there are as before.
    pub fn save(&self, trainer: &Trainer) -> Result<()> {
        let adapter = trainer.adapter()?;
        let (optimizer, loss) = (trainer.optimizer().name(), trainer.minimised().to_string());
        let note = json!({ "steps": trainer.steps(), "optimizer": optimizer, "loss": loss, "adapter": adapter.config().to_json() });
        let arrays = trainer.arrays()?.into_iter().map(|(name, values)| (name, (vec![values.len()], values))).collect();
        write_arrays(&self.file(CHECKPOINT), &arrays, &BTreeMap::from([(NOTE.to_owned(), note.to_string())]))?;
        adapter.save(&self.path)
    }

    /// Goes on where the checkpoint was written.
    ///
    /// # Errors
    /// It is missing, damaged, or of another adapter, optimiser or loss.
    pub fn resume(&self, trainer: &mut Trainer) -> Result<()> {
        let path = self.file(CHECKPOINT);
        let (arrays, notes) = read_arrays(&path)?;
        let reject = |what: &str| Error::invalid_data(format!("{}: {what}", path.display()));
        let note: Value = notes.get(NOTE).and_then(|note| serde_json::from_str(note).ok()).ok_or_else(|| reject("it is no checkpoint"))?;
        let steps = note["steps"].as_u64().ok_or_else(|| reject("it does not say its step"))?;
        if note["adapter"] != trainer.adapter()?.config().to_json().as_str() {
            return Err(reject("it is of an adapter with other settings: give the same, or another folder"));
        }
        if note["optimizer"] != trainer.optimizer().name() {
            return Err(reject(&format!("its optimiser is {}, not {}", note["optimizer"], trainer.optimizer().name())));
        }
        let loss = trainer.minimised().to_string();
        // Checkpoints of older versions do not say their loss.
        if let Some(found) = note["loss"].as_str().filter(|found| *found != loss) {
            return Err(reject(&format!("its loss is {found}, not {loss}: give the same, or another folder")));
        }
        let arrays = arrays.into_iter().map(|(name, (_, values))| (name, values)).collect();
        trainer.restore(steps, &arrays).map_err(|e| e.context(path.display()))?;
        self.keep_log(steps)
    }

    /// The adapter that was saved last.
    ///
    /// # Errors
    /// As [`Adapter::open`].
    pub fn adapter(&self) -> Result<Adapter> {
        Adapter::open(&self.path)
    }

    /// Adds a line to the log.
    ///
    /// # Errors
    /// The system's.
    pub fn log(&self, line: &Value) -> Result<()> {
        let path = self.file(LOG);
        let failed = |e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        file.write_all(format!("{line}\n").as_bytes()).map_err(failed)
    }

    /// The lines of the log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn logged(&self) -> Result<Vec<Value>> {
        // The last line of a process that was ended may be half a line.
        Ok(self.log_text()?.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    fn log_text(&self) -> Result<String> {
        let path = self.file(LOG);
        match path.exists() {
            true => fs::read_to_string(&path).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", path.display()), e)),
            false => Ok(String::new()),
        }
    }

    /// Leaves of the log what came up to a step.
    ///
    /// # Errors
    /// The system's.
    pub fn keep_log(&self, steps: u64) -> Result<()> {
        let path = self.file(LOG);
        let text = self.log_text()?;
        let step = |line: &str| serde_json::from_str::<Value>(line).ok()?["step"].as_u64();
        let kept: String = text.lines().filter(|line| step(line).is_some_and(|step| step <= steps)).map(|line| format!("{line}\n")).collect();
        write_file(&path, |out| {
            out.write_all(kept.as_bytes()).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e))
        })
    }
}
