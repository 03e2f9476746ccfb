//! Holding values between bounds.

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use super::cpu;
use crate::{
    Definition, ElementOp, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    compare::CompareOp,
    elementwise::{self, Operand, Space, over_elements, scalar::Scalar},
    functions,
    gradient::Gradient,
    metal::{self, metal_file, params},
    signature::{self, operands},
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, functions::METAL, ClampParams::METAL, metal_file!("ternary/clamp.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "clamp_between");

attributes! {
    /// `min(max(x, min), max)`, broadcast. The bounds are tensors of the type of `x` (inputs 1 and 2), or attributes, or absent.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Clamp {
        /// The lower bound, where there is no tensor of them.
        pub min: Option<Scalar>,
        /// The upper bound, where there is no tensor of them.
        pub max: Option<Scalar>,
    }
}

params! {
    /// The parameter block.
    pub struct ClampParams {
        /// What is visited.
        pub space: Space,
        /// The input.
        pub x: Operand,
        /// The lower and the upper bounds.
        pub bounds: [Operand; 2],
        /// 1 for a bound that is a tensor.
        pub is_tensor: [u64; 2],
        /// The bits of a bound that is no tensor, in the low bytes.
        pub values: [u64; 2],
    }
}

operands! {
    pub(super) mod operands {
        x: read(DType::NUMBERS), "any shape";
        min: read(like x) optional, "lower bounds, of any shape that broadcasts with x";
        max: read(like x) optional, "upper bounds, alike";
        -> y: write(like x), "the shape all broadcast to";
    }
}

const NAMES: [&str; 2] = ["min", "max"];

impl Clamp {
    /// The bits of a bound that is no tensor.
    fn value(&self, index: usize, dtype: DType) -> Result<u64> {
        let open = Scalar::Float(if index == 0 { f64::NEG_INFINITY } else { f64::INFINITY });
        let given = [self.min, self.max][index];
        given.unwrap_or(open).saturated_bits(dtype).map_err(|e| e.context(format_args!("{}, {}", signature::type_of("x", dtype), NAMES[index])))
    }
}

impl Operator for Clamp {
    fn name(&self) -> &'static str {
        "clamp"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, min, max } = operands::Inputs::new(inputs)?;
        let bounds = [min, max];
        for (index, given) in [self.min, self.max].iter().enumerate() {
            self.value(index, x.dtype)?;
            if given.is_some() && bounds[index].is_some() {
                let found = format!("{} is given as attribute and as tensor", NAMES[index]);
                return Err(signature::mismatch(&[found], "one of them"));
            }
        }
        let all = [Some(x), min, max].into_iter().zip(["x", "min", "max"]).filter_map(|(info, name)| Some((name, info?)));
        Ok(vec![TensorInfo::of(x.dtype, signature::broadcast(&all.collect::<Vec<_>>())?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (x, bounds) = (inputs.x, [inputs.min, inputs.max]);
        let scalar = TensorInfo::new(x.dtype, &[])?;
        let is_tensor = bounds.map(|b| u64::from(b.is_some()));
        let [low, high] = bounds.map(|b| b.unwrap_or(scalar));
        let (space, [x_operand, low, high]) = Space::broadcast(*outputs[0].shape(), [&x, &low, &high])?;
        let values = [self.value(0, x.dtype)?, self.value(1, x.dtype)?];
        let params = ClampParams { space, x: x_operand, bounds: [low, high], is_tensor, values };
        let launch = Launch::new(KernelKey::new("clamp", &[x.dtype]), cpu::clamp(x.dtype)?, &params, inputs.parameters(outputs)?);
        Ok(over_elements(launch.with_metal(METAL), space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        self.min.zip(self.max).map(|(min, max)| ElementOp::Clamp(min, max))
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let (upstream, x) = (gradient.upstream(0)?, gradient.input(operands::AT.x)?);
            let dtype = x.info.dtype;
            let zero = gradient.number(dtype, 0.0)?;
            let mut bounds = [None; 2];
            for (bound, (at, number)) in bounds.iter_mut().zip([(operands::AT.min, self.min), (operands::AT.max, self.max)]) {
                *bound = match (gradient.optional(at), number) {
                    (None, Some(number)) => Some(gradient.number(dtype, number.to_f64())?),
                    (tensor, _) => tensor,
                };
            }
            let [min, max] = bounds;
            let outside = [(CompareOp::Lt, min), (CompareOp::Gt, max)];
            if index == operands::AT.x {
                let mut inside = upstream;
                for (op, bound) in outside.into_iter().filter_map(|(op, bound)| Some((op, bound?))) {
                    let is_outside = gradient.compare(op, x, bound)?;
                    inside = gradient.choose(is_outside, zero, inside)?;
                }
                return Ok(inside);
            }
            // A lower bound above the upper one gives nothing.
            let own = gradient.input(index)?;
            let is_own = gradient.compare(if index == operands::AT.min { CompareOp::Lt } else { CompareOp::Gt }, x, own)?;
            let own_gradient = gradient.choose(is_own, upstream, zero)?;
            match (index == operands::AT.min, min, max) {
                (true, Some(min), Some(max)) => {
                    let is_above = gradient.compare(CompareOp::Gt, min, max)?;
                    gradient.choose(is_above, zero, own_gradient)
                }
                (false, Some(min), Some(max)) => {
                    // Where the bounds have changed places, the upper one is what is left.
                    let is_above = gradient.compare(CompareOp::Gt, min, max)?;
                    gradient.choose(is_above, upstream, own_gradient)
                }
                (_, _, _) => Ok(own_gradient),
            }
        })
    }
}
