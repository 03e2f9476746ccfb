use std::{fmt, ops::Deref, ops::Range};

use crate::error::{Error, Result};

/// The most dimensions a tensor may have.
pub const MAX_RANK: usize = 8;

/// The extents of a tensor, outermost first; a scalar has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_RANK],
    rank: usize,
}

impl Shape {
    /// The shape with these extents.
    ///
    /// # Errors
    /// More than [`MAX_RANK`] dimensions, or more elements than `isize` can count.
    pub fn new(dims: &[usize]) -> Result<Self> {
        if dims.len() > MAX_RANK {
            return Err(Error::invalid_argument(format!("shape {dims:?} has {} dimensions: at most {MAX_RANK} are supported", dims.len())));
        }
        // Extents of zero must not hide an overflow elsewhere: strides are computed from all of them.
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1)));
        if count.is_none_or(|n| n > isize::MAX as usize) {
            return Err(Error::invalid_argument(format!("shape {dims:?} has more elements than this machine can address")));
        }
        let mut shape = Shape { dims: [1; MAX_RANK], rank: dims.len() };
        shape.dims[..dims.len()].copy_from_slice(dims);
        Ok(shape)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of elements.
    #[inline]
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// Row-major strides, in elements.
    #[inline]
    pub fn contiguous_strides(&self) -> [isize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut step = 1isize;
        for axis in (0..self.rank).rev() {
            strides[axis] = step;
            step *= self.dims[axis].max(1) as isize;
        }
        strides
    }

    /// Resolves an axis that may count from the end (-1 is the last).
    ///
    /// # Errors
    /// An axis outside `-rank..rank`.
    pub fn axis(&self, axis: isize) -> Result<usize> {
        let rank = self.rank as isize;
        let found = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&found) {
            return Ok(found as usize);
        }
        Err(Error::invalid_argument(format!("axis {axis} is outside shape {self}: use {} to {}", -rank, rank - 1)))
    }

    /// The shape both broadcast to, by NumPy's rule: aligned at the last axis, equal or one.
    ///
    /// # Errors
    /// Extents that differ and are not one.
    pub fn broadcast(&self, other: &Shape) -> Result<Shape> {
        if self == other {
            return Ok(*self);
        }
        let rank = self.rank.max(other.rank);
        let mut dims = [1; MAX_RANK];
        for i in 0..rank {
            let a = if i < self.rank { self.dims[self.rank - 1 - i] } else { 1 };
            let b = if i < other.rank { other.dims[other.rank - 1 - i] } else { 1 };
            dims[rank - 1 - i] = match (a, b) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return Err(Error::invalid_argument(format!("shapes {self} and {other} do not broadcast: extents must be equal or 1"))),
            };
        }
        Shape::new(&dims[..rank])
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &**self)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where the elements of a tensor lie in its buffer: a shape, a stride for each axis and the first element's offset, all in elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    shape: Shape,
    strides: [isize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// Row-major from offset zero.
    pub fn contiguous(shape: Shape) -> Self {
        Layout { shape, strides: shape.contiguous_strides(), offset: 0 }
    }

    /// Elements at these distances from each other, one for each axis, the first at `offset`.
    ///
    /// # Errors
    /// Another number of strides than axes, or elements before the start of memory or beyond what this machine can address.
    pub fn strided(shape: Shape, strides: &[isize], offset: usize) -> Result<Self> {
        let reject = |why| Error::invalid_argument(format!("strides {strides:?} from element {offset} for shape {shape}: {why}"));
        if strides.len() != shape.rank {
            return Err(reject("expected one for each axis"));
        }
        let (mut low, mut high) = (offset as i128, offset as i128);
        for (extent, stride) in shape.iter().zip(strides) {
            let reach = (extent.saturating_sub(1) as i128) * *stride as i128;
            if reach < 0 { low += reach } else { high += reach }
        }
        if low < 0 || high >= isize::MAX as i128 {
            return Err(reject("elements lie outside what can be addressed"));
        }
        let mut all = [0; MAX_RANK];
        all[..shape.rank].copy_from_slice(strides);
        Ok(Layout { shape, strides: all, offset })
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Strides in elements, one for each axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides[..self.shape.rank]
    }

    /// Offset of the first element, in elements.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the elements are row-major without gaps (axes of extent one may have any stride).
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let expected = self.shape.contiguous_strides();
        self.shape.elements() == 0 || self.shape.iter().enumerate().all(|(i, &extent)| extent == 1 || self.strides[i] == expected[i])
    }

    /// The half-open range of elements the layout touches (empty for an empty tensor).
    #[inline]
    pub fn span(&self) -> Range<usize> {
        if self.shape.elements() == 0 {
            return self.offset..self.offset;
        }
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (extent, stride) in self.shape.iter().zip(self.strides()) {
            let reach = (*extent as isize - 1) * stride;
            if reach < 0 { low += reach } else { high += reach }
        }
        low as usize..high as usize + 1
    }

    /// The first element's position inside [`Layout::span`]: above zero only with negative strides.
    #[inline]
    pub fn origin(&self) -> usize {
        self.offset - self.span().start
    }

    /// The same layout relative to the start of its span: what a kernel sees when exactly the span is bound.
    #[inline]
    pub fn rebased(&self) -> Layout {
        Layout { offset: self.origin(), ..*self }
    }

    /// The same layout of elements that lie `count` further.
    pub fn moved(&self, count: usize) -> Layout {
        Layout { offset: self.offset + count, ..*self }
    }

    /// The axes in another order.
    ///
    /// # Errors
    /// `axes` is no permutation of this layout's axes.
    pub fn permute(&self, axes: &[usize]) -> Result<Layout> {
        let mut seen = [false; MAX_RANK];
        let fits = axes.len() == self.shape.rank && axes.iter().all(|&a| a < self.shape.rank && !std::mem::replace(&mut seen[a], true));
        if !fits {
            return Err(Error::invalid_argument(format!("{axes:?} is no permutation of the axes of shape {}", self.shape)));
        }
        let mut out = *self;
        for (to, &from) in axes.iter().enumerate() {
            out.shape.dims[to] = self.shape.dims[from];
            out.strides[to] = self.strides[from];
        }
        Ok(out)
    }

    /// Repeats axes of extent one (stride zero) to reach `shape`, by NumPy's rule.
    ///
    /// # Errors
    /// A shape this one does not broadcast to.
    pub fn broadcast_to(&self, shape: Shape) -> Result<Layout> {
        if self.shape == shape {
            return Ok(*self);
        }
        if self.shape.broadcast(&shape).ok() != Some(shape) {
            return Err(Error::invalid_argument(format!("shape {} does not broadcast to {shape}", self.shape)));
        }
        let mut strides = [0; MAX_RANK];
        let lead = shape.rank - self.shape.rank;
        for i in 0..self.shape.rank {
            strides[lead + i] = if self.shape.dims[i] == 1 { 0 } else { self.strides[i] };
        }
        Ok(Layout { shape, strides, offset: self.offset })
    }

    /// `count` elements of one axis from `start`, at a distance of `step` (negative walks backwards).
    ///
    /// # Errors
    /// An axis or an element outside the shape, or a step of zero.
    pub fn slice(&self, axis: usize, start: usize, count: usize, step: isize) -> Result<Layout> {
        let reject = || Error::invalid_argument(format!("slice of axis {axis} ({count} from {start}, step {step}) is outside shape {}", self.shape));
        if axis >= self.shape.rank || step == 0 {
            return Err(reject());
        }
        let extent = self.shape.dims[axis];
        if count > 0 {
            let reach = isize::try_from(count - 1).ok().and_then(|n| n.checked_mul(step)).and_then(|r| r.checked_add(start as isize));
            if start >= extent || reach.is_none_or(|last| last < 0 || last as usize >= extent) {
                return Err(reject());
            }
        }
        let mut out = *self;
        out.shape.dims[axis] = count;
        if count > 0 {
            out.offset = (self.offset as isize + start as isize * self.strides[axis]) as usize;
        }
        out.strides[axis] = self.strides[axis].checked_mul(step).ok_or_else(reject)?;
        Ok(out)
    }

    /// The same elements under another shape, where no copy is needed: `Some` for a contiguous layout.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn reshape(&self, shape: Shape) -> Result<Option<Layout>> {
        if shape.elements() != self.shape.elements() {
            return Err(Error::invalid_argument(format!(
                "cannot reshape {} ({} elements) to {shape} ({} elements)",
                self.shape,
                self.shape.elements(),
                shape.elements()
            )));
        }
        Ok(self.is_contiguous().then(|| Layout { offset: self.offset, ..Layout::contiguous(shape) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn broadcasting_follows_numpy() {
        assert_eq!(shape(&[4, 1, 3]).broadcast(&shape(&[5, 1])).unwrap(), shape(&[4, 5, 3]));
        assert_eq!(shape(&[]).broadcast(&shape(&[0])).unwrap(), shape(&[0]));
        assert!(shape(&[2]).broadcast(&shape(&[3])).unwrap_err().is_invalid_argument());
    }

    #[test]
    fn slices_with_negative_steps_stay_inside_their_span() {
        let layout = Layout::contiguous(shape(&[3, 5])).slice(1, 4, 3, -2).unwrap();
        assert_eq!((layout.offset(), layout.strides()), (4, &[5, -2][..]));
        assert_eq!((layout.span(), layout.origin()), (0..15, 4));
        assert!(Layout::contiguous(shape(&[3])).slice(0, 1, 3, 1).is_err());
        assert!(Layout::contiguous(shape(&[3])).slice(0, 2, 4, -1).is_err());
        assert!(Layout::contiguous(shape(&[3])).slice(0, 3, 0, 1).is_ok());
    }

    #[test]
    fn strides_are_checked_against_what_can_be_addressed() {
        let transposed = Layout::contiguous(shape(&[2, 3])).permute(&[1, 0]).unwrap();
        assert_eq!(Layout::strided(shape(&[3, 2]), &[1, 3], 0).unwrap(), transposed);
        assert_eq!(Layout::strided(shape(&[3]), &[-2], 4).unwrap().span(), 0..5);
        assert!(Layout::strided(shape(&[3]), &[-2], 3).unwrap_err().is_invalid_argument());
        assert!(Layout::strided(shape(&[3]), &[isize::MAX], 0).is_err());
        assert!(Layout::strided(shape(&[3]), &[], 0).is_err());
    }

    #[test]
    fn permuted_layouts_are_not_contiguous_and_unit_axes_do_not_matter() {
        let layout = Layout::contiguous(shape(&[2, 1, 3]));
        assert!(layout.permute(&[1, 0, 2]).unwrap().is_contiguous());
        assert!(!layout.permute(&[2, 1, 0]).unwrap().is_contiguous());
        assert!(layout.permute(&[0, 0, 2]).is_err());
    }

    #[test]
    fn oversized_shapes_are_rejected_even_with_a_zero_extent() {
        assert!(Shape::new(&[usize::MAX, 2]).is_err());
        assert!(Shape::new(&[0, usize::MAX, 2]).is_err());
        assert!(Shape::new(&[1; MAX_RANK + 1]).is_err());
    }
}
