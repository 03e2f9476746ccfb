use std::fs;

/// The processor's marketing name, or its architecture.
pub(crate) fn processor_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()));
    name.unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}
