//! The gradients of a norm's weight and bias: what its rows have of them, added up column by column.
//!
//! With `c = x − μ` (`μ = 0` for `rms_norm`), the inverse deviation `r` and the gradient `g`: `dw = Σ g · (c · r)` and, of `layer_norm`, `db = Σ g`, in f32.
//!
//! * Memory: `x` and `g` are read once.
//! * Order: a column is a row of [`crate::order`]; the bits are those of the operators on elements and [`reduce_sum`](crate::reduce).
//!   On GPUs a share of the rows is what the lanes `y`, `y + 16`, `y + 8` and `y + 24` of a simdgroup of that order have; a second launch adds up the shares.
//! * Error against exact arithmetic: `(d(rows) + 3) · 2^-24 · Σ |g · c · r|` and `(d(rows) + 1) · 2^-24 · Σ |g|`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    gradient,
    metal::{self, metal_file, params},
    order,
    rows::Rows,
    signature::{misshapen, operands},
};

attributes! {
    /// The gradients of a norm's weight and bias. Inputs `x […]`, `dy`, as `x`, and, of the shape of `x` with extents of one from `axis` on, f32, the inverse
    /// deviations `scale` and, of `layer_norm`, the means `mean`; outputs, of the shape of `x` from `axis` on, f32, `dweight` and, of `layer_norm`, `dbias`.
    #[derive(Clone, Copy, Debug)]
    pub struct NormWeightGradient {
        /// The first normalised axis; negative counts from the end.
        pub axis: isize = -1,
    } and {
        /// Of `layer_norm`.
        pub centred: bool,
    }
}

params! {
    struct Params {
        pub rows: u64,
        pub columns: u64,
        /// Shares of the rows: eight for each simdgroup of the canonical order.
        pub shares: u64,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Params::METAL, metal_file!("norm_weight_gradient/norm_weight_gradient.metal")];

/// Threads of a threadgroup, as the Metal text has them.
const THREADS: u64 = 128;

operands! {
    x: read(DType::FLOATS), "[…]";
    dy: read(like x), "the gradient of the norm, as x";
    scale: read(&[DType::F32]), "the inverse deviation of each row: the shape of x, 1 from axis on";
    mean: read(&[DType::F32]) optional, "of layer_norm: the mean of each row, as scale";
    -> dweight: write(&[DType::F32]), "the shape of x from axis on";
    dbias: write(&[DType::F32]) optional, "of layer_norm: as dweight";
}

operands! {
    /// Those of `rms_norm`.
    mod uncentred {
        x: read(DType::FLOATS), "[…]";
        dy: read(like x), "the gradient of the norm, as x";
        scale: read(&[DType::F32]), "the inverse deviation of each row: the shape of x, 1 from axis on";
        -> dweight: write(&[DType::F32]), "the shape of x from axis on";
    }
}

impl Operator for NormWeightGradient {
    fn name(&self) -> &'static str {
        if self.centred { "layer_norm_weight_gradient" } else { "rms_norm_weight_gradient" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, dy, scale, mean } = operands::Inputs::new(inputs)?;
        if x.shape() != dy.shape() {
            return Err(misshapen!(dy, x; "one shape"));
        }
        let axis = x.shape().axis(self.axis)?;
        let mut dims = x.shape().to_vec();
        dims[axis..].fill(1);
        if **scale.shape() != *dims {
            return Err(misshapen!(scale, x; "{dims:?}"));
        }
        match mean {
            Some(mean) if **mean.shape() != *dims => return Err(misshapen!(mean, x; "{dims:?}")),
            Some(mean) if !self.centred => return Err(misshapen!(mean; "none, as rms_norm has no means")),
            None if self.centred => return Err(misshapen!(x; "a mean of each row beside it")),
            Some(_) | None => {}
        }
        Ok(vec![TensorInfo::of(DType::F32, Shape::new(&x.shape()[axis..])?); if self.centred { 2 } else { 1 }])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let Rows { outer: rows, length: columns, .. } = Rows::from_axis(inputs.x.shape(), self.axis)?;
        let params = Params { rows, columns, shares: 8 * order::row_groups(rows as usize) as u64 };
        let [x, dy, scale, mean, dweight, dbias] = inputs.parameters(outputs)?;
        let key = |name| KernelKey::new(name, &[inputs.x.dtype]).with("centred", u32::from(self.centred));
        if device.simd_width == 1 {
            let launch = Launch::new(key("norm_weight_gradient"), cpu::kernel(inputs.x.dtype)?, &params, [x, dy, scale, mean, dweight, dbias]);
            return Ok(launch.over(Extent::linear(u32::from(columns > 0)), Extent::linear(1)).into());
        }
        let width = if self.centred { 2 * columns } else { columns };
        let parts = |parameter| (parameter, Argument::Scratch(0));
        let (written, read) = (parts(Parameter::write("parts", DType::F32)), parts(Parameter::read("parts", DType::F32)));
        let launch = |name, buffers: Vec<_>, threads: u64| {
            let groups = threads.div_ceil(THREADS).min(u32::MAX.into()) as u32;
            Launch::on_gpu(key(name), MetalForm::new(FILES, name), &params, buffers).over(Extent::linear(groups), Extent::linear(THREADS as u32))
        };
        let part = launch("norm_weight_gradient_part", vec![x, dy, scale, mean, written], params.shares * columns.div_ceil(8));
        let last = launch("norm_weight_gradient", vec![read, dweight, dbias], width);
        Ok(Plan { launches: vec![part, last], scratch: vec![(4 * params.shares * width) as usize] })
    }

    fn gradient(&self, _: &[Option<TensorInfo>], _: &[Option<TensorInfo>], _: &[bool]) -> Result<Definition> {
        Err(gradient::none(self))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("rms_norm_weight_gradient", "the gradient of rms_norm by its weight, from its rows", uncentred, NormWeightGradient(false)),
    describe!("layer_norm_weight_gradient", "the gradients of layer_norm by its weight and bias, from its rows", operands, NormWeightGradient(true)),
];
