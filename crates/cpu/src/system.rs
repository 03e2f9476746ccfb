use std::fs;

use elinvar_core::MemoryInfo;

/// The processor's marketing name, or its architecture.
pub(crate) fn processor_name() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()));
    name.unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

/// Memory of this machine, within the limit of the control group this process lives in.
///
/// Where the system does not tell, nothing is refused in advance.
pub(crate) fn memory() -> MemoryInfo {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |key: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().trim_end_matches(" kB").parse::<usize>().ok()?.checked_mul(1024)
    };
    let (Some(mut total), Some(mut available)) = (kib("MemTotal"), kib("MemAvailable")) else {
        return MemoryInfo { total: usize::MAX, available: usize::MAX };
    };
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    if let (Some(limit), Some(used)) = (number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory.current")) {
        total = total.min(limit);
        available = available.min(limit.saturating_sub(used));
    }
    MemoryInfo { total, available }
}
