//! Stores that go past the caches: a result too large to stay there is not first read from memory line by line.

/// Bytes of output from which stores go past the caches.
const FROM: usize = 16 << 20;

/// Whether an output of so many bytes goes past the caches.
pub(crate) fn pays(bytes: usize) -> bool {
    cfg!(target_arch = "x86_64") && bytes >= FROM
}

/// Copies a block that is in cache to memory that will not be read soon. Other threads may read it after [`finish`].
#[cfg(target_arch = "x86_64")]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let head = to.as_ptr().align_offset(64).min(to.len()).min(from.len());
    let (from_head, from) = from.split_at(head);
    let (to_head, to) = to.split_at_mut(head);
    to_head.copy_from_slice(from_head);
    let (from_lines, from_tail) = from.as_chunks::<64>();
    let (to_lines, to_tail) = to.as_chunks_mut::<64>();
    for (from, to) in from_lines.iter().zip(to_lines) {
        for quarter in 0..4 {
            // SAFETY: both are 64 bytes long and `to` is 64-byte aligned by the split above; SSE2 is part of x86-64.
            unsafe {
                let value = _mm_loadu_si128(from.as_ptr().cast::<__m128i>().add(quarter));
                _mm_stream_si128(to.as_mut_ptr().cast::<__m128i>().add(quarter), value);
            }
        }
    }
    to_tail.copy_from_slice(from_tail);
}

/// Copies a block.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
}

/// Ends the copies of a task: they come before whatever says to other threads that it is done.
pub(crate) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_alignment_and_length_is_copied_exactly() {
        let from: Vec<u8> = (0..800).map(|i| (i % 251) as u8).collect();
        for start in 0..80 {
            for length in [0, 1, 7, 31, 63, 64, 65, 128, 400, 600] {
                let mut to = vec![0xffu8; 800];
                super::copy(&from[..length], &mut to[start..start + length]);
                assert_eq!(to[start..start + length], from[..length]);
                assert!(to[..start].iter().chain(&to[start + length..]).all(|&v| v == 0xff));
            }
        }
    }
}
