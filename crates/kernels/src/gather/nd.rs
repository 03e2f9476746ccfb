//! Slices by tuples of coordinates.

use elinvar_core::{DType, DeviceProperties, Element, HostArguments, HostKernel, MAX_RANK, MetalFile, MetalForm, Result, Shape};

use super::{
    index::{self, Index, for_indices, outside},
    launch,
};
use crate::{
    Definition, Operator, Plan, Scalar, TensorInfo,
    attributes::attributes,
    copy::Concat,
    elementwise::{self, Operand, Space, blocks::TASK, dispatch::for_storage, over_elements},
    fill::Arange,
    gradient::Gradient,
    metal::{self, metal_file, params},
    parallel::for_each_part,
    scatter::{Reduction, ScatterNd},
    signature::{misshapen, no_kernel, operands},
};

/// Tuples in Metal, after [`index::METAL`] and [`TupleParams`].
pub(crate) const TUPLES: MetalFile = metal_file!("gather/tuples.metal");

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, index::METAL, TupleParams::METAL, TUPLES, metal_file!("gather/nd.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "gather_nd").with_error_flag(index::OUTSIDE);

attributes! {
    /// The slices of `x` whose leading coordinates (after the batch) are the tuples along the last axis of `indices`:
    /// `x [B…, d1…dk, S…]`, `indices [B…, I…, k]`, output `[B…, I…, S…]`.
    #[derive(Clone, Copy, Debug)]
    pub struct GatherNd {
        /// Number of leading axes that `x` and `indices` share.
        pub batch_dims: usize = 0,
    }
}

params! {
    /// The parameter block, also of the scatter by tuples.
    pub struct TupleParams {
        /// Tuples in all.
        pub tuples: u64,
        /// Tuples that share a batch.
        pub batch: u64,
        /// Coordinates of a tuple.
        pub coordinates: u64,
        /// Elements of a slice.
        pub inner: u64,
        /// Extents of the axes the coordinates name.
        pub extents: [u64; MAX_RANK],
        /// The first of these axes, for messages.
        pub axis: u64,
    }
}

impl TupleParams {
    /// For row-major `x` and `indices`; also the shape of the tuples and of what they name.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub(crate) fn new(x: &TensorInfo, indices: &TensorInfo, batch_dims: usize) -> Result<(Self, Shape)> {
        let (from, by) = (x.shape(), indices.shape());
        let reject = |expected: &str| misshapen!(indices, x, batch_dims = batch_dims; "{expected}");
        let Some((&coordinates, tuples)) = by.split_last() else {
            return Err(reject("a last axis of indices that holds the coordinates"));
        };
        if batch_dims > tuples.len() || from.get(..batch_dims) != tuples.get(..batch_dims) {
            return Err(reject("both to begin with the batch axes"));
        }
        if batch_dims + coordinates > from.rank() {
            return Err(reject("at most as many coordinates in a tuple as x has axes after the batch"));
        }
        let (named, rest) = from[batch_dims..].split_at(coordinates);
        let mut extents = [1; MAX_RANK];
        extents.iter_mut().zip(named).for_each(|(e, &n)| *e = n as u64);
        let product = |dims: &[usize]| dims.iter().product::<usize>() as u64;
        let params = Self {
            tuples: product(tuples),
            batch: product(&tuples[batch_dims..]),
            coordinates: coordinates as u64,
            inner: product(rest),
            extents,
            axis: batch_dims as u64,
        };
        Ok((params, Shape::new(&[tuples, rest].concat())?))
    }

    /// The number of the slice that tuple `number` names, if it is inside.
    #[inline(always)]
    pub(crate) fn slice<I: Index>(&self, number: usize, tuple: &[I]) -> Option<usize> {
        let start = number / (self.batch as usize).max(1);
        tuple.iter().zip(&self.extents).try_fold(start, |at, (index, &extent)| Some(at * extent as usize + index.resolve(extent as usize)?))
    }

    /// Checks every tuple, before anything is moved.
    ///
    /// # Errors
    /// The first coordinate outside its axis.
    pub(crate) fn check<I: Index>(&self, indices: &[I]) -> Result<()> {
        let coordinates = (self.coordinates as usize).max(1);
        for (number, tuple) in indices.chunks_exact(coordinates).enumerate() {
            for (i, (index, &extent)) in tuple.iter().zip(&self.extents).enumerate() {
                if index.resolve(extent as usize).is_none() {
                    return Err(outside(*index, number * coordinates + i, self.axis as usize + i, extent as usize));
                }
            }
        }
        Ok(())
    }

    /// The coordinates of tuple `number`.
    #[inline(always)]
    pub(crate) fn tuple<'a, I>(&self, indices: &'a [I], number: usize) -> &'a [I] {
        let coordinates = self.coordinates as usize;
        &indices[number * coordinates..][..coordinates]
    }
}

