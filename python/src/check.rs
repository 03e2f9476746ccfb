//! The helper process of `elinvar.check`: it takes a request from its standard input and answers to its standard output.
//!
//! A kernel runs in a process that is forked, confined and watched ([`elinvar_check::contained`]). A fork is sound only where the process has one thread, and a
//! Python process may have any number: NumPy's, a device's, the user's own. So `elinvar.check` never forks. It starts a new interpreter that imports this
//! library and nothing else, which starts no thread; that one calls [`serve_check`], which forks.

use std::io::{Write, stdin, stdout};

use elinvar::{Error, Result};
use elinvar_check::{Outcome, Request, check};
use pyo3::{PyResult, Python, pyfunction};
use serde_json::json;

use crate::errors::raise;

/// Reads a request from standard input, checks, and writes the answer to standard output: the length of its JSON as u64, the JSON, and the buffers' bytes.
/// `parent` is the process that asked; this one ends with it.
#[pyfunction]
pub(crate) fn serve_check(py: Python<'_>, parent: i32) -> PyResult<()> {
    end_with(parent);
    let answer = Request::read(&mut stdin().lock()).and_then(|request| check(&request));
    py.detach(|| send(answer)).map_err(raise)
}

/// Has the system end this process, and with it the kernel's, when the process that asked is gone.
fn end_with(parent: libc::pid_t) {
    // SAFETY: calls of the system on this process alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // It may have ended before its end could be a signal.
        if libc::getppid() != parent {
            libc::_exit(1);
        }
    }
}

fn send(answer: Result<Outcome>) -> Result<()> {
    let failed = |cause: std::io::Error| Error::io(format!("cannot answer the process that asked: {cause}"));
    let error = |error: Error| json!({ "kind": format!("{:?}", error.kind()), "message": error.to_string() });
    let (report, error, buffers, was_ended) = match answer {
        Ok(Outcome { report, buffers, verdict, was_ended }) => (Some(report), verdict.err().map(error), buffers, was_ended),
        Err(cause) => (None, Some(error(cause)), Vec::new(), false),
    };
    let lengths: Vec<_> = buffers.iter().map(Vec::len).collect();
    let header = json!({ "report": report, "error": error, "ended": was_ended, "buffers": lengths }).to_string();
    let mut to = stdout().lock();
    to.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    to.write_all(header.as_bytes()).map_err(failed)?;
    buffers.iter().try_for_each(|bytes| to.write_all(bytes)).and_then(|()| to.flush()).map_err(failed)
}
