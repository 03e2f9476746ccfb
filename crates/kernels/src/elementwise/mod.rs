//! The frame of every operator that visits elements in row-major order: collapsed dimensions, strided and broadcast operands.
//!
//! A plan collapses the axes of all operands together ([`Space::collapse`]); a CPU kernel then hands contiguous blocks to one vectorised
//! loop, and whatever is not contiguous is first gathered into a block that stays in L1 ([`blocks`]). Each output element is computed by
//! itself, so nothing depends on the blocks or on the threads.

pub(crate) mod blocks;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod check;
pub(crate) mod dispatch;
pub(crate) mod halves;
pub(crate) mod number;
mod op;
pub(crate) mod scalar;
pub(crate) mod stream;

pub use op::ElementOp;

use elinvar_core::{DType, Error, Extent, KernelKey, Layout, MAX_RANK, MetalFile, Result, Shape};

use crate::{
    Launch, TensorInfo,
    metal::{metal_file, params},
};

params! {
    /// The extents visited, outermost first; neighbouring axes that every operand steps through evenly are one.
    pub struct Space {
        /// Number of elements.
        pub count: u64,
        /// Number of axes, at least one.
        pub rank: u64,
        /// Extents; those beyond `rank` are 1.
        pub extents: [u64; MAX_RANK],
    }
}

params! {
    /// Where one operand's elements lie.
    pub struct Operand {
        /// Index of the first element in what is bound.
        pub origin: u64,
        /// Step along each axis of the space, in elements: zero where the operand is broadcast, negative where it runs backwards.
        pub strides: [i64; MAX_RANK],
    }
}

params! {
    /// Tensors of one shape whose elements lie in the order they are visited.
    pub(crate) struct Dense {
        /// Number of elements.
        pub count: u64,
        /// The first elements of the inputs.
        pub origins: [u64; 2],
        /// A function's parameter, if it has one.
        pub alpha: f32,
        /// Zero.
        pub padding: u32,
    }
}

/// The frame in Metal, after [`Space`] and [`Operand`].
pub(crate) const METAL: MetalFile = metal_file!("elementwise/elementwise.metal");

impl Space {
    /// Collapses operands of one shape, whose offsets count from the start of what is bound.
    pub fn collapse<const N: usize>(layouts: [&Layout; N]) -> (Space, [Operand; N]) {
        let shape = layouts[0].shape();
        let mut space = Space { count: shape.elements() as u64, rank: 0, extents: [1; MAX_RANK] };
        let mut operands = layouts.map(|l| Operand { origin: l.offset() as u64, strides: [0; MAX_RANK] });
        if shape.elements() == 0 {
            space.rank = 1;
            space.extents[0] = 0;
            return (space, operands);
        }
        for (axis, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
            let stride = |i: usize| layouts[i].strides()[axis] as i64;
            let last = (space.rank as usize).wrapping_sub(1);
            let merges = space.rank > 0 && operands.iter().enumerate().all(|(i, o)| o.strides[last] == stride(i) * extent as i64);
            let slot = if merges { last } else { space.rank as usize };
            space.rank = slot as u64 + 1;
            space.extents[slot] *= extent as u64;
            for (i, operand) in operands.iter_mut().enumerate() {
                operand.strides[slot] = stride(i);
            }
        }
        space.rank = space.rank.max(1);
        (space, operands)
    }

    /// Broadcasts tensors to one shape and collapses them.
    ///
    /// # Errors
    /// Shapes that do not broadcast to `shape`.
    pub fn broadcast<const N: usize>(shape: Shape, tensors: [&TensorInfo; N]) -> Result<(Space, [Operand; N])> {
        if tensors.iter().all(|tensor| *tensor.shape() == shape) {
            return Ok(Space::collapse(tensors.map(|tensor| &tensor.layout)));
        }
        let mut layouts = tensors.map(|t| t.layout);
        for layout in &mut layouts {
            *layout = layout.broadcast_to(shape)?;
        }
        Ok(Space::collapse(layouts.each_ref()))
    }

    /// The axes.
    pub fn axes(&self) -> &[u64] {
        &self.extents[..(self.rank as usize).min(MAX_RANK)]
    }

    /// Elements visited.
    pub fn elements(&self) -> usize {
        self.count as usize
    }

    /// Extent of the innermost axis.
    pub fn inner(&self) -> usize {
        self.axes().last().map_or(1, |&n| n as usize)
    }
}

impl Dense {
    /// Of the operands of a space that are linear.
    pub(crate) fn new(space: &Space, origins: [u64; 2], alpha: f32) -> Self {
        Self { count: space.count, origins, alpha, padding: 0 }
    }
}

