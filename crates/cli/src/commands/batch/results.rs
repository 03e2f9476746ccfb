//! The answers of a batch: a line for each request, in the order of the requests, appended whole.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{BufRead, BufReader, Seek, SeekFrom, Write},
    iter::Peekable,
    path::{Path, PathBuf},
};

use elinvar::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::requests::Requests;

/// What came of a request, as a server would have answered it.
#[derive(Debug, Serialize)]
pub(super) struct Response {
    /// The status of HTTP.
    pub(super) status_code: u16,
    /// The request's.
    pub(super) request_id: String,
    /// The answer, or an error object.
    pub(super) body: Value,
}

/// A line of the output. The fields that say whose answer it is come first, so that a part of a line can be known.
#[derive(Debug, Serialize)]
pub(super) struct Answered {
    pub(super) id: String,
    pub(super) custom_id: String,
    pub(super) response: Response,
    /// Always null: what goes wrong with a request is in its response.
    pub(super) error: (),
}

impl Answered {
    /// Whether it is an error.
    pub(super) fn is_failed(&self) -> bool {
        self.response.status_code >= 400
    }
}

/// What is read of a line again.
#[derive(Deserialize)]
struct Written {
    id: String,
    response: Status,
}

#[derive(Deserialize)]
struct Status {
    status_code: u16,
}

/// The file of answers, which one process writes.
#[derive(Debug)]
pub(super) struct Results {
    path: PathBuf,
    file: File,
    /// Requests that were answered before.
    pub(super) answered: usize,
    /// Those of them that failed.
    pub(super) failed: usize,
}

impl Results {
    /// Opens or makes a file of answers, and passes over the requests that it answers already. A last line that was not written to its end is cut off.
    ///
    /// # Errors
    /// The file has anything but answers to these requests in their order; another process writes it; the system's.
    pub(super) fn open(path: &Path, requests: &mut Peekable<Requests>) -> Result<Self> {
        let reject = |e| Error::with_source(ErrorKind::Io, format!("cannot write results to {}", path.display()), e);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(reject)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::invalid_argument(format!(
                    "another process writes {}: wait for its end, or give another --output",
                    path.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(reject(e)),
        }
        let mut results = Self { path: path.to_owned(), file, answered: 0, failed: 0 };
        let whole = results.pass_over(requests)?;
        results.file.set_len(whole).map_err(reject)?;
        results.file.seek(SeekFrom::End(0)).map_err(reject)?;
        Ok(results)
    }

    /// Passes over requests that have answers. The bytes of whole lines.
    fn pass_over(&mut self, requests: &mut Peekable<Requests>) -> Result<u64> {
        let mut file = BufReader::with_capacity(1 << 16, &self.file);
        let (mut whole, mut answered, mut failed) = (0, 0, 0);
        let foreign = |line: usize| {
            Error::invalid_argument(format!(
                "{}, line {line}: not the answer to request {line} of the input: the input was changed, or the file has other results; give another --output",
                self.path.display()
            ))
        };
        loop {
            let mut line = Vec::new();
            let read = file.read_until(b'\n', &mut line);
            let read = read.map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", self.path.display()), e))?;
            if read == 0 {
                break;
            }
            let expected = match requests.peek() {
                Some(Ok(request)) => &request.id,
                Some(Err(error)) => return Err(error.clone()),
                None => return Err(foreign(answered + 1)),
            };
            if !line.ends_with(b"\n") {
                let start = format!("{{\"id\":\"{expected}\"");
                if line.iter().zip(start.as_bytes()).any(|(a, b)| a != b) {
                    return Err(foreign(answered + 1));
                }
                break;
            }
            let written: Written = serde_json::from_slice(&line).map_err(|_| foreign(answered + 1))?;
            if written.id != *expected {
                return Err(foreign(answered + 1));
            }
            requests.next();
            answered += 1;
            failed += usize::from(written.response.status_code >= 400);
            whole += read as u64;
        }
        (self.answered, self.failed) = (answered, failed);
        Ok(whole)
    }

    /// Appends an answer.
    ///
    /// # Errors
    /// The system's: a full disk.
    pub(super) fn write(&mut self, answer: &Answered) -> Result<()> {
        let mut line = serde_json::to_vec(answer).map_err(|e| Error::with_source(ErrorKind::Internal, "an answer as JSON", e))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| self.error(e))
    }

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn finish(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.error(e))
    }

    fn error(&self, cause: std::io::Error) -> Error {
        Error::with_source(ErrorKind::Io, format!("cannot write {}: run the command again to go on", self.path.display()), cause)
    }
}
