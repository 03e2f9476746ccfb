//! Where the libraries of the CUDA toolkit are: named by the user, known to the loader, in the toolkit's folders, or in Python packages.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Declares `Functions`: a library's functions by name, as its C headers, named in the documentation, declare them.
macro_rules! functions {
    ($(#[$doc:meta])* $($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        $(#[$doc])*
        struct Functions { $($name: unsafe extern "C" fn($($argument),*) -> Status,)* }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the library's headers, for every version that is looked for.
                Ok(unsafe { Self { $($name: *library.get($symbol)?,)* } })
            }
        }
    };
}

pub(crate) use functions;

/// Major versions of the toolkit's libraries.
pub(crate) const TOOLKIT: &[&str] = &["13", "12"];

/// Names of a library for the loader, newest major version first.
fn names(stem: &str, majors: &[&str]) -> Vec<String> {
    if cfg!(windows) {
        majors.iter().flat_map(|major| [format!("{stem}64_{major}.dll"), format!("{stem}64_{major}0_0.dll")]).collect()
    } else {
        majors.iter().map(|major| format!("lib{stem}.so.{major}")).collect()
    }
}

/// What to try for a library of these major versions, best first: bare names, which the loader looks for, then files.
pub(crate) fn candidates(stem: &str, majors: &[&str]) -> Vec<PathBuf> {
    candidates_in(stem, majors, &folders())
}

fn candidates_in(stem: &str, majors: &[&str], folders: &[PathBuf]) -> Vec<PathBuf> {
    let names = names(stem, majors);
    let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).filter(|file| file.is_file());
    names.iter().map(PathBuf::from).chain(files).collect()
}

/// Folders that usually hold the toolkit's libraries.
fn folders() -> Vec<PathBuf> {
    let from = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(from).chain(newest_toolkits(Path::new("/usr/local")));
    let programs = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(from);
    let prefixes = prefixes.chain(programs.iter().filter(|folder| folder.ends_with("bin")).filter_map(|folder| folder.parent().map(Path::to_owned)));
    let mut folders: Vec<_> = toolkits.flat_map(|root| ["lib64", "lib", "bin", "extras/CUPTI/lib64"].map(|folder| root.join(folder))).collect();
    prefixes.for_each(|prefix| python_packages(&prefix, &mut folders));
    folders
}

/// `cuda` and `cuda-*` in a folder, the plain one first, then the newest.
fn newest_toolkits(folder: &Path) -> Vec<PathBuf> {
    let mut found = entries(folder, |name| name == "cuda" || name.starts_with("cuda-"));
    found.sort_by_key(|path| std::cmp::Reverse(version(path)));
    found
}

/// The numbers in a folder's name; none means the chosen one.
fn version(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name == "cuda" { vec![u32::MAX] } else { name.split(['-', '.']).filter_map(|part| part.parse().ok()).collect() }
}

/// `nvidia/*/lib` among the packages of the Pythons under a prefix.
fn python_packages(prefix: &Path, folders: &mut Vec<PathBuf>) {
    for python in entries(&prefix.join("lib"), |name| name.starts_with("python3")) {
        for packages in ["site-packages", "dist-packages"] {
            folders.extend(entries(&python.join(packages).join("nvidia"), |_| true).into_iter().map(|package| package.join("lib")));
        }
    }
}

fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = read.filter(|entry| entry.file_name().to_str().is_some_and(&wanted)).map(|entry| entry.path()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_asked_first_and_newer_toolkits_before_older() {
        let root = env::temp_dir().join(format!("elinvar-libraries-{}", std::process::id()));
        for folder in ["cuda-12.9/lib64", "cuda-13.0/lib64", "lib/python3.12/site-packages/nvidia/cu13/lib"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let python = root.join("lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        fs::write(&python, "").unwrap();
        let toolkits = newest_toolkits(&root);
        assert_eq!(toolkits, [root.join("cuda-13.0"), root.join("cuda-12.9")]);
        let mut folders = Vec::new();
        python_packages(&root, &mut folders);
        let found = candidates_in("nvrtc", TOOLKIT, &folders);
        if cfg!(target_os = "linux") {
            assert_eq!(found, [PathBuf::from("libnvrtc.so.13"), PathBuf::from("libnvrtc.so.12"), python]);
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
