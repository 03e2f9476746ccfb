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
    /// The product is added to what the output holds.
    pub(crate) adds: bool,
    pub(crate) geometry: Geometry,
}

impl Operands {
    /// The plan by the vendor's library, where it has one for these operands.
    ///
    /// An f32 `a` with a narrower `b` is rounded to the type of `b` first; `geometry_of` gives the geometry with `a` replaced.
    pub(crate) fn plan(&self, device: &DeviceProperties, geometry_of: impl Fn(TensorInfo) -> Result<Geometry>) -> Result<Option<Plan>> {
        let [a, b] = self.inputs;
        let offered = device.features().is_some_and(|cuda: &CudaFeatures| cuda.matrix_library);
        if !offered || self.bias.is_some_and(|bias| bias != self.output) || !matches!(self.output, DType::F32) && self.output != b.dtype {
            return Ok(None);
        }
        if a.dtype == b.dtype {
            return Ok(self.product(&self.geometry).map(|params| self.launch(Argument::Input(0), &params).into()));
        }
        if a.dtype != DType::F32 {
            return Ok(None);
        }
        let rounded = TensorInfo::of(b.dtype, *a.shape());
        let Some(params) = self.product(&geometry_of(rounded)?) else { return Ok(None) };
        let round = cast::launch(&a, b.dtype, Argument::Input(0), Argument::Scratch(0))?;
        Ok(Some(Plan { launches: vec![round, self.launch(Argument::Scratch(0), &params)], scratch: vec![rounded.bytes()] }))
    }

    fn launch(&self, a: Argument, params: &MatrixProduct) -> Launch {
        let (operands, output) = (self.inputs[1].dtype, self.output);
        let (name, y) = match self.adds {
            true => ("matrix_product_added", Parameter::update("y", output)),
            false => ("matrix_product", Parameter::write("y", output)),
        };
        let buffers = [
            (Parameter::read("a", operands), a),
            (Parameter::read("b", operands), Argument::Input(1)),
            (Parameter::read("bias", output).or_absent(), if self.bias.is_some() { Argument::Input(2) } else { Argument::Absent }),
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
            beta: if self.adds { 1.0 } else { 0.0 },
        })
    }
}

fn steps(factor: &Factor, axis: Option<usize>, lines: usize, k: usize) -> Option<[i64; 3]> {
    let [line, along] = factor.strides;
    let batch = axis.map_or(0, |axis| factor.batch[axis]);
    let fits = along == 1 && line >= k as isize || line == 1 && along >= lines as isize;
    (fits && batch >= 0).then_some([batch as i64, line as i64, along as i64])
}