operands! {
    pub(super) mod operands {
        x: read(DType::ALL) bits, "[B…, d1…dk, S…]";
        indices: read(index::TYPES), "[B…, I…, k]; negative ones count from the end";
        -> y: write(like x) bits, "[B…, I…, S…]";
    }
}

impl Operator for GatherNd {
    fn name(&self) -> &'static str {
        "gather_nd"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, indices } = operands::Inputs::new(inputs)?;
        let (_, shape) = TupleParams::new(&x, &indices, self.batch_dims)?;
        Ok(vec![TensorInfo::of(x.dtype, shape)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let operands::Inputs { x, indices } = inputs;
        let (params, _) = TupleParams::new(&x, &indices, self.batch_dims)?;
        let kernel: Option<HostKernel> = for_storage!(x.dtype, T => for_indices!(indices.dtype, I => run::<T, I>));
        let kernel = kernel.ok_or_else(|| no_kernel(indices.dtype))?;
        Ok(over_elements(launch("gather_nd", kernel, &params, inputs.parameters(outputs)?).with_metal(METAL), outputs[0].elements()).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (x, indices, upstream) = (gradient.input(0)?.info, gradient.input(1)?, gradient.upstream(0)?);
            let mut dims = indices.info.shape().to_vec();
            // The coordinates of the batch are named too.
            let mut coordinates = Vec::new();
            for axis in 0..self.batch_dims {
                let numbers =
                    Arange { start: Scalar::Int(0), limit: Scalar::Int(dims[axis] as i128), step: Scalar::Int(1), dtype: indices.info.dtype };
                let numbers = gradient.apply(numbers, &[])?;
                let mut line = vec![1; dims.len()];
                line[axis] = dims[axis];
                let numbers = gradient.reshape(numbers, &line)?;
                let whole = [&dims[..dims.len() - 1], &[1]].concat();
                coordinates.push(gradient.broadcast(numbers, &Shape::new(&whole)?)?);
            }
            coordinates.push(indices);
            dims.pop();
            let tuples = gradient.apply(Concat { axis: -1 }, &coordinates)?;
            let (zeros, updates) = (gradient.zeros(DType::F32, x.shape())?, gradient.widened(upstream)?);
            gradient.apply(ScatterNd { reduction: Reduction::Add }, &[zeros, tuples, updates])
        })
    }
}

fn run<T: Element, I: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: TupleParams = arguments.params()?;
    let (x, indices, y) =
        (arguments.input::<T>(operands::AT.x)?, arguments.input::<I>(operands::AT.indices)?, arguments.output::<T>(operands::AT.y)?);
    let inner = params.inner as usize;
    if y.is_empty() {
        return Ok(());
    }
    params.check(indices)?;
    let rows = (TASK / inner).max(1);
    for_each_part(y, rows * inner, |number, y| {
        for (number, y) in (number * rows..).zip(y.chunks_exact_mut(inner)) {
            if let Some(slice) = params.slice(number, params.tuple(indices, number)) {
                y.copy_from_slice(&x[slice * inner..][..inner]);
            }
        }
    });
    Ok(())
}
