//! Several processes that run one command together, as `torchrun` starts them. The first prints and writes; the others say only why they fail.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

use elinvar::{BackendType, Error, ErrorKind, Place, Result, World};

static WORLD: OnceLock<World> = OnceLock::new();

/// The processes, if there are several.
pub(crate) fn world() -> Option<&'static World> {
    WORLD.get()
}

/// Meets the other processes, if the environment says that there are some.
pub(crate) fn enter() -> Result<()> {
    let Some(place) = Place::from_environment()? else { return Ok(()) };
    if place.rank == 0 {
        eprintln!("waiting for {} more of {} processes at {}:{}", place.world_size - 1, place.world_size, place.address, place.port);
    }
    let joined = World::join(place)?;
    let world = WORLD.get_or_init(|| joined);
    let arguments: Vec<_> = env::args().skip(1).collect();
    world.agree("command line", arguments.join("\0").as_bytes())?;
    if world.is_first() { Ok(()) } else { quiet::begin() }
}

/// That a command which runs in one process is not one of several.
pub(crate) fn check_alone() -> Result<()> {
    match Place::from_environment()? {
        Some(place) => Err(Error::unsupported(format!(
            "WORLD_SIZE is {}, and this command runs in one process: unset it, and name the GPUs of a host with --devices",
            place.world_size
        ))),
        None => Ok(()),
    }
}

/// Shows the error that ends the command, if one does, and ends together with the other processes.
pub(crate) fn leave(error: Option<&Error>) {
    let Some(world) = world() else {
        return error.into_iter().for_each(|error| quiet::show(&format!("error: {error}")));
    };
    match error {
        Some(error) => {
            let Place { rank, world_size, .. } = world.place();
            quiet::show(&format!("error: process {rank} of {world_size}: {error}"));
            world.fail(error);
        }
        None => world.leave(),
    }
    if !world.is_first() {
        // There may be none.
        fs::remove_dir_all(scratch()).ok();
    }
}

/// The devices of this process, of those that a host has for its processes; none means the best ones.
pub(crate) fn own_devices(named: &[BackendType], place: &Place) -> Result<Vec<BackendType>> {
    let Place { local_rank, local_world_size, .. } = *place;
    let next = |backend: BackendType| match backend {
        BackendType::Cuda(ordinal) => BackendType::Cuda(ordinal + local_rank),
        BackendType::Metal(ordinal) => BackendType::Metal(ordinal + local_rank),
        other => other,
    };
    match named {
        [] => {
            let best = [BackendType::Cuda(0), BackendType::Metal(0)].into_iter().find(|backend| backend.is_available());
            Ok(vec![next(best.unwrap_or(BackendType::Cpu))])
        }
        [one] => Ok(vec![next(*one)]),
        several if several.len().is_multiple_of(local_world_size) => {
            let share = several.len() / local_world_size;
            Ok(several[local_rank * share..][..share].to_vec())
        }
        several => {
            Err(Error::invalid_argument(format!("{} devices for {local_world_size} processes of a host: name as many for each", several.len())))
        }
    }
}

/// What the first process reads, such as its standard input.
pub(crate) fn shared(read: impl FnOnce() -> Result<String>) -> Result<String> {
    match world() {
        None => read(),
        Some(world) => {
            let own = if world.is_first() { read()? } else { String::new() };
            String::from_utf8(world.broadcast(own.as_bytes())?).map_err(|e| Error::invalid_data(e.to_string()))
        }
    }
}

