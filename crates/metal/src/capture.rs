//! Captures for Xcode, which an environment variable asks for.

use std::{ffi::OsString, path::PathBuf};

use elinvar_core::{Error, Result};

/// Names the file.
pub(crate) const VARIABLE: &str = "ELINVAR_METAL_CAPTURE";

/// The file that a capture is asked for in, of the environment given.
///
/// # Errors
/// Captures are not allowed, or it is no place for one: Metal makes a new document of the type `gputrace`.
pub(crate) fn file(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<PathBuf>> {
    let Some(file) = environment(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) else { return Ok(None) };
    let rejected = |why: &str| Err(Error::invalid_argument(format!("{VARIABLE} is {}: {why}", file.display())));
    if environment("MTL_CAPTURE_ENABLED").is_none_or(|value| value != "1") {
        return rejected("Metal captures only where MTL_CAPTURE_ENABLED=1 is set too");
    }
    if file.extension().is_none_or(|extension| extension != "gputrace") {
        return rejected("name a file that ends in .gputrace");
    }
    if file.exists() {
        return rejected("it exists: Metal writes over no capture; name another file or remove it");
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_some_and(|folder| !folder.is_dir()) {
        return rejected("its folder does not exist");
    }
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    #[test]
    fn what_cannot_be_captured_is_rejected_before_anything_runs() {
        let asked = |file: &str, enabled: &str| {
            let (file, enabled) = (OsString::from(file), OsString::from(enabled));
            super::file(&|variable| Some(if variable == VARIABLE { file.clone() } else { enabled.clone() }))
        };
        let rejection = |file: &str, enabled: &str| asked(file, enabled).unwrap_err().to_string();
        assert_eq!((super::file(&|_| None).unwrap(), asked("", "").unwrap()), (None, None));
        assert_eq!(asked("run.gputrace", "1").unwrap(), Some("run.gputrace".into()));
        let error = rejection("run.gputrace", "0");
        assert_eq!(error, "ELINVAR_METAL_CAPTURE is run.gputrace: Metal captures only where MTL_CAPTURE_ENABLED=1 is set too");
        assert!(rejection("run.trace", "1").ends_with("name a file that ends in .gputrace"));
        assert!(rejection("/nowhere/run.gputrace", "1").ends_with("its folder does not exist"));
        let file = env::temp_dir().join(format!("elinvar-{}.gputrace", std::process::id()));
        fs::write(&file, "").unwrap();
        assert!(rejection(file.to_str().unwrap(), "1").contains("it exists"));
        fs::remove_file(file).unwrap();
    }
}
