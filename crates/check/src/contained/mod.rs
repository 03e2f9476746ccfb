//! Other people's kernels run in a process of their own, which can be ended and may do little ([`elinvar_sim::confine`]); this one keeps the time and
//! takes what the other reports.

mod message;
mod watch;

use std::{
    collections::BTreeMap,
    ffi::c_int,
    fs::File,
    io::Read,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    process::ExitStatus,
    sync::OnceLock,
    time::Duration,
};

use elinvar_core::{Error, ErrorKind, Result};
use elinvar_sim::{Confinement, confine, running_threadgroup, system_call_name};

use message::{Inbox, Message};
use watch::Watch;

/// How often the parent looks whether the kernel goes on.
const TICK: Duration = Duration::from_millis(100);

/// What came of the work.
pub struct Outcome {
    /// The last report: also of work that did not end.
    pub report: String,
    /// What the work saved, by number.
    pub files: BTreeMap<u8, Vec<u8>>,
    /// What the work said at its end, or why it did not end.
    pub verdict: Result<bool>,
    /// Whether it was the kernel that ended its process, or had to be ended with it: the verdict says why.
    pub was_ended: bool,
}

/// The parent, as the child reaches it.
pub struct Parent(File);

impl Parent {
    /// Replaces what is reported so far.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn report(&mut self, text: String) -> Result<()> {
        self.send(&Message::Report(text))
    }

    /// Gives the parent the content of its file of this number.
    ///
    /// # Errors
    /// The parent is gone.
    pub fn save(&mut self, number: u8, bytes: Vec<u8>) -> Result<()> {
        self.send(&Message::File(number, bytes))
    }

    fn send(&mut self, message: &Message) -> Result<()> {
        message.write(&mut self.0).map_err(|cause| Error::io(format!("cannot report to the process that asked: {cause}")))
    }
}

/// Runs `work` on the kernels of `source` in a process of its own, which is ended when a threadgroup runs or waits for longer than `limit`.
///
/// # Errors
/// This process has a second thread, which the other one would lack, with whatever locks it holds; the system rejects a process.
pub fn run(source: &str, limit: Duration, work: impl FnOnce(&mut Parent) -> Result<bool>) -> Result<Outcome> {
    let rejected = |cause| Error::with_source(ErrorKind::Io, "cannot start a process for the kernel", cause);
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count());
    if threads > 1 {
        return Err(Error::internal(format!("a process with {threads} threads cannot start one for the kernel")));
    }
    let watch = Watch::new(running_threadgroup()?, limit);
    let (ours, theirs) = UnixStream::pair().map_err(rejected)?;
    let parent = std::process::id();
    // SAFETY: this process has one thread, so that the other one can do all that this one could.
    match unsafe { libc::fork() } {
        -1 => Err(rejected(std::io::Error::last_os_error())),
        0 => {
            drop(ours);
            child(Parent(File::from(OwnedFd::from(theirs))), parent, work)
        }
        process => {
            drop(theirs);
            Ok(Process(process).supervise(source, ours, watch))
        }
    }
}

/// Does the work and ends.
fn child(mut parent: Parent, parent_id: u32, work: impl FnOnce(&mut Parent) -> Result<bool>) -> ! {
    /// Where to say that a system call was denied.
    static REPORTS: OnceLock<RawFd> = OnceLock::new();
    fn denied(call: c_int) {
        if let Some(reports) = REPORTS.get() {
            let bytes = Message::denied(call);
            // SAFETY: writes those bytes; if nothing reads them any more, that changes nothing.
            unsafe { libc::write(*reports, bytes.as_ptr().cast(), bytes.len()) };
        }
    }
    let reports = parent.0.as_raw_fd();
    let _ = REPORTS.set(reports);
    own_group(parent_id);
    if !confine(Confinement { writable: [reports, libc::STDERR_FILENO], denied }) {
        eprintln!("warning: this system has no filter of system calls: native code in a kernel's text can do what you can");
    }
    let end = match work(&mut parent) {
        Ok(verdict) => Message::Verdict(verdict),
        Err(error) => Message::Failed(error),
    };
    // Nothing that the kernel may have left behind runs any more.
    let sent = parent.send(&end);
    // SAFETY: ends the process.
    unsafe { libc::_exit(c_int::from(sent.is_err())) }
}

/// Makes this process the first of a group that ends with its parent, without a core file or anything to read from.
fn own_group(parent: u32) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let nothing = File::open("/dev/null");
    // SAFETY: calls of the system on this process alone. What is rejected costs a way to end it sooner.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        if let Ok(nothing) = nothing {
            libc::dup2(nothing.as_raw_fd(), libc::STDIN_FILENO);
        }
        // The parent may have ended before its end could be a signal.
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
    }
}

/// A child process.
struct Process(libc::pid_t);

impl Process {
    /// Takes what the process reports until it ends, or is to be ended.
    fn supervise(self, source: &str, mut reports: UnixStream, mut watch: Watch) -> Outcome {
        let ended = |what: &str| Err(Error::invalid_launch(format!("{source}: the kernel {what}: its process was ended")));
        let mut inbox = Inbox::default();
        let (mut report, mut files) = (String::new(), BTreeMap::new());
        let stuck = reports.set_read_timeout(Some(TICK)).map_err(|cause| Error::io(format!("cannot wait for a report: {cause}")));
        let mut verdict = stuck.err().map(Err);
        let mut was_ended = false;
        let mut bytes = vec![0; 1 << 16];
        while verdict.is_none() {
            match reports.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => inbox.add(&bytes[..count]),
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
                Err(_) => break,
            }
            while let Some(message) = inbox.next() {
                match message {
                    Message::Report(text) => report = text,
                    Message::File(number, bytes) => drop(files.insert(number, bytes)),
                    Message::Verdict(found) => verdict = verdict.or(Some(Ok(found))),
                    Message::Failed(error) => verdict = Some(Err(error)),
                    Message::Denied(call) => {
                        let name = system_call_name(call);
                        was_ended = true;
                        verdict = Some(ended(&format!("made a system call ({name}), which no Metal kernel can")));
                    }
                }
            }
            if verdict.is_none() && watch.is_stuck(self.0) {
                let limit = watch.limit();
                was_ended = true;
                verdict = Some(ended(&format!("ran or waited for more than {limit:?} in one threadgroup")));
            }
        }
        let status = self.end();
        was_ended |= verdict.is_none();
        let verdict = verdict.unwrap_or_else(|| Err(Error::invalid_launch(format!("{source}: {}", without_a_word(status)))));
        Outcome { report, files, verdict, was_ended }
    }

    /// Ends the process, if it has not ended yet, with all it has started.
    fn end(self) -> ExitStatus {
        let mut status = 0;
        // SAFETY: a child of this process that nothing else waits for.
        unsafe {
            libc::kill(-self.0, libc::SIGKILL);
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, &raw mut status, 0) < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {}
        }
        ExitStatus::from_raw(status)
    }
}

/// Why a process has ended that did not say so.
fn without_a_word(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("the kernel ended its process (exit code {code})"),
        (_, Some(libc::SIGSYS)) => "the kernel made a system call, which no Metal kernel can: its process was ended".to_owned(),
        (_, Some(libc::SIGSEGV | libc::SIGBUS)) => "the kernel destroyed memory of its process, which crashed (SIGSEGV)".to_owned(),
        (_, Some(libc::SIGKILL)) => "the kernel's process was killed from outside: the system may lack memory".to_owned(),
        (_, signal) => format!("the kernel's process crashed (signal {})", signal.unwrap_or_default()),
    }
}