/// A file or a folder as this process may change it: the first has it itself, the others a copy that nobody keeps.
pub(crate) fn own(path: &Path) -> Result<PathBuf> {
    let Some(world) = world() else { return Ok(path.to_owned()) };
    let failed = |e| Error::with_source(ErrorKind::Io, format!("cannot read {} for the other processes", path.display()), e);
    if world.is_first() {
        let (names, bytes): (Vec<_>, Vec<_>) = files(path).map_err(failed)?.into_iter().map(|(name, bytes)| ((name, bytes.len()), bytes)).unzip();
        world.broadcast(&serde_json::to_vec(&names).map_err(|e| Error::internal(e.to_string()))?)?;
        world.broadcast(&bytes.concat())?;
        return Ok(path.to_owned());
    }
    let names: Vec<(PathBuf, usize)> = serde_json::from_slice(&world.broadcast(&[])?).map_err(|e| Error::invalid_data(e.to_string()))?;
    let bytes = world.broadcast(&[])?;
    let copy = scratch().join(path.file_name().unwrap_or_default());
    let write = || {
        fs::create_dir_all(scratch())?;
        let mut rest = &bytes[..];
        for (name, length) in &names {
            let file = if name.as_os_str().is_empty() { copy.clone() } else { copy.join(name) };
            let bytes = rest.split_off(..*length).unwrap_or_default();
            file.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(file, bytes)?;
        }
        Ok(())
    };
    write().map_err(|e: io::Error| Error::with_source(ErrorKind::Io, format!("cannot write {}", copy.display()), e))?;
    Ok(copy)
}

/// The files of a folder, or the file itself, which has no name then.
fn files(path: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let entries = match fs::metadata(path) {
        Ok(found) if found.is_dir() => fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?,
        Ok(_) => vec![path.to_owned()],
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let read = |file: PathBuf| {
        let name = file.strip_prefix(path).unwrap_or(&file).to_owned();
        Ok((name, fs::read(&file)?))
    };
    entries.into_iter().filter(|file| file.is_file()).map(read).collect()
}

/// The folder of what this process has to itself.
fn scratch() -> PathBuf {
    env::temp_dir().join(format!("elinvar-process-{}", process::id()))
}

/// Standard output and standard error of a process that has nothing to say.
#[cfg(unix)]
mod quiet {
    use std::{fs::File, io::Write, sync::OnceLock};

    use elinvar::{Error, ErrorKind, Result};

    /// What standard error was.
    static ERRORS: OnceLock<File> = OnceLock::new();

    pub(super) fn begin() -> Result<()> {
        let begin = || {
            let nowhere = File::options().write(true).open("/dev/null")?;
            let errors = File::from(rustix::io::dup(std::io::stderr())?);
            rustix::stdio::dup2_stdout(&nowhere)?;
            rustix::stdio::dup2_stderr(&nowhere)?;
            ERRORS.get_or_init(|| errors);
            Ok(())
        };
        begin().map_err(|e: std::io::Error| Error::with_source(ErrorKind::Io, "cannot be quiet beside process 0", e))
    }

    pub(super) fn show(line: &str) {
        // There may be nobody to read it.
        let _ = match ERRORS.get() {
            Some(mut errors) => writeln!(errors, "{line}"),
            None => writeln!(std::io::stderr(), "{line}"),
        };
    }
}

#[cfg(not(unix))]
mod quiet {
    use elinvar::Result;

    pub(super) fn begin() -> Result<()> {
        Ok(())
    }

    pub(super) fn show(line: &str) {
        eprintln!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_devices_of_a_host_are_shared_by_its_processes() {
        let of = |names: &str, local_rank, local_world_size| {
            let (patience, silence) = (Duration::from_secs(1), Duration::from_secs(1));
            let place = Place { rank: local_rank, world_size: 4, local_rank, local_world_size, address: "here".into(), port: 1, patience, silence };
            own_devices(&BackendType::parse_list(names).unwrap(), &place).map(|own| own.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        };
        assert_eq!(of("cuda:2", 1, 2).unwrap(), "cuda:3");
        assert_eq!(of("cpu", 1, 2).unwrap(), "cpu");
        assert_eq!(of("cuda:0,cuda:1", 0, 1).unwrap(), "cuda,cuda:1");
        assert_eq!(of("cuda:0,cuda:1,cuda:2,cuda:3", 1, 2).unwrap(), "cuda:2,cuda:3");
        let error = of("cpu,cpu,cpu", 0, 2).unwrap_err().to_string();
        assert_eq!(error, "3 devices for 2 processes of a host: name as many for each");
    }
}
