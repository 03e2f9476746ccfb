//! The memory of this machine, as its operating system counts it.

/// A device's memory, in bytes, at the moment of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Installed (or granted by the container's limit).
    pub total: usize,
    /// Free for this process.
    pub available: usize,
}

impl MemoryInfo {
    /// Of this machine, within the limit of the control group this process lives in.
    ///
    /// Where the system does not report it, nothing is rejected in advance.
    pub fn of_host() -> Self {
        read().unwrap_or(Self { total: usize::MAX, available: usize::MAX })
    }
}

/// From `/proc` and the control group.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn read() -> Option<MemoryInfo> {
    use std::fs::read_to_string;
    let info = read_to_string("/proc/meminfo").ok()?;
    let kib = |key: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().trim_end_matches(" kB").parse::<usize>().ok()?.checked_mul(1024)
    };
    let (mut total, mut available) = (kib("MemTotal")?, kib("MemAvailable")?);
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<usize>().ok();
    if let (Some(limit), Some(used)) = (number("/sys/fs/cgroup/memory.max"), number("/sys/fs/cgroup/memory.current")) {
        total = total.min(limit);
        available = available.min(limit.saturating_sub(used));
    }
    Some(MemoryInfo { total, available })
}

/// From the kernel: pages that are free, or that it can take back without asking anyone.
#[cfg(target_vendor = "apple")]
fn read() -> Option<MemoryInfo> {
    let (mut total, mut length) = (0u64, size_of::<u64>());
    // SAFETY: writes as many bytes as its caller says there are.
    let read = unsafe { libc::sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut total).cast(), &raw mut length, std::ptr::null_mut(), 0) };
    let total = usize::try_from(total).ok().filter(|total| read == 0 && *total > 0)?;
    Some(MemoryInfo { total, available: available()?.min(total) })
}

/// What this app may still take before the system ends it.
#[cfg(all(target_vendor = "apple", not(target_os = "macos")))]
fn available() -> Option<usize> {
    unsafe extern "C" {
        fn os_proc_available_memory() -> usize;
    }
    // SAFETY: a function of the system's, without conditions.
    Some(unsafe { os_proc_available_memory() })
}

#[cfg(target_os = "macos")]
#[allow(deprecated, reason = "for Mach's functions another crate is recommended, which would be one more for two calls")]
fn available() -> Option<usize> {
    let words = size_of::<libc::vm_statistics64>() / size_of::<libc::integer_t>();
    let mut count = libc::mach_msg_type_number_t::try_from(words).ok()?;
    // SAFETY: plain numbers, of which zero is one; the call writes as many words as its caller says there are.
    let (read, pages) = unsafe {
        let mut pages: libc::vm_statistics64 = std::mem::zeroed();
        (libc::host_statistics64(libc::mach_host_self(), libc::HOST_VM_INFO64, (&raw mut pages).cast(), &raw mut count), pages)
    };
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let counts = [pages.free_count, pages.inactive_count, pages.purgeable_count].map(|count| count as usize);
    (read == libc::KERN_SUCCESS).then(|| counts.iter().sum::<usize>() * page)
}

/// From the system: physical memory, which is what computing wants.
#[cfg(windows)]
fn read() -> Option<MemoryInfo> {
    use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
    let mut status = MEMORYSTATUSEX { dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).ok()?, ..Default::default() };
    // SAFETY: a structure that says its own length.
    let read = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    let bytes = |count: u64| usize::try_from(count).ok();
    (read != 0).then_some(MemoryInfo { total: bytes(status.ullTotalPhys)?, available: bytes(status.ullAvailPhys)? })
}

/// Nobody knows.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
fn read() -> Option<MemoryInfo> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        let known = cfg!(any(target_os = "linux", target_vendor = "apple", windows));
        let read = read();
        assert!(read.is_some() == known, "{read:?}");
        assert!(read.is_none_or(|memory| memory.total >= 64 << 20 && memory.available <= memory.total), "{read:?}");
    }
}
