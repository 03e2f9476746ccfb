/// A number of bytes for people, in the largest binary unit that leaves a whole digit, such as `16.3 GiB`.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let exponent = (bytes.max(1).ilog2() / 10).max(1);
    format!("{:.1} {}", bytes as f64 / 1024f64.powi(exponent as i32), UNITS[exponent as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_leaves_a_whole_digit() {
        let shown = [0, 1536, 1 << 20, 300 << 20, 15 << 30, u64::MAX].map(format_bytes);
        assert_eq!(shown, ["0.0 KiB", "1.5 KiB", "1.0 MiB", "300.0 MiB", "15.0 GiB", "16.0 EiB"]);
    }
}
