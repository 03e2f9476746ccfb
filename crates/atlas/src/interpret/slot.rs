//! The values of a register in all lanes of a strip.

use bytemuck::Zeroable;
use elinvar_core::DType;
use elinvar_math::simd;

use super::ops::{self, elements_mut};

/// A cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

/// So many aligned bytes.
pub(super) fn lines_of(bytes: usize) -> Vec<Line> {
    vec![Line::zeroed(); bytes.div_ceil(64)]
}

/// Memory for the lanes of registers. What a register gives back is the first to be used again: it is still in the first cache.
pub(super) struct Tiles {
    free: Vec<Vec<Line>>,
    /// Lanes of a strip, and the bytes of the widest of them.
    pub(super) lanes: usize,
    width: usize,
}

impl Tiles {
    pub(super) fn new(lanes: usize, width: usize) -> Self {
        Self { free: Vec::new(), lanes, width }
    }

    /// Memory for the lanes of a register of any type.
    pub(super) fn take(&mut self) -> Vec<Line> {
        self.free.pop().unwrap_or_else(|| lines_of(self.lanes * self.width))
    }

    /// Takes memory back, if it is any.
    pub(super) fn give(&mut self, data: Vec<Line>) {
        if !data.is_empty() {
            self.free.push(data);
        }
    }
}

/// What is known of a register's lanes. At least one of the forms holds; `data` does if it is filled.
pub(super) struct Slot<'a> {
    pub(super) dtype: DType,
    data: Vec<Line>,
    filled: bool,
    /// Every lane has these bits.
    pub(super) uniform: Option<u64>,
    /// Lane `i` is this number and `i`.
    pub(super) first: Option<u64>,
    /// The lanes lie in a buffer that nobody writes.
    pub(super) view: Option<&'a [u8]>,
}

impl<'a> Slot<'a> {
    pub(super) fn new(dtype: DType) -> Self {
        Self { dtype, data: Vec::new(), filled: false, uniform: None, first: None, view: None }
    }

    /// Forgets the value.
    pub(super) fn clear(&mut self) {
        (self.filled, self.uniform, self.first, self.view) = (false, None, None, None);
    }

    pub(super) fn set_uniform(&mut self, bits: u64) {
        self.clear();
        self.uniform = Some(bits);
    }

    pub(super) fn set_first(&mut self, first: u64) {
        self.clear();
        self.first = Some(first);
    }

    pub(super) fn set_view(&mut self, view: &'a [u8]) {
        self.clear();
        self.view = Some(view);
    }

    /// Takes lanes.
    pub(super) fn set_data(&mut self, data: Vec<Line>, tiles: &mut Tiles) {
        self.release(tiles);
        (self.data, self.filled) = (data, true);
    }

    /// Makes sure that the lanes lie in memory.
    pub(super) fn fill(&mut self, tiles: &mut Tiles) {
        if self.filled || self.view.is_some() {
            return;
        }
        self.own(tiles);
        let bytes = tiles.lanes * self.dtype.size();
        let out = &mut bytemuck::cast_slice_mut(&mut self.data)[..bytes];
        if let Some(first) = self.first {
            count_up(self.dtype, first, out);
        } else {
            ops::splat(self.dtype.size(), self.uniform.unwrap_or(0), out);
        }
        self.filled = true;
    }

    /// Forgets a value that nothing uses again, and gives its memory back.
    pub(super) fn release(&mut self, tiles: &mut Tiles) {
        self.clear();
        tiles.give(std::mem::take(&mut self.data));
    }

    fn own(&mut self, tiles: &mut Tiles) {
        if self.data.is_empty() {
            self.data = tiles.take();
        }
    }

    /// The first lanes, which [`Slot::fill`] has put in memory.
    pub(super) fn bytes(&self, lanes: usize) -> &[u8] {
        let bytes = lanes * self.dtype.size();
        match self.view {
            Some(view) => &view[..bytes],
            None => bytemuck::cast_slice(&self.data).get(..bytes).unwrap_or(&[]),
        }
    }

    /// Takes those lanes of `new` that are set in the mask.
    pub(super) fn blend(&mut self, mask: &[u8], new: &[u8], tiles: &mut Tiles) {
        self.fill(tiles);
        if let Some(view) = self.view.take() {
            self.own(tiles);
            bytemuck::cast_slice_mut(&mut self.data)[..view.len()].copy_from_slice(view);
        }
        let old = &mut bytemuck::cast_slice_mut(&mut self.data)[..new.len()];
        ops::blend(self.dtype.size(), mask, new, old);
        (self.filled, self.uniform, self.first) = (true, None, None);
    }
}

simd! {
    fn count_up_32(first: u32, out: &mut [u8]) {
        for (lane, out) in elements_mut::<u32>(out).iter_mut().enumerate() {
            *out = first.wrapping_add(lane as u32);
        }
    }
}

simd! {
    fn count_up_64(first: u64, out: &mut [u8]) {
        for (lane, out) in elements_mut::<u64>(out).iter_mut().enumerate() {
            *out = first.wrapping_add(lane as u64);
        }
    }
}

pub(super) fn count_up(dtype: DType, first: u64, out: &mut [u8]) {
    if dtype.size() == 8 { count_up_64(first, out) } else { count_up_32(first as u32, out) }
}

/// The largest value of an index type.
pub(super) fn largest(dtype: DType) -> Option<u64> {
    match dtype {
        DType::U32 => Some(u64::from(u32::MAX)),
        DType::I32 => Some(i32::MAX as u64),
        DType::U64 => Some(u64::MAX),
        DType::I64 => Some(i64::MAX as u64),
        DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::Bool => None,
    }
}
