//! Fast products by the vendor's library, on devices that have one.

use elinvar_core::{DType, DeviceProperties, KernelKey, Parameter, Result};

use super::geometry::{Factor, Geometry};
use crate::{
    Argument, Launch, Plan, TensorInfo, cast,
    cuda::{CudaFeatures, CudaForm, MatrixProduct},
    launch::product_operations,
};

/// A product's operands as the operator has them: its inputs 0 and 1, the bias input 2.
pub(crate) struct Operands {
    pub(crate) inputs: [TensorInfo; 2],
    pub(crate) bias: Option<DType>,
    pub(crate) output: DType,
    pub(crate) addend: Addend,
    pub(crate) geometry: Geometry,
}

/// What a product is added to, before the sum is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addend {
    /// Nothing.
    Nothing,
    /// What the output holds.
    Output,
    /// The operator's input 2, of the output's shape and type. There is no bias then.
    Input,
}

impl Operands {
    /// The plan by the vendor's library, where it has one for these operands.
    ///
    /// An f32 operand beside a narrower one is rounded to its type first; `geometry_of` gives the geometry with the operands replaced.
    pub(crate) fn plan(&self, device: &DeviceProperties, geometry_of: impl Fn([TensorInfo; 2]) -> Result<Geometry>) -> Result<Option<Plan>> {
        let Some((rounded, operands, params)) = self.by_library(device, geometry_of)? else { return Ok(None) };
        let mut arguments = [0, 1].map(Argument::Input);
        let Some(index) = rounded else { return Ok(Some(self.launch(arguments, operands, &params).into())) };
        let (x, round_to) = (self.inputs[index], Argument::Scratch(0));
        let round = cast::launch(&x, operands, arguments[index], round_to)?;
        arguments[index] = round_to;
        Ok(Some(Plan {
            launches: vec![round, self.launch(arguments, operands, &params)],
            scratch: vec![TensorInfo::of(operands, *x.shape()).bytes()],
        }))
    }

    /// The operand that [`Operands::plan`] rounds first, and the type that it gets.
    pub(crate) fn rounds(
        &self,
        device: &DeviceProperties,
        geometry_of: impl Fn([TensorInfo; 2]) -> Result<Geometry>,
    ) -> Result<Option<(usize, DType)>> {
        Ok(self.by_library(device, geometry_of)?.and_then(|(rounded, operands, _)| Some((rounded?, operands))))
    }

    /// The operand that is to be rounded, if one is, the type of both, and the product.
    fn by_library(
        &self,
        device: &DeviceProperties,
        geometry_of: impl Fn([TensorInfo; 2]) -> Result<Geometry>,
    ) -> Result<Option<(Option<usize>, DType, MatrixProduct)>> {
        let types = self.inputs.map(|input| input.dtype);
        let wide = types.iter().position(|dtype| *dtype == DType::F32).filter(|_| types[0] != types[1]);
        let operands = types[wide.map_or(0, |wide| 1 - wide)];
        let offered = device.features().is_some_and(|cuda: &CudaFeatures| cuda.matrix_library) && (wide.is_some() || types[0] == types[1]);
        if !offered || self.bias.is_some_and(|bias| bias != self.output) || self.output != DType::F32 && self.output != operands {
            return Ok(None);
        }
        let params = match wide {
            None => self.product(&self.geometry),
            Some(wide) => {
                let mut inputs = self.inputs;
                inputs[wide] = TensorInfo::of(operands, *inputs[wide].shape());
                self.product(&geometry_of(inputs)?)
            }
        };
        Ok(params.map(|params| (wide, operands, params)))
    }

    fn launch(&self, [a, b]: [Argument; 2], operands: DType, params: &MatrixProduct) -> Launch {
        let output = self.output;
        let (name, addend, y) = match self.addend {
            Addend::Nothing => ("matrix_product", Argument::Absent, Parameter::write("y", output)),
            Addend::Output => ("matrix_product_added", Argument::Absent, Parameter::update("y", output)),
            Addend::Input => ("matrix_product_sum", Argument::Input(2), Parameter::write("y", output)),
        };
        let buffers = [
            (Parameter::read("a", operands), a),
            (Parameter::read("b", operands), b),
            (Parameter::read("bias", output).or_absent(), if self.bias.is_some() { Argument::Input(2) } else { Argument::Absent }),
            (Parameter::read("addend", output).or_absent(), addend),
            (y, Argument::Output(0)),
        ];
        Launch::on_cuda(KernelKey::new(name, &[operands, output]), CudaForm::MatrixProduct, params, buffers)
            .with_operations(product_operations(&[params.batches, params.m, params.n, params.k].map(|extent| extent as usize)))
    }

    /// The product in the library's terms: at most one batch axis, and one of the steps of each operand 1.
    fn product(&self, geometry: &Geometry) -> Option<MatrixProduct> {
        let [batches, m, n] = geometry.extents();
        let mut axes = (0..geometry.batch.len()).filter(|&axis| geometry.batch[axis] > 1);
        let axis = axes.next();
        if axes.next().is_some() || geometry.k == 0 {
            return None;
        }
        let a = steps(&geometry.a, axis, m, geometry.k)?;
        let b = steps(&geometry.b, axis, n, geometry.k)?;
        Some(MatrixProduct {
            batches: batches as u64,
            m: m as u64,
            n: n as u64,
            k: geometry.k as u64,
            a,
            b,
            origins: [geometry.a.origin as u64, geometry.b.origin as u64],
            alpha: f64::from(geometry.alpha),
            beta: if self.addend == Addend::Nothing { 0.0 } else { 1.0 },
        })
    }
}

fn steps(factor: &Factor, axis: Option<usize>, lines: usize, k: usize) -> Option<[i64; 3]> {
    let [line, along] = factor.strides;
    let batch = axis.map_or(0, |axis| factor.batch[axis]);
    let fits = along == 1 && line >= k as isize || line == 1 && along >= lines as isize;
    (fits && batch >= 0).then_some([batch as i64, line as i64, along as i64])
}
