//! What the cache keeps: compiled libraries, and folders of the files they are made from.

use std::{
    fs,
    path::{Path, PathBuf},
};

use elinvar_core::{Cache, CacheKey, Result, cache_error};

use crate::elf;

/// Hides a finished library's initialisers, appends its hash, which loaders ignore, and moves it to its place in one step.
pub(crate) fn seal(cache: &Cache, made: &Path, place: &Path) -> Result<()> {
    let mut bytes = fs::read(made).map_err(|cause| cache_error("read", made, cause))?;
    elf::hide_initialisers(&mut bytes);
    cache.write_sealed(place, bytes)?;
    fs::remove_file(made).map_err(|cause| cache_error("remove", made, cause))
}

/// The files, written once into a folder named by their content.
pub(crate) fn folder(cache: &Cache, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
    let key = CacheKey::of(files.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]));
    let folder = cache.folder().join(format!("{name}-{}", key.as_str()));
    for (file, text) in files {
        let place = folder.join(file);
        if fs::read(&place).is_ok_and(|found| found == text.as_bytes()) {
            continue;
        }
        let parent = place.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|cause| cache_error("create", parent, cause))?;
        cache.write(&place, text.as_bytes())?;
    }
    Ok(folder)
}
