//! Copies between host and device through pinned memory, which the device reaches at full speed and without the processor.

use std::{collections::VecDeque, ops::Range, slice, sync::Arc};

use cudarc::driver::sys;
use elinvar_core::Result;

use crate::{
    driver::{Context, Event},
    memory::Pinned,
};

/// Bytes that may be in flight to the device.
const RING: usize = 4 * Staging::PIECE;
/// Copies start at multiples of it.
const ALIGNMENT: usize = 256;

/// The pinned memory of one device, made at first use.
#[derive(Default)]
pub(crate) struct Staging {
    ring: Option<Pinned>,
    in_flight: VecDeque<(Range<usize>, Event)>,
    next: usize,
    back: Option<Pinned>,
}

fn pinned<'a>(place: &'a mut Option<Pinned>, context: &Arc<Context>, bytes: usize) -> Result<&'a Pinned> {
    Ok(match place {
        Some(made) => made,
        place => place.insert(Pinned::new(context, bytes)?),
    })
}

/// Where the next copy of so many bytes goes in the ring.
fn place(next: usize, bytes: usize) -> Range<usize> {
    let start = if next + bytes > RING { 0 } else { next };
    start..start + bytes
}

impl Staging {
    /// Bytes that one copy moves at most.
    pub(crate) const PIECE: usize = 4 << 20;

    /// Copies to the device in stream order. The bytes are read before it returns.
    pub(crate) fn write(&mut self, context: &Arc<Context>, to: sys::CUdeviceptr, bytes: &[u8]) -> Result<()> {
        let base = pinned(&mut self.ring, context, RING)?.pointer;
        let mut to = to;
        for piece in bytes.chunks(Staging::PIECE) {
            let range = place(self.next, piece.len());
            while let Some((_, sent)) = self.in_flight.front() {
                let in_the_way = self.in_flight.iter().any(|(other, _)| other.start < range.end && range.start < other.end);
                if !sent.is_past() {
                    if !in_the_way {
                        break;
                    }
                    sent.wait()?;
                }
                self.in_flight.pop_front();
            }
            // SAFETY: the range is inside the ring, and no copy in flight reads it.
            let result = unsafe {
                let staged = base.add(range.start);
                slice::from_raw_parts_mut(staged, piece.len()).copy_from_slice(piece);
                sys::cuMemcpyHtoDAsync_v2(to, staged.cast(), piece.len(), context.stream())
            };
            context.check(&format!("copying {} bytes to the GPU", piece.len()), result)?;
            self.next = range.end.next_multiple_of(ALIGNMENT);
            self.in_flight.push_back((range, context.record()?));
            to += piece.len() as u64;
        }
        Ok(())
    }

    /// Copies from the device, after everything submitted, which is done when it returns.
    pub(crate) fn read(&mut self, context: &Arc<Context>, from: sys::CUdeviceptr, bytes: &mut [u8]) -> Result<()> {
        let base = pinned(&mut self.back, context, 2 * Staging::PIECE)?.pointer;
        let mut arriving: Option<(&mut [u8], usize, Event)> = None;
        let mut from = from;
        for (number, piece) in bytes.chunks_mut(Staging::PIECE).enumerate() {
            let (half, length) = (number % 2 * Staging::PIECE, piece.len());
            // SAFETY: the half is inside the pinned memory; what arrived in it before was taken out a round ago.
            let result = unsafe { sys::cuMemcpyDtoHAsync_v2(base.add(half).cast(), from, length, context.stream()) };
            context.check(&format!("copying {length} bytes from the GPU"), result)?;
            from += length as u64;
            if let Some(earlier) = arriving.replace((piece, half, context.record()?)) {
                arrive(base, earlier)?;
            }
        }
        if let Some(last) = arriving {
            arrive(base, last)?;
        }
        context.synchronize()
    }
}

fn arrive(base: *mut u8, (bytes, half, arrived): (&mut [u8], usize, Event)) -> Result<()> {
    arrived.wait()?;
    // SAFETY: the copy into this half is done, and the next into it has not been started.
    bytes.copy_from_slice(unsafe { slice::from_raw_parts(base.add(half), bytes.len()) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_follow_each_other_and_begin_again_at_the_end() {
        assert_eq!(place(0, Staging::PIECE), 0..Staging::PIECE);
        assert_eq!(place(3 * Staging::PIECE, Staging::PIECE), 3 * Staging::PIECE..RING);
        assert_eq!(place(3 * Staging::PIECE + ALIGNMENT, Staging::PIECE), 0..Staging::PIECE);
    }
}
