//! Reading and writing by index. Indices are i32, i64 or u32, negative ones count from the end, and one outside its axis is reported when a result is read.

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::{
    gather::{Gather, GatherElements, GatherNd},
    scatter::{Reduction, ScatterElements, ScatterNd},
};

use super::{operators, recorded};
use crate::tensor::Tensor;

operators! {
    /// The entries along `axis` that `indices` name: of `[A…, n, B…]` and indices `[I…]` the result is `[A…, I…, B…]`. With axis 0 of a
    /// `[vocabulary, width]` matrix: the embedding lookup.
    gather gather_into (&self, indices: &Tensor, axis: isize) => Gather { axis }, Some(indices);
    errors "An axis outside the shape, or indices of another type.";
    example "let (x, indices) = (executor.tensor(&[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0])?, executor.tensor(&[2], &[2i32, 0])?);";
    ("&indices", "0") => "[[5.0, 6.0],\\n [1.0, 2.0]]" of "DType::F32, &[2, 2]";

    /// The elements whose coordinate along `axis` is the index at their place (PyTorch's `gather`): `indices` has the rank of this tensor and is no larger
    /// but along the axis; the result has its shape.
    take_along_axis take_along_axis_into (&self, indices: &Tensor, axis: isize) => GatherElements { axis }, Some(indices);
    errors "Shapes that do not fit, an axis outside the shape, or indices of another type.";
    example "let (x, indices) = (executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?, executor.tensor(&[2, 1], &[1i32, 0])?);";
    ("&indices", "1") => "[[2.0],\\n [3.0]]" of "DType::F32, &[2, 1]";

    /// Slices by tuples of leading coordinates: of `[B…, d1…dk, S…]` and indices `[B…, I…, k]` the result is `[B…, I…, S…]`, with `batch_dims` axes `B…`.
    gather_nd gather_nd_into (&self, indices: &Tensor, batch_dims: usize) => GatherNd { batch_dims }, Some(indices);
    errors "Shapes that do not fit, or indices of another type.";
    example "let (x, indices) = (executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?, executor.tensor(&[2, 2], &[0i32, 1, 1, 0])?);";
    ("&indices", "0") => "[2.0, 3.0]" of "DType::F32, &[2]";

    /// This tensor with the elements whose coordinate along `axis` is the index at their place combined with `updates`, in ascending order of these;
    /// `indices` and `updates` have one shape, no larger than this tensor's but along the axis.
    scatter scatter_into scatter_ (&self, indices: &Tensor, updates: &Tensor, axis: isize, reduction: Reduction) =>
        ScatterElements { axis, reduction }, Some(indices), Some(updates);
    errors "Shapes or types that do not fit, an axis outside the shape, or bools with another reduction than none.";
    example "use elinvar::kernels::scatter::Reduction;\nlet x = executor.tensor(&[3], &[1i32, 2, 3])?;\n\
             let (indices, updates) = (executor.tensor(&[2], &[2i32, 2])?, executor.tensor(&[2], &[10i32, 20])?);";
    ("&indices", "&updates", "0", "Reduction::Add") => "[ 1,  2, 33]";

    /// This tensor `[d1…dk, S…]` with the slices that `indices [I…, k]` name combined with `updates [I…, S…]`, in ascending order of these.
    scatter_nd scatter_nd_into scatter_nd_ (&self, indices: &Tensor, updates: &Tensor, reduction: Reduction) =>
        ScatterNd { reduction }, Some(indices), Some(updates);
    errors "Shapes or types that do not fit, or bools with another reduction than none.";
    example "use elinvar::kernels::scatter::Reduction;\nlet x = executor.zeros(DType::I32, &[2, 2])?;\n\
             let (indices, updates) = (executor.tensor(&[1, 1], &[1i32])?, executor.tensor(&[1, 2], &[7i32, 8])?);";
    ("&indices", "&updates", "Reduction::None") => "[[0, 0],\\n [7, 8]]";
}

impl Tensor {
    /// A new axis of extent `depth` at `axis`, on which the entry that the element names is `values[1]` and all others are `values[0]`: of `values [2]`,
    /// whose type is the result's. Elements below zero count from the end, and those outside `depth` name no entry. See ONNX `OneHot`.
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let (x, values) = (executor.tensor(&[3], &[1i32, -1, 7])?, executor.tensor(&[2], &[0f32, 5.0])?);
    /// assert_eq!(x.one_hot(2, -1, &values)?.to_string(), "[[0.0, 5.0],\n [0.0, 5.0],\n [0.0, 0.0]]");
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside the result's shape, values of another shape, or too many axes.
    pub fn one_hot(&self, depth: usize, axis: isize, values: &Tensor) -> Result<Tensor> {
        if values.shape()[..] != [2] {
            return Err(Error::invalid_argument(format!("one_hot: values have shape {}: expected [2], of others and of the named", values.shape())));
        }
        let on = recorded([self, values]);
        let (x, values) = (on(self)?, on(values)?);
        let index = x.cast(DType::I64)?.unsqueeze(axis)?;
        let negative = index.lt(&index.number(0.into())?)?;
        let index = negative.select(&(&index + depth as i64)?, &index)?;
        let mut dims = vec![1; index.shape().rank()];
        dims[index.shape().axis(axis)?] = depth;
        let entries = self.executor().arange(DType::I64, 0, depth as i64, 1)?.reshape(&dims)?;
        index.eq(&entries)?.select(&values.i(1)?, &values.i(0)?)
    }
}
