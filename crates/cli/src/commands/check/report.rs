//! What a check prints.

use elinvar::Error;
use elinvar_sim::{Finding, Lint, Location};
use serde_json::{Value, json};

use super::findings::Findings;
use crate::kernel::expected::Difference;

/// How many lints a report shows.
const SHOWN: usize = 20;

/// The first lints, in the order of their lines, and how many more there are.
fn lines(lints: &[Lint]) -> Vec<String> {
    let more = (lints.len() > SHOWN).then(|| format!("… and {} more", lints.len() - SHOWN));
    lints.iter().take(SHOWN).map(Lint::to_string).chain(more).collect()
}

/// A text that Apple's compiler would reject, and that is not run for that.
pub(super) fn rejected(lints: &[Lint], as_json: bool) -> String {
    if as_json {
        return json!({ "rejected": true, "lints": lints.iter().map(lint).collect::<Vec<_>>() }).to_string();
    }
    let verdict = format!("Apple's compiler would reject it: {} lints, not run; --run-anyway runs it all the same", lints.len());
    lines(lints).into_iter().chain([verdict]).collect::<Vec<_>>().join("\n")
}

pub(super) fn compiled(kernels: &[&str], lints: &[Lint], as_json: bool) -> String {
    if as_json {
        return json!({ "kernels": kernels, "lints": lints.iter().map(lint).collect::<Vec<_>>() }).to_string();
    }
    let verdict = format!("{} kernels compile, {} lints", kernels.len(), lints.len());
    lines(lints).into_iter().chain([verdict]).collect::<Vec<_>>().join("\n")
}

/// The findings so far; at the end with what was run.
pub(super) fn found(findings: &Findings, lints: &[Lint], as_json: bool, is_over: bool) -> String {
    if as_json {
        let differences = findings.differences.iter().map(|(seed, d)| difference(*seed, &findings.kernel, d));
        let found: Vec<_> = findings.found.iter().map(|(seed, f)| finding(*seed, f)).chain(differences).collect();
        let (kernel, seeds, threads) = (&findings.kernel, findings.seeds, findings.threads);
        let lints: Vec<_> = lints.iter().map(lint).collect();
        return json!({ "kernel": kernel, "seeds": seeds, "threads": threads, "findings": found, "lints": lints }).to_string();
    }
    let mut lines = lines(lints);
    lines.extend(findings.found.iter().map(|(seed, finding)| format!("{finding} (seed {seed})")));
    lines.extend(findings.differences.iter().map(|(seed, difference)| format!("{difference} (seed {seed})")));
    if is_over {
        let schedules = if findings.seeds == 1 { "schedule" } else { "schedules" };
        let (kernel, threads, seeds) = (&findings.kernel, findings.threads, findings.seeds);
        lines.push(format!("{kernel}: {threads} threads, {seeds} {schedules}, {} findings", findings.count()));
    }
    lines.join("\n")
}

/// A report in JSON of a check that did not end.
pub(super) fn with_error(report: &str, error: &Error) -> String {
    match serde_json::from_str(report) {
        Ok(Value::Object(mut report)) => {
            report.insert("error".to_owned(), error.to_string().into());
            Value::Object(report).to_string()
        }
        _ => json!({ "error": error.to_string() }).to_string(),
    }
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
