//! The table of a profile: what took the device's time.

use std::{collections::HashMap, fmt::Write};

use elinvar::DeviceProperties;

use super::phase::{Phase, own_times};

/// All events of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Row {
    count: usize,
    /// Nanoseconds that they add to the time in which the device was busy.
    ns: u64,
    bytes: u64,
}

/// Rows by name, those that took longest first.
fn rows(phase: &Phase) -> Vec<(String, Row)> {
    let mut rows = HashMap::<String, Row>::new();
    for (event, own) in own_times(&phase.events) {
        let row = rows.entry(event.activity.to_string()).or_default();
        (row.count, row.ns, row.bytes) = (row.count + 1, row.ns + own, row.bytes.saturating_add(event.bytes));
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(a, x), (b, y)| y.ns.cmp(&x.ns).then_with(|| a.cmp(b)));
    rows
}

/// A table for each phase.
pub(super) fn tables(device: &DeviceProperties, bandwidth: Option<(f64, &str)>, phases: &[Phase]) -> String {
    let mut text = format!("profile of {} · times: {} · bytes: as planned or bound", device.name, device.kind.clock());
    if let Some((bandwidth, how)) = bandwidth {
        let _ = write!(text, " · bandwidth: {how} {:.1} GB/s", bandwidth / 1e9);
    }
    for phase in phases {
        text += "\n\n";
        text += &table(phase, bandwidth.map(|(bandwidth, _)| bandwidth));
    }
    text
}

fn table(phase: &Phase, bandwidth: Option<f64>) -> String {
    let rows = rows(phase);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(phase.name.len());
    let mut text = format!(
        "{:<width$} {:>8} {:>11} {:>7} {:>11} {:>11} {:>9} {:>13}",
        phase.name, "count", "total ms", "share", "mean µs", "mean bytes", "GB/s", "of bandwidth"
    );
    let total = rows.iter().map(|(_, row)| row.ns).sum::<u64>();
    for (name, Row { count, ns, bytes }) in &rows {
        let (seconds, bytes) = (*ns as f64 / 1e9, *bytes as f64);
        let rate = (*ns > 0).then(|| bytes / seconds);
        let shown = |value: Option<f64>, unit: f64, sign: &str| value.map_or_else(|| "–".to_owned(), |value| format!("{:.1}{sign}", value * unit));
        let (share, count) = ((total > 0).then(|| *ns as f64 / total as f64), *count as f64);
        let _ = write!(
            text,
            "\n{name:<width$} {count:>8} {:>11.3} {:>7} {:>11.2} {:>11.0} {:>9} {:>13}",
            seconds * 1e3,
            shown(share, 100.0, " %"),
            seconds * 1e6 / count,
            bytes / count,
            shown(rate, 1e-9, ""),
            shown(rate.zip(bandwidth).map(|(rate, bandwidth)| rate / bandwidth), 100.0, " %"),
        );
    }
    text + "\n" + &summary(phase, total as f64 / 1e9)
}

/// How the device's time compares with the host's.
fn summary(phase: &Phase, busy: f64) -> String {
    let ms = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
    let of = |wall: f64| format!("{:.1} % of {}", 100.0 * busy / wall, ms(wall));
    let mut text = format!("device busy {}: {} by the host's clock", ms(busy), of(phase.wall));
    if let Some(wall) = phase.unprofiled {
        let _ = write!(text, ", {} without a profile", of(wall));
    }
    if let Some(tokens) = phase.tokens.filter(|tokens| *tokens > 0) {
        let each = |seconds: f64| ms(seconds / tokens as f64);
        let wall = phase.unprofiled.unwrap_or(phase.wall);
        let _ = write!(text, "; {tokens} tokens, each busy {} of {}", each(busy), each(wall));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::phase::tests::overlapping, *};

    #[test]
    fn rows_add_up_what_has_one_name() {
        let row = |count, ns, bytes| Row { count, ns, bytes };
        let expected = [
            ("(copy)", row(2, 11_000, 22_000)),
            ("(read to host)", row(1, 2_000, 8)),
            ("(write from host)", row(1, 1_000, 0)),
            ("(fill)", row(1, 0, 64)),
        ];
        assert_eq!(rows(&overlapping()), expected.map(|(name, row)| (name.to_owned(), row)));
    }

    #[test]
    fn a_table_ends_with_the_device_s_share_of_the_time() {
        let text = table(&Phase { unprofiled: Some(16e-6), ..overlapping() }, Some(4e9));
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "decode count total ms share mean µs mean bytes GB/s of bandwidth",
                "(copy) 2 0.011 78.6 % 5.50 11000 2.0 50.0 %",
                "(read to host) 1 0.002 14.3 % 2.00 8 0.0 0.1 %",
                "(write from host) 1 0.001 7.1 % 1.00 0 0.0 0.0 %",
                "(fill) 1 0.000 0.0 % 0.00 64 – –",
                "device busy 0.014 ms: 70.0 % of 0.020 ms by the host's clock, 87.5 % of 0.016 ms without a profile; 2 tokens, each busy 0.007 ms of 0.008 ms"
            ]
        );
    }
}
