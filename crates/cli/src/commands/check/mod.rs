//! `elinvar check`: anyone's Metal kernels, run on the simulator.

mod args;
mod findings;
mod launch;
mod report;

use std::time::Duration;

use elinvar::Result;
use elinvar_sim::{CompileOptions, Config, Lint, Math, Simulator, Source, Subnormals};

pub(super) use args::CheckArgs;
use args::Tiny;

use crate::{
    contained::{self, Outcome, Parent},
    output::print_line,
};

/// Whether nothing was found.
pub(crate) fn run(args: &CheckArgs) -> Result<bool> {
    args.kernel.check_folders()?;
    let (given, limit) = (&args.kernel, Duration::from_secs(args.time_limit.max(1)));
    let Outcome { report, verdict } = contained::run(&given.file, limit, &[given.save.as_deref()], |parent| check(args, limit, parent))?;
    let report = match &verdict {
        Err(error) if args.json => report::with_error(&report, error),
        _ => report,
    };
    if !report.is_empty() {
        print_line(report);
    }
    verdict
}

fn check(args: &CheckArgs, time_limit: Duration, parent: &mut Parent) -> Result<bool> {
    let simulator = Simulator::new(Config { time_limit, ..Config::default() })?;
    let given = &args.kernel;
    let math = if given.fast_math { Math::Fast } else { Math::Safe };
    let options = CompileOptions {
        include_dirs: given.include.clone(),
        defines: given.define.clone(),
        metal_version: given.metal_version,
        math,
        subnormals: match args.subnormals {
            Tiny::Keep => Subnormals::Keep,
            Tiny::Flush => Subnormals::Flush,
        },
        ..CompileOptions::default()
    };
    let library = simulator.library(&Source::read(&given.file)?, &options)?;
    if args.compile_only {
        let names: Vec<_> = library.module().kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        let lints = library.judge(&names)?;
        if is_rejected(&lints, args) {
            parent.report(report::rejected(&lints, args.json))?;
            return Ok(false);
        }
        library.compile_all(&names)?;
        parent.report(report::compiled(&names, &lints, args.json))?;
        return Ok(lints.is_empty());
    }
    let kernel = given.kernel(library.module())?;
    let lints = library.judge(&[kernel])?;
    if is_rejected(&lints, args) {
        parent.report(report::rejected(&lints, args.json))?;
        return Ok(false);
    }
    let findings = launch::run(args, &simulator, &library, kernel, &lints, parent)?;
    Ok(findings.count() == 0 && lints.is_empty())
}

/// What Apple's compiler would reject does not run here.
fn is_rejected(lints: &[Lint], args: &CheckArgs) -> bool {
    !lints.is_empty() && !args.kernel.run_anyway
}