impl Operand {
    /// Whether the elements lie one after the other in the order they are visited.
    pub fn is_linear(&self, space: &Space) -> bool {
        let mut step = 1;
        space.axes().iter().zip(&self.strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == step;
            step *= extent as i64;
            fits
        })
    }

    /// Whether there is only one element.
    pub fn is_constant(&self, space: &Space) -> bool {
        space.axes().iter().zip(&self.strides).all(|(&extent, &stride)| extent == 1 || stride == 0)
    }

    /// Checks that every element lies in a buffer of `length` elements.
    ///
    /// # Errors
    /// One does not.
    pub fn check(&self, space: &Space, length: usize) -> Result<()> {
        if space.elements() == 0 {
            return Ok(());
        }
        let (mut low, mut high) = (i128::from(self.origin), i128::from(self.origin));
        for (&extent, &stride) in space.axes().iter().zip(&self.strides) {
            let reach = (i128::from(extent) - 1) * i128::from(stride);
            if reach < 0 { low += reach } else { high += reach }
        }
        if low < 0 || high >= length as i128 {
            return Err(Error::invalid_launch(format!("elements {low} to {high} are asked of a buffer of {length}")));
        }
        Ok(())
    }
}

/// Threads of a threadgroup.
pub(crate) const THREADS: usize = 256;

/// Elements a thread takes at once.
const SLOTS: usize = 8;

/// The launch over `elements` elements: each thread takes eight.
pub(crate) fn over_elements(launch: Launch, elements: usize) -> Launch {
    over_threads(launch, elements.div_ceil(SLOTS))
}

/// The launch of at least so many threads.
pub(crate) fn over_threads(launch: Launch, threads: usize) -> Launch {
    over_groups(launch, threads.div_ceil(THREADS))
}

/// Bytes of a thread's word in tensors without gaps.
const WORD: usize = 16;

/// Adds the size of words to the key of a kernel for tensors without gaps.
pub(crate) fn with_words(key: KernelKey) -> KernelKey {
    key.with("bytes", WORD as u32)
}

/// The launch over `elements` elements of `size` bytes: each thread takes a word.
pub(crate) fn over_words(launch: Launch, elements: usize, size: usize) -> Launch {
    over_threads(launch, elements.div_ceil(WORD / size))
}

/// The launch of so many threadgroups.
pub(crate) fn over_groups(launch: Launch, groups: usize) -> Launch {
    launch.over(Extent::linear(groups.min(u32::MAX as usize) as u32), Extent::linear(THREADS as u32))
}

/// The unsigned type that stores the bits of a data type: kernels that only move elements exist once for each size.
pub(crate) fn storage(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dims: &[usize]) -> TensorInfo {
        TensorInfo::new(DType::F32, dims).unwrap()
    }

    #[test]
    fn axes_that_all_operands_step_through_evenly_are_one() {
        let (a, b) = (info(&[2, 3, 1, 4]), info(&[2, 3, 5, 4]));
        let shape = *b.shape();
        assert_eq!(Space::broadcast(shape, [&b, &b]).unwrap().0.axes(), [120]);
        let (space, [x, y]) = Space::broadcast(shape, [&a, &b]).unwrap();
        assert_eq!(space.axes(), [6, 5, 4]);
        assert_eq!((&x.strides[..3], &y.strides[..3]), (&[4, 0, 1][..], &[20, 4, 1][..]));
        assert!(y.is_linear(&space) && !x.is_linear(&space) && !x.is_constant(&space));
        let (space, [x]) = Space::broadcast(shape, [&info(&[])]).unwrap();
        assert!(x.is_constant(&space) && space.axes() == [120]);
    }

    #[test]
    fn scalars_and_empty_tensors_have_one_axis() {
        let scalar = info(&[]);
        let (space, [x]) = Space::broadcast(*scalar.shape(), [&scalar]).unwrap();
        assert_eq!(space.axes(), [1]);
        assert!(x.is_linear(&space) && x.is_constant(&space));
        let empty = info(&[3, 0, 2]);
        let (space, [x]) = Space::broadcast(*empty.shape(), [&empty]).unwrap();
        assert_eq!((space.axes(), space.elements()), (&[0][..], 0));
        assert!(x.check(&space, 0).is_ok());
    }

    #[test]
    fn threads_and_their_elements_are_as_many_in_metal() {
        assert!(METAL.text.contains(&format!("THREADS = {THREADS};")));
        assert!(crate::metal::TYPES.text.contains(&format!("SLOTS = {SLOTS};")));
    }

    #[test]
    fn reach_is_checked_in_both_directions() {
        let layout = info(&[4, 3]).layout.slice(0, 3, 4, -1).unwrap();
        let (space, [x]) = Space::collapse([&layout]);
        assert!(x.check(&space, 12).is_ok());
        assert!(x.check(&space, 11).is_err());
        assert!(Operand { origin: 2, ..x }.check(&space, 12).is_err());
    }
}
