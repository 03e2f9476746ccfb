//! Profiles: what the device was busy with, as a table and as a timeline.

mod phase;
mod table;
mod trace;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use elinvar::{DeviceKind, Error, ErrorKind, Executor, Result};

use phase::Phase;

use crate::{measure::memory_bandwidth, tensors, world};

/// Whether a profile is taken.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Profile the device: a table on standard error, and a timeline in FOLDER/trace.json for chrome://tracing and ui.perfetto.dev
    #[arg(long, value_name = "FOLDER")]
    profile: Option<PathBuf>,
}

impl ProfileArgs {
    /// The file for the timeline, which is empty now; none if no profile was asked for. To be called before anything runs.
    ///
    /// # Errors
    /// The folder or the file cannot be made or written.
    pub(crate) fn open(&self) -> Result<Option<PathBuf>> {
        let Some(folder) = &self.profile else { return Ok(None) };
        let folder = &world::own(folder)?;
        let rejected = |what: &PathBuf, cause| Error::with_source(ErrorKind::Io, format!("--profile: cannot write {}", what.display()), cause);
        fs::create_dir_all(folder).map_err(|cause| rejected(folder, cause))?;
        let file = folder.join("trace.json");
        File::create(&file).map_err(|cause| rejected(&file, cause))?;
        Ok(Some(file))
    }

    /// A profiler of a device, if a profile was asked for.
    ///
    /// # Errors
    /// As [`Profiler::new`].
    pub(crate) fn profiler(&self, executor: &Executor) -> Result<Option<Profiler>> {
        self.profile.is_some().then(|| Profiler::new(executor)).transpose()
    }
}

/// What was measured of the same work elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Tokens that it took or gave.
    pub(crate) tokens: Option<usize>,
    /// Seconds that it takes without a profile.
    pub(crate) unprofiled: Option<f64>,
}

/// Takes the profile of a run, part by part.
pub(crate) struct Profiler {
    executor: Executor,
    /// Bytes per second that the device's memory gives, and what that is.
    bandwidth: Option<(f64, &'static str)>,
    phases: Vec<Phase>,
    since: Instant,
}

impl Profiler {
    /// Of a device, whose memory bandwidth is measured now. Nothing is timed yet.
    ///
    /// # Errors
    /// The device cannot time its commands here.
    fn new(executor: &Executor) -> Result<Self> {
        executor.device().start_profile()?;
        executor.device().end_profile()?;
        let simulated = executor.properties().kind == DeviceKind::MetalSim;
        let bandwidth = if simulated { None } else { Some(memory_bandwidth(executor)?) };
        executor.pool().clear();
        Ok(Self { executor: executor.clone(), bandwidth, phases: Vec::new(), since: Instant::now() })
    }

    /// Times what is submitted from now on.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.executor.device().start_profile()?;
        self.since = Instant::now();
        Ok(())
    }

    /// Waits for the device: what was timed since [`Profiler::begin`] is a part of the run.
    pub(crate) fn end(&mut self, name: impl Into<String>, known: Known) -> Result<()> {
        let wall = self.since.elapsed().as_secs_f64();
        let events = self.executor.device().end_profile()?;
        self.phases.push(Phase { name: name.into(), events, wall, tokens: known.tokens, unprofiled: known.unprofiled });
        Ok(())
    }

    /// The tables.
    pub(crate) fn tables(&self) -> String {
        table::tables(self.executor.properties(), self.bandwidth, &self.phases)
    }

    /// The timeline.
    pub(crate) fn trace(&self) -> Vec<u8> {
        trace::trace(self.executor.properties(), &self.phases).to_string().into_bytes()
    }
}

/// Prints the tables and writes the timeline, if a profile was asked for.
pub(crate) fn finish(profiler: Option<Profiler>, file: Option<&Path>) -> Result<()> {
    let (Some(profiler), Some(file)) = (profiler, file) else { return Ok(()) };
    tensors::write_bytes(file, &profiler.trace())?;
    eprintln!("{}\ntimeline: {}", profiler.tables(), file.display());
    Ok(())
}

/// Profiles `work` as one part, if there is a profiler.
pub(crate) fn profiled<T>(profiler: &mut Option<Profiler>, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(profiler) = profiler else { return work() };
    profiler.begin()?;
    let done = work()?;
    profiler.end(name, Known::default())?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_written_is_rejected() {
        let folder = std::env::temp_dir().join(format!("elinvar-profile-{}", std::process::id()));
        let open = |folder: &std::path::Path| ProfileArgs { profile: Some(folder.to_owned()) }.open();
        let file = open(&folder.join("deep")).unwrap().unwrap();
        assert_eq!((fs::read(&file).unwrap(), file.clone()), (vec![], folder.join("deep/trace.json")));
        let error = open(&file).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--profile: cannot write {}", file.display())), "{error}");
        assert!(ProfileArgs { profile: None }.open().unwrap().is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}
