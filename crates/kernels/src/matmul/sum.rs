//! A matrix product added to what is there: `y = addend + alpha · a b`.
//!
//! Those are the bits of a [`MatMul`] and an addition. It is one launch on a CPU, where all is f32; and fast, where a CUDA device has cuBLASLt for the
//! operands, which rounds the sum once.

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Extent, HostArguments, KernelKey, Result};

use super::{
    Addend, MatMul, Operands,
    cpu::operand::{Target, Values, ValuesMut},
    host::Params,
    launch,
};
use crate::{
    Definition, Description, Launch, Operator, Plan, Precision, Rounding, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    description::describe,
    launch::product_operations,
    signature::{misshapen, mistyped, operands},
};

attributes! {
    /// A matrix product and a sum. Inputs `a` and `b` as of [`MatMul`] and `addend`, of the product's shape; the output is as `addend`.
    #[derive(Clone, Copy, Debug)]
    pub struct MatMulAdd {
        /// As [`MatMul::transpose_a`].
        pub transpose_a: bool = false,
        /// As [`MatMul::transpose_b`].
        pub transpose_b: bool = false,
        /// Scales the product.
        pub alpha: f32 = 1,
        /// As [`MatMul::precision`].
        pub precision: Precision = strict,
        /// As [`MatMul::output`]: the addend has this type.
        pub output: Option<DType>,
    }
}

operands! {
    a: read(DType::FLOATS), "[..., m, k] (or [k])";
    b: read(DType::FLOATS), "[..., k, n] (or [k]); its type may differ from that of a";
    addend: read(DType::FLOATS), "[..., m, n], of the product's type";
    -> y: write(like addend), "as addend";
}

/// The CPU kernel, of f32.
fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let [a, b, addend, y] = [operands::AT.a, operands::AT.b, operands::AT.addend, operands::AT.y];
    let factors = params.matrices([Values::F32(arguments.input(a)?), Values::F32(arguments.input(b)?)])?;
    let (addend, [m, n]) = (arguments.input(addend)?, [params.m, params.n].map(|extent| extent as usize));
    let target = Target::new(ValuesMut::F32(arguments.output(y)?), [m, n], n).and_then(|t| t.scaled(params.alpha).with_addend(Some(addend)));
    params.multiply(factors, &target.ok_or_else(|| Error::invalid_launch("the addend or y is too small"))?);
    Ok(())
}

impl MatMulAdd {
    /// The product alone.
    fn product(&self) -> MatMul {
        let Self { transpose_a, transpose_b, alpha, precision, output } = *self;
        MatMul { transpose_a, transpose_b, alpha, precision, output }
    }

    /// The operands for the vendor's library, where that gains.
    fn for_library(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Operands>> {
        let operands::Inputs { a, b, addend } = operands::Inputs::new(inputs)?;
        let geometry = self.product().geometry(a, b)?.0;
        let gains = launch::gains_by_library(&geometry);
        Ok(gains.then_some(Operands { inputs: [a, b], bias: None, output: addend.dtype, addend: Addend::Input, geometry }))
    }

    /// The launches by the vendor's library, where it has the product.
    fn by_library(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Plan>> {
        let Some(operands) = self.for_library(inputs)? else { return Ok(None) };
        operands.plan(device, |[a, b]| Ok(self.product().geometry(a, b)?.0))
    }

    /// One launch on a CPU, where all is f32: the sum is made where the product is stored.
    fn on_host(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Plan>> {
        let inputs = operands::Inputs::new(inputs)?;
        let operands::Inputs { a, b, addend } = inputs;
        let geometry = self.product().geometry(a, b)?.0;
        let [batches, m, n] = geometry.extents();
        if device.simd_width > 1 || [a, b, addend].iter().any(|info| info.dtype != DType::F32) || batches != 1 {
            return Ok(None);
        }
        let (params, buffers) = (Params::new(geometry, None, DType::F32), inputs.parameters(&[TensorInfo::of(DType::F32, *addend.shape())])?);
        let launch = Launch::new(KernelKey::new("matmul_add", &[DType::F32; 3]), run, &params, buffers);
        let launch = launch.over(Extent::linear(u32::from(m * n > 0)), Extent::linear(1));
        Ok(Some(launch.with_operations(product_operations(&[m, n, geometry.k])).into()))
    }

    /// One launch, where the device has it.
    fn fused(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Plan>> {
        self.on_host(inputs, device)?.map_or_else(|| self.by_library(inputs, device), |plan| Ok(Some(plan)))
    }

    /// The product and the sum.
    fn definition(&self, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let mut definition = Definition::new(inputs);
        let [a, b, addend] = [operands::AT.a, operands::AT.b, operands::AT.addend].map(|index| definition.input(index));
        let product = definition.apply_one(self.product(), &[a, b, None])?;
        definition.outputs = definition.apply(Binary { op: BinaryOp::Add }, &[addend, Some(product)])?;
        Ok(definition)
    }

    /// Whether a device adds in the launch of the product.
    ///
    /// # Errors
    /// As [`Operator::infer`].
    pub fn is_fused(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<bool> {
        self.infer(inputs)?;
        Ok(self.fused(inputs, device)?.is_some())
    }
}

impl Operator for MatMulAdd {
    fn name(&self) -> &'static str {
        "matmul_add"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { a, b, addend } = operands::Inputs::new(inputs)?;
        let (_, dims) = self.product().geometry(a, b)?;
        if addend.shape()[..] != dims {
            return Err(misshapen!(addend, a, b; "addend of {dims:?}"));
        }
        let output = self.output.unwrap_or(a.dtype);
        if addend.dtype != output {
            return Err(mistyped!(addend, a; "addend of {output}"));
        }
        Ok(vec![TensorInfo::of(output, *addend.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        match self.fused(inputs, device)? {
            Some(plan) => Ok(plan),
            None => self.definition(inputs)?.plan(device),
        }
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn rounds(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Rounding>> {
        let Some(operands) = self.for_library(inputs)? else { return Ok(None) };
        let rounded = operands.rounds(device, |[a, b]| Ok(self.product().geometry(a, b)?.0))?;
        let operator = Self { output: Some(operands.output), ..*self };
        Ok(rounded.map(|(input, to)| Rounding { input, to, operator: Arc::new(operator) }))
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < operands::AT.addend
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        self.definition(inputs).map(Some)
    }
}

pub(super) const DESCRIPTION: Description =
    describe!("matmul_add", "addend + alpha a b, batched, with broadcasting of leading axes", operands, MatMulAdd);
