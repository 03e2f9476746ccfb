//! Axes put in, taken out, cut and joined; elements by index.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use elinvar_core::{Element, Error, Layout, Result, Shape};
use elinvar_kernels::copy::Reshape;

use crate::tensor::Tensor;

/// What is taken of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisIndex {
    /// One entry; the axis goes.
    At(usize),
    /// A range of entries, to the end if that is `None`.
    Range(usize, Option<usize>),
}

impl From<usize> for AxisIndex {
    fn from(at: usize) -> Self {
        AxisIndex::At(at)
    }
}

macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl From<$range> for AxisIndex {
            fn from(range: $range) -> Self {
                let start = match RangeBounds::<usize>::start_bound(&range) {
                    Bound::Included(&start) => start,
                    Bound::Excluded(&start) => start.saturating_add(1),
                    Bound::Unbounded => 0,
                };
                let end = match RangeBounds::<usize>::end_bound(&range) {
                    Bound::Included(&end) => Some(end.saturating_add(1)),
                    Bound::Excluded(&end) => Some(end),
                    Bound::Unbounded => None,
                };
                AxisIndex::Range(start, end)
            }
        }
    )*};
}
ranges!(Range<usize>, RangeFrom<usize>, RangeFull, RangeInclusive<usize>, RangeTo<usize>, RangeToInclusive<usize>);

/// What is taken of the first axes: one index or a tuple of them.
pub trait TensorIndex {
    /// An index for each axis, the outermost first.
    fn axes(self) -> Vec<AxisIndex>;
}

impl<I: Into<AxisIndex>> TensorIndex for I {
    fn axes(self) -> Vec<AxisIndex> {
        vec![self.into()]
    }
}

macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl<$($name: Into<AxisIndex>),+> TensorIndex for ($($name,)+) {
            #[allow(non_snake_case)]
            fn axes(self) -> Vec<AxisIndex> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    )*};
}
tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}

impl Tensor {
    /// A view of what the index names, as in NumPy: numbers take one entry and drop the axis, ranges take several.
    ///
    /// ```
    /// use elinvar::Executor;
    ///
    /// let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!(x.i(1)?.to_vec::<f32>()?, [4.0, 5.0, 6.0]);
    /// assert_eq!(x.i((.., 0))?.to_vec::<f32>()?, [1.0, 4.0]);
    /// assert_eq!(x.i((1, 1..))?.to_vec::<f32>()?, [5.0, 6.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// More indices than axes, or one outside its axis.
    pub fn i(&self, index: impl TensorIndex) -> Result<Tensor> {
        let (mut view, mut axis) = (self.clone(), 0);
        let indices = index.axes();
        if indices.len() > self.shape().rank() {
            return Err(Error::invalid_argument(format!(
                "{} indices of a tensor {}: it has {} axes",
                indices.len(),
                self.shape(),
                self.shape().rank()
            )));
        }
        for index in indices {
            let extent = view.shape()[axis];
            match index {
                AxisIndex::At(at) => view = view.slice(axis as isize, at, 1, 1)?.squeeze(axis as isize)?,
                AxisIndex::Range(start, end) => {
                    let end = end.unwrap_or(extent);
                    if start > end || end > extent {
                        return Err(Error::invalid_argument(format!("entries {start} to {end} of an axis of {extent}")));
                    }
                    view = view.slice(axis as isize, start, end - start, 1)?;
                    axis += 1;
                }
            }
        }
        Ok(view)
    }

    /// A view without an axis of extent one; a negative axis counts from the end.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 1], &[1i32, 2])?;
    /// assert_eq!(x.squeeze(-1)?.shape().to_vec(), [2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside the shape, or of another extent.
    pub fn squeeze(&self, axis: isize) -> Result<Tensor> {
        let axis = self.shape().axis(axis)?;
        if self.shape()[axis] != 1 {
            return Err(Error::invalid_argument(format!("squeeze of axis {axis} of {}: its extent is not 1", self.shape())));
        }
        let strides = self.layout().strides();
        self.with_axes(&[&self.shape()[..axis], &self.shape()[axis + 1..]].concat(), &[&strides[..axis], &strides[axis + 1..]].concat())
    }

