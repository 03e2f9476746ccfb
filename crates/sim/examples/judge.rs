//! Judges Metal files by the rules of Apple's compiler: `judge [-I FOLDER] [-D NAME=VALUE] [--metal-version N] FILE…`.

fn main() {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::main() {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{path::PathBuf, time::Instant};

    use elinvar_core::{Error, Result};
    use elinvar_msl::Module;
    use elinvar_sim::{CompileOptions, Judge, Source, preprocess};

    pub(crate) fn main() -> Result<()> {
        let (mut options, mut files, mut arguments) = (CompileOptions::default(), Vec::new(), std::env::args().skip(1));
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| Error::invalid_argument(format!("{argument} needs a value")));
            match argument.as_str() {
                "-I" => options.include_dirs.push(PathBuf::from(value()?)),
                "-D" => options.defines.push(value()?),
                "--metal-version" => {
                    options.metal_version = value()?.parse().map_err(|_| Error::invalid_argument("--metal-version needs a number"))?
                }
                _ => files.push(PathBuf::from(argument)),
            }
        }
        let (judge, mut clean, all) = (Judge::open(None)?, 0, Instant::now());
        for file in &files {
            let started = Instant::now();
            let judged =
                Source::read(file).and_then(|source| preprocess(&source, &options)).and_then(|text| Module::read(&text)).and_then(|module| {
                    let names: Vec<&str> = module.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
                    Ok((names.len(), judge.judge(&module, &names, options.metal_version)?))
                });
            let seconds = started.elapsed().as_secs_f64();
            match judged {
                Ok((kernels, findings)) => {
                    clean += usize::from(findings.is_empty());
                    println!("{}: {kernels} kernels, {} findings, {seconds:.2} s", file.display(), findings.len());
                    findings.iter().for_each(|finding| println!("  {finding}"));
                }
                Err(error) => println!("{}: cannot be read: {error}", file.display()),
            }
        }
        println!("{clean} of {} files without findings, {:.1} s", files.len(), all.elapsed().as_secs_f64());
        Ok(())
    }
}
