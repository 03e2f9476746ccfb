//! What a check prints.

use elinvar_sim::{Finding, Lint, Location};
use serde_json::{Value, json};

use super::{CheckArgs, expected::Difference, launch::Findings};
use crate::commands::print_line;

/// How many lints a report shows.
const SHOWN: usize = 20;

/// The first lints, in the order of their lines, and how many more there are.
fn print_lints(lints: &[Lint]) {
    lints.iter().take(SHOWN).for_each(print_line);
    if lints.len() > SHOWN {
        print_line(format_args!("… and {} more", lints.len() - SHOWN));
    }
}

/// A text that Apple's compiler would refuse, and that is not run for that.
pub(super) fn print_refused(lints: &[Lint], args: &CheckArgs) {
    if args.json {
        return print_line(json!({ "refused": true, "lints": lints.iter().map(lint).collect::<Vec<_>>() }));
    }
    print_lints(lints);
    print_line(format_args!("Apple's compiler would refuse it: {} lints, not run; --run-anyway runs it all the same", lints.len()));
}

pub(super) fn print_compiled(kernels: &[&str], lints: &[Lint], as_json: bool) {
    if as_json {
        return print_line(json!({ "kernels": kernels, "lints": lints.iter().map(lint).collect::<Vec<_>>() }));
    }
    print_lints(lints);
    print_line(format_args!("{} kernels compile, {} lints", kernels.len(), lints.len()));
}

pub(super) fn print_findings(findings: &Findings, lints: &[Lint], args: &CheckArgs) {
    if args.json {
        let differences = findings.differences.iter().map(|(seed, d)| difference(*seed, &findings.kernel, d));
        let found: Vec<_> = findings.found.iter().map(|(seed, f)| finding(*seed, f)).chain(differences).collect();
        let (kernel, seeds, threads) = (&findings.kernel, findings.seeds, findings.threads);
        let lints: Vec<_> = lints.iter().map(lint).collect();
        return print_line(json!({ "kernel": kernel, "seeds": seeds, "threads": threads, "findings": found, "lints": lints }));
    }
    print_lints(lints);
    for (seed, finding) in &findings.found {
        print_line(format_args!("{finding} (seed {seed})"));
    }
    for (seed, difference) in &findings.differences {
        print_line(format_args!("{difference} (seed {seed})"));
    }
    let schedules = if findings.seeds == 1 { "schedule" } else { "schedules" };
    let (kernel, threads, seeds) = (&findings.kernel, findings.threads, findings.seeds);
    print_line(format_args!("{kernel}: {threads} threads, {seeds} {schedules}, {} findings", findings.count()));
}

fn place(at: Option<&Location>) -> (Value, Value) {
    at.map_or((Value::Null, Value::Null), |at| (json!(&*at.file), json!(at.line)))
}

fn finding(seed: u64, finding: &Finding) -> Value {
    let (file, line) = place(finding.at.as_ref());
    let other = finding.other.as_ref().map(|other| {
        let (file, line) = place(other.at.as_ref());
        json!({ "file": file, "line": line, "kernel": other.kernel, "thread": other.thread, "threadgroup": other.threadgroup })
    });
    json!({
        "kind": finding.kind.name(),
        "kernel": finding.kernel,
        "file": file,
        "line": line,
        "thread": finding.thread,
        "threadgroup": finding.threadgroup,
        "buffer": finding.buffer,
        "offset": finding.offset,
        "message": finding.message,
        "other": other,
        "count": finding.count,
        "seed": seed,
    })
}

fn difference(seed: u64, kernel: &str, difference: &Difference) -> Value {
    json!({
        "kind": Difference::KIND,
        "kernel": kernel,
        "buffer": difference.buffer,
        "offset": difference.offset,
        "message": difference.message(),
        "count": difference.count,
        "seed": seed,
    })
}

fn lint(lint: &Lint) -> Value {
    json!({ "rule": lint.rule, "file": &*lint.location.file, "line": lint.location.line, "message": lint.message })
}