    /// A view with axes of extent one more or less: elements with gaps need no copy.
    fn with_axes(&self, dims: &[usize], strides: &[isize]) -> Result<Tensor> {
        let layout = Layout::strided(Shape::new(dims)?, strides, self.layout().offset())?;
        Ok(self.view_by(layout, || Reshape { shape: dims.iter().map(|&extent| extent as isize).collect(), allow_zero: true }))
    }

    /// A view with an axis of extent one at `axis`; a negative one counts from the end of the new shape.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2], &[1i32, 2])?;
    /// assert_eq!(x.unsqueeze(0)?.shape().to_vec(), [1, 2]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside the new shape, or too many axes.
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let rank = self.shape().rank() + 1;
        let place = if axis < 0 { axis + rank as isize } else { axis };
        let place = usize::try_from(place).ok().filter(|&place| place < rank);
        let place =
            place.ok_or_else(|| Error::invalid_argument(format!("unsqueeze at axis {axis} of {}: -{rank} to {} are", self.shape(), rank - 1)))?;
        let (dims, strides) = (self.shape(), self.layout().strides());
        // Of what has no gaps the view has none, either.
        let stride = dims.get(place).map_or(1, |extent| *extent as isize * strides[place]);
        self.with_axes(&[&dims[..place], &[1], &dims[place..]].concat(), &[&strides[..place], &[stride], &strides[place..]].concat())
    }

    /// The elements in one axis.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[2, 2], &[1i32, 2, 3, 4])?;
    /// assert_eq!(x.flatten()?.shape().to_vec(), [4]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Out of memory, where they are not row-major.
    pub fn flatten(&self) -> Result<Tensor> {
        self.reshape(&[self.shape().elements()])
    }

    /// Tensors of one shape side by side along a new axis.
    ///
    /// ```
    /// use elinvar::{Executor, Tensor};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (a, b) = (executor.tensor(&[2], &[1f32, 2.0])?, executor.tensor(&[2], &[3f32, 4.0])?);
    /// assert_eq!(Tensor::stack(&[&a, &b], 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// No tensors, shapes that differ, or an axis outside the new shape.
    pub fn stack(tensors: &[&Tensor], axis: isize) -> Result<Tensor> {
        let Some(first) = tensors.first() else { return Err(Error::invalid_argument("stack of no tensors: give at least one")) };
        if let Some(other) = tensors.iter().find(|other| other.shape() != first.shape()) {
            return Err(Error::invalid_argument(format!("stack of {} and {}: tensors of one shape are stacked", first.shape(), other.shape())));
        }
        let parts = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<Vec<_>>>()?;
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), axis)
    }

    /// Views of consecutive parts of an axis, of these extents.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let parts = executor.tensor(&[3], &[1i32, 2, 3])?.split(&[1, 2], 0)?;
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside the shape, or extents that do not add up to its own.
    pub fn split(&self, sizes: &[usize], axis: isize) -> Result<Vec<Tensor>> {
        let extent = self.shape()[self.shape().axis(axis)?];
        if sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)) != Some(extent) {
            return Err(Error::invalid_argument(format!("split of an axis of {extent} into {sizes:?}: they must add up to it")));
        }
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            self.slice(axis, start - size, size, 1)
        };
        sizes.iter().map(part).collect()
    }

    /// The element of a tensor that has one.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// assert_eq!(executor.tensor(&[1, 1], &[2.5f32])?.item::<f32>()?, 2.5);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Another number of elements, another type, or a failed device.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.to_vec::<T>()?[..] {
            [element] => Ok(element),
            ref elements => Err(Error::invalid_argument(format!("item of {} with {} elements: one is expected", self.shape(), elements.len()))),
        }
    }
}
