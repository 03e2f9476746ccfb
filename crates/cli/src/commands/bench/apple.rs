//! What Apple publishes of its chips.

/// Memory bandwidth in bytes per second, from the technical specifications, the greater where configurations differ; nothing for chips not listed.
pub(super) fn published_bandwidth(device: &str) -> Option<f64> {
    const GIGABYTES: &[(&str, f64)] = &[
        ("M1", 68.25),
        ("M1 Pro", 200.0),
        ("M1 Max", 400.0),
        ("M1 Ultra", 800.0),
        ("M2", 100.0),
        ("M2 Pro", 200.0),
        ("M2 Max", 400.0),
        ("M2 Ultra", 800.0),
        ("M3", 100.0),
        ("M3 Pro", 150.0),
        ("M3 Max", 400.0),
        ("M3 Ultra", 819.0),
        ("M4", 120.0),
        ("M4 Pro", 273.0),
        ("M4 Max", 546.0),
        ("M5", 153.0),
    ];
    let chip = device.strip_prefix("Apple ")?;
    GIGABYTES.iter().find(|(name, _)| *name == chip).map(|(_, gigabytes)| gigabytes * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_found_by_their_whole_name() {
        assert_eq!(published_bandwidth("Apple M4 Max"), Some(546e9));
        assert_eq!(published_bandwidth("Apple M1"), Some(68.25e9));
        assert_eq!([published_bandwidth("Apple M17"), published_bandwidth("AMD Radeon Pro 5500M")], [None, None]);
    }
}
