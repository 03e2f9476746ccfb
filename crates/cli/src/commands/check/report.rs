//! What a check prints.

use elinvar::{Error, Result};
use elinvar_check::Report;

/// How many lints a report shows.
const SHOWN: usize = 20;

/// The report in JSON.
pub(super) fn json(report: Report) -> Result<String> {
    serde_json::to_string(&report).map_err(|cause| Error::internal(format!("a report that cannot be written: {cause}")))
}

/// The report for a reader: the first lints in the order of their lines, what was found, and, of a check that came to its end, what was done.
pub(super) fn text(report: &Report) -> String {
    let Report { lints, findings, kernels, threads, seeds, .. } = report;
    let mut lines: Vec<String> = lints.iter().take(SHOWN).map(|lint| lint.text.clone()).collect();
    lines.extend((lints.len() > SHOWN).then(|| format!("… and {} more", lints.len() - SHOWN)));
    lines.extend(findings.iter().map(|finding| format!("{} (seed {})", finding.text, finding.seed)));
    lines.extend(report.finished.then(|| match &report.kernel {
        _ if report.rejected => format!("Apple's compiler would reject it: {} lints, not run; --run-anyway runs it all the same", lints.len()),
        None => format!("{} kernels compile, {} lints", kernels.len(), lints.len()),
        Some(kernel) => {
            let schedules = if *seeds == 1 { "schedule" } else { "schedules" };
            format!("{kernel}: {threads} threads, {seeds} {schedules}, {} findings", findings.len())
        }
    }));
    lines.join("\n")
}
