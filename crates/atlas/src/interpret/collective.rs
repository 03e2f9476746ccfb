//! Reductions and shuffles. A simdgroup is reduced by lanes 16, 8, 4, 2, 1 apart, the simdgroups of a block in index order; halves are
//! reduced in f32 and rounded once.

use elinvar_core::DType;

use super::{
    ops::{self, Two, elements, elements_mut},
    strip::{Strip, bytes, bytes_mut, narrow, widen},
};
use crate::program::{Scope, Shuffle};

/// Threads of a simdgroup.
const SIMD: usize = 32;

impl Strip<'_> {
    pub(super) fn reduce(&mut self, scope: Scope, kernel: Two, half: bool, to: u32, a: u32, blend: bool) {
        if self.active.is_none() {
            return;
        }
        self.fill(a);
        let (lanes, dtype) = (self.lanes, self.slots[a as usize].dtype);
        let size = if half { 4 } else { dtype.size() };
        let mut copy = self.tiles.take();
        let values = bytes_mut(&mut copy, lanes * size);
        if half {
            widen(dtype, self.slots[a as usize].bytes(lanes), values);
        } else {
            values.copy_from_slice(self.slots[a as usize].bytes(lanes));
        }
        let mut results = [0u64; SIMD];
        let results = bytemuck::cast_slice_mut::<u64, u8>(&mut results);
        for group in values.chunks_exact_mut(SIMD * size) {
            let mut width = SIMD * size;
            while width > size {
                width /= 2;
                let (low, high) = group[..2 * width].split_at(width);
                kernel(low, high, &mut results[..width]);
                group[..width].copy_from_slice(&results[..width]);
            }
        }
        if scope == Scope::Group {
            let (total, rest) = values.split_at_mut(size);
            for other in rest.chunks_exact(size).skip(SIMD - 1).step_by(SIMD) {
                let result = &mut results[..size];
                kernel(total, other, result);
                total.copy_from_slice(result);
            }
        }
        let bits = |total: &[u8]| {
            let mut bits = [0u64; 1];
            let out = bytemuck::bytes_of_mut(&mut bits);
            if half {
                let mut aligned = [0u64; 1];
                bytemuck::bytes_of_mut(&mut aligned)[..4].copy_from_slice(total);
                narrow(dtype, &bytemuck::bytes_of(&aligned)[..4], &mut out[..2]);
            } else {
                out[..size].copy_from_slice(total);
            }
            bits[0]
        };
        if scope == Scope::Group || lanes == SIMD {
            let bits = bits(&values[..size]);
            self.tiles.give(copy);
            return self.set_uniform(to, bits, blend);
        }
        let (width, mut made) = (dtype.size(), self.tiles.take());
        let out = bytes_mut(&mut made, lanes * width);
        for (out, group) in out.chunks_exact_mut(SIMD * width).zip(values.chunks_exact(SIMD * size)) {
            ops::splat(width, bits(&group[..size]), out);
        }
        self.tiles.give(copy);
        self.commit(to, blend, made);
    }

    pub(super) fn shuffle(&mut self, kind: Shuffle, to: u32, a: u32, by: u32, blend: bool) {
        if self.active.is_none() {
            return;
        }
        self.fill(a);
        self.fill(by);
        let lanes = self.lanes;
        let (mut sources, mut made) = (self.tiles.take(), self.tiles.take());
        let source = bytes_mut(&mut sources, 4 * lanes);
        let by = elements::<u32>(self.slots[by as usize].bytes(lanes));
        for (lane, (source, &by)) in elements_mut::<u32>(source).iter_mut().zip(by).enumerate() {
            let own = (lane % SIMD) as u32;
            let from = match kind {
                Shuffle::Index => by % SIMD as u32,
                Shuffle::Xor => (own ^ by) % SIMD as u32,
                Shuffle::Up => own.checked_sub(by).unwrap_or(own),
                Shuffle::Down => own.checked_add(by).filter(|&from| from < SIMD as u32).unwrap_or(own),
            };
            *source = (lane - lane % SIMD) as u32 + from;
        }
        let value = self.slots[a as usize].bytes(lanes);
        let size = self.slots[a as usize].dtype.size();
        let (source, out) = (bytes(&sources, 4 * lanes), bytes_mut(&mut made, lanes * size));
        // SAFETY: the register's lanes are so many aligned elements.
        unsafe { ops::gather(DType::U32, size, value.as_ptr(), lanes as u64, source, out) };
        self.tiles.give(sources);
        self.commit(to, blend, made);
    }
}
