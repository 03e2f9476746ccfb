//! Keeps the system's loader from running a library's initialisers: those of a kernel's constants are the user's code, and must not fault or loop
//! outside a fiber. Their entries in the dynamic section get tags that the loader does not know.

use std::ops::Range;

use crate::abi::Entry;

const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
/// The loader's tags for the array of initialisers and its size, and ours, from the range for operating systems.
const HIDDEN: [(u64, u64); 2] = [(25, 0x60e1_0019), (27, 0x60e1_001b)];

/// Hides the initialisers of a 64-bit little-endian library from the loader.
pub(crate) fn hide_initialisers(library: &mut [u8]) {
    let Some(dynamic) = dynamic_section(library) else { return };
    for entry in library.get_mut(dynamic).unwrap_or_default().chunks_exact_mut(16) {
        let (tag, _) = entry.split_at_mut(8);
        if let Some((_, ours)) = HIDDEN.iter().find(|(theirs, _)| theirs.to_le_bytes() == *tag) {
            tag.copy_from_slice(&ours.to_le_bytes());
        }
    }
}

fn dynamic_section(library: &[u8]) -> Option<Range<usize>> {
    if !library.starts_with(b"\x7fELF") {
        return None;
    }
    let word = |at: usize, bytes: usize| {
        let read = library.get(at..at.checked_add(bytes)?)?;
        Some(read.iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte)))
    };
    let (headers, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    let dynamic = (0..count).map(|index| headers + index * size).find(|at| word(*at, 4) == Some(PT_DYNAMIC as usize))?;
    let start = word(dynamic + 8, 8)?;
    Some(start..start.checked_add(word(dynamic + 32, 8)?)?)
}

/// The initialisers of a loaded library, from the dynamic section that one of its program headers gives.
///
/// # Safety
/// The header must be one of a library loaded at `base`, made by this crate.
pub(crate) unsafe fn initialisers(base: u64, header: &libc::Elf64_Phdr) -> Vec<Entry> {
    if header.p_type != PT_DYNAMIC {
        return Vec::new();
    }
    let (mut entry, mut array) = ((base + header.p_vaddr) as *const [u64; 2], [0; 2]);
    loop {
        // SAFETY: the section ends with a null tag.
        let [tag, value] = unsafe { *entry };
        if let Some(which) = HIDDEN.iter().position(|(_, ours)| *ours == tag) {
            array[which] = value;
        }
        if tag == DT_NULL {
            break;
        }
        entry = entry.wrapping_add(1);
    }
    let [offset, bytes] = array;
    if bytes == 0 {
        return Vec::new();
    }
    // SAFETY: the array that the compiler made, relocated by the loader. Initialisers are called with three arguments, which they ignore.
    unsafe { std::slice::from_raw_parts((base + offset) as *const Entry, bytes as usize / size_of::<Entry>()) }.to_vec()
}
