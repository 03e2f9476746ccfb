//! Pages of memory.

use std::ptr::NonNull;

/// Asks for huge pages where memory that is about to be written for the first time is large: to touch it page by page takes as long as a norm of it.
///
/// It is advice: without it the memory works the same. The pages that are whole within `bytes` bytes from `pointer` get it, on Linux.
pub fn advise_huge_pages(pointer: NonNull<u8>, bytes: usize) {
    /// The size of a huge page of most processors: a multiple of the others' pages.
    const PAGE: usize = 2 << 20;
    let skipped = pointer.as_ptr().align_offset(PAGE);
    let whole = bytes.saturating_sub(skipped) / PAGE * PAGE;
    if whole > 0 {
        advise(pointer.as_ptr().wrapping_add(skipped), whole);
    }
}

#[cfg(target_os = "linux")]
fn advise(start: *mut u8, bytes: usize) {
    // SAFETY: this advice changes no contents, wherever it points. Without it the memory works the same, so the result does not matter.
    unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: *mut u8, _: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Whether the system was asked for huge pages at an address.
    fn is_advised(address: usize) -> bool {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let mut is_here = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((Ok(start), Ok(end))) = range.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))) {
                is_here = (start..end).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_here) {
                return flags.split_whitespace().any(|flag| flag == "hg");
            }
        }
        false
    }

    #[test]
    fn whole_pages_of_large_memory_are_asked_to_be_huge() {
        if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("skipped: this system has no huge pages");
            return;
        }
        let mut large = vec![0u8; 16 << 20];
        let pointer = NonNull::from(&mut large[..]).cast();
        advise_huge_pages(pointer, 1 << 20);
        assert!(!is_advised(pointer.as_ptr() as usize + (8 << 20)));
        advise_huge_pages(pointer, large.len());
        assert!(is_advised(pointer.as_ptr() as usize + (8 << 20)));
        assert!(large.iter().all(|byte| *byte == 0));
    }
}
