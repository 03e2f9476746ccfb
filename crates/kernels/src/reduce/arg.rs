use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use super::{
    arg_cpu,
    geometry::{Geometry, SHARED, lay_out, output_shape, reduced_axes},
};
use crate::{
    Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    metal::{metal_file, params},
    order,
    signature::{misshapen, operands},
};

attributes! {
    /// The index of the largest or smallest element. Input `x […]`, floats or integers.
    ///
    /// A NaN counts as larger than any number for the largest and as smaller for the smallest; of equal elements the first is taken. An axis
    /// without elements has no such index and is rejected.
    #[derive(Clone, Copy, Debug)]
    pub struct ArgReduce {
        /// The axis, negative counting from the end; `None` for the index in row-major order over the whole tensor.
        pub axis: Option<isize>,
        /// Keep the reduced axes, with extents of one.
        pub keepdims: bool = true,
        /// Of equal elements take the last.
        pub select_last_index: bool = false,
        /// Type of the index: i64, i32 or u32.
        pub dtype: DType = i64,
    } and {
        /// The largest; else the smallest.
        pub largest: bool,
    }
}

params! {
    pub(super) struct Params {
        pub geometry: Geometry,
        pub select_last: u32,
        /// Zero.
        pub reserved: u32,
    }
}

const FILES: &[MetalFile] = &{
    let [a, b, c, d, e, f, g, h] = SHARED;
    [a, b, c, d, e, f, g, h, order::KEYS, Params::METAL, metal_file!("reduce/arg.metal")]
};

impl ArgReduce {
    fn reduced(&self, x: &TensorInfo) -> Result<Vec<bool>> {
        reduced_axes(x, self.axis.as_slice())
    }
}

operands! {
    pub(super) mod operands {
        x: read(DType::NUMBERS), "[…]";
        -> index: write(INDICES), "the shape of x without the axis, or 1 there";
    }
}

impl Operator for ArgReduce {
    fn name(&self) -> &'static str {
        if self.largest { "argmax" } else { "argmin" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        operands::OUTPUTS[0].check(self.dtype)?;
        let reduced = self.reduced(&x)?;
        let output = output_shape(x.shape(), &reduced, self.keepdims)?;
        let length = Geometry::new(x.shape(), &reduced).length;
        if length == 0 && output.elements() > 0 {
            return Err(misshapen!(x; "elements along the axis"));
        }
        if length > 1 << 31 {
            return Err(misshapen!(x; "at most 2^31 elements along the axis"));
        }
        Ok(vec![TensorInfo::of(self.dtype, output)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let x = inputs.x;
        let geometry = Geometry::new(x.shape(), &self.reduced(&x)?);
        let params = Params { geometry, select_last: self.select_last_index.into(), reserved: 0 };
        let key = KernelKey::new(self.name(), &[x.dtype, self.dtype]).with("columns", geometry.inner > 1);
        let form = MetalForm::new(FILES, "arg_reduce").with_arguments(if self.largest { &["ArgMax"] } else { &["ArgMin"] });
        let launch = Launch::new(key, arg_cpu::kernel(x.dtype, self.dtype, self.largest)?, &params, inputs.parameters(outputs)?).with_metal(form);
        let candidate = 2 * x.dtype.size().max(4);
        Ok(lay_out(launch, &geometry, device, candidate, 1).into())
    }
}

const INDICES: &[DType] = &[DType::I64, DType::I32, DType::U32];

pub(super) const ARGMAX: Description = describe!("argmax", "index of the largest element along an axis", operands, ArgReduce(true));

pub(super) const ARGMIN: Description = describe!("argmin", "index of the smallest element along an axis", operands, ArgReduce(false));
