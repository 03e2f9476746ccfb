//! Compiled libraries in the cache.

use std::{fs, path::Path};

use elinvar_core::{Cache, Result, cache_error};

use crate::elf;

/// Hides a finished library's initialisers, appends its hash, which loaders ignore, and moves it to its place in one step.
pub(crate) fn seal(cache: &Cache, made: &Path, place: &Path) -> Result<()> {
    let mut bytes = fs::read(made).map_err(|cause| cache_error("read", made, cause))?;
    elf::hide_initialisers(&mut bytes);
    cache.write_sealed(place, bytes)?;
    fs::remove_file(made).map_err(|cause| cache_error("remove", made, cause))
}
