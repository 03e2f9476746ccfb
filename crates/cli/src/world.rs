//! Several processes that run one command together, as `torchrun` starts them. The first prints and writes; the others say only why they fail.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process,
    sync::OnceLock,
};

use elinvar::{Error, ErrorKind, Place, Result, World};

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
    // Not itself, for it may have a key.
    world.agree("command line", blake3::hash(arguments.join("\0").as_bytes()).as_bytes())?;
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
