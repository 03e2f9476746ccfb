//! What a program visits: where the operands' elements lie, and what a thread takes of them.

use elinvar_core::{Layout, Result, Shape};
use elinvar_kernels::TensorInfo;

/// Words of 16 bytes that a thread has under way at once.
pub(super) const MAX_WORDS: usize = 4;

/// Where an operand's elements lie: the first, and the steps along the axes of the space.
pub(super) struct Place {
    pub(super) origin: usize,
    pub(super) strides: Vec<isize>,
}

impl Place {
    /// In what origin and steps are counted: words of `width` elements if all that it touches is made of those.
    pub(super) fn unit(&self, width: usize) -> usize {
        let Some((&1, outer)) = self.strides.split_last() else { return 1 };
        let is_whole = self.origin.is_multiple_of(width) && outer.iter().all(|stride| stride.unsigned_abs().is_multiple_of(width));
        if is_whole { width } else { 1 }
    }
}

/// What is visited: neighbouring axes that every operand steps through evenly are one.
pub(super) struct Space {
    pub(super) extents: Vec<usize>,
    pub(super) places: Vec<Place>,
}

impl Space {
    /// # Errors
    /// An operand that does not broadcast to the shape.
    pub(super) fn new(shape: Shape, operands: &[TensorInfo]) -> Result<Self> {
        let layouts = operands.iter().map(|info| info.layout.broadcast_to(shape)).collect::<Result<Vec<Layout>>>()?;
        let place = |layout: &Layout| Place { origin: layout.offset(), strides: Vec::new() };
        let mut space = Space { extents: Vec::new(), places: layouts.iter().map(place).collect() };
        for (axis, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
            let strides = || layouts.iter().map(|layout| layout.strides()[axis]);
            let mut known = space.places.iter().zip(strides());
            if !space.extents.is_empty() && known.all(|(place, stride)| place.strides.last() == Some(&(stride * extent as isize))) {
                space.extents.last_mut().into_iter().for_each(|last| *last *= extent);
                space.places.iter_mut().zip(strides()).for_each(|(place, stride)| place.strides.last_mut().into_iter().for_each(|s| *s = stride));
            } else {
                space.extents.push(extent);
                space.places.iter_mut().zip(strides()).for_each(|(place, stride)| place.strides.push(stride));
            }
        }
        if space.extents.is_empty() {
            space.extents.push(1);
            space.places.iter_mut().for_each(|place| place.strides.push(1));
        }
        Ok(space)
    }

    pub(super) fn rank(&self) -> usize {
        self.extents.len()
    }
}

/// What a thread takes: `words` times `width` neighbouring elements, a block's width apart. On the CPU there is none: a lane takes one element.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    pub(super) width: usize,
    pub(super) words: usize,
}

impl Tiling {
    /// Words of 16 bytes of the widest type, as far as rows are made of whole ones.
    pub(super) fn new(space: &Space, widest: usize) -> Self {
        let inner = space.extents[space.rank() - 1];
        let mut width = 16 / widest.max(2);
        while space.rank() > 1 && !inner.is_multiple_of(width) {
            width /= 2;
        }
        let words = if space.places.len() * 2 <= MAX_WORDS { 2 } else { 1 };
        Self { width, words: (words * 16 / widest.max(2)) / width }
    }
}
