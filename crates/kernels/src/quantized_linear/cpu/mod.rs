//! The CPU kernel: rows of x as integers first, then [`COLUMNS`] rows of the weight at a time against all of them.
//!
//! The eight sums of an element are eight lanes: of an [`Octet`], the chunks that go to them stand side by side.

mod integers;
mod portable;
mod product;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use elinvar_core::{DType, DeviceProperties, Error, HostArguments, HostKernel, KernelKey, Result};

use super::{AT, Layers, Params, QuantizedLinear, SUMS};
use crate::{
    Argument, Launch, Plan, Precision, TensorInfo,
    float::{Float, with_float},
    launch::product_operations,
    math,
    matmul::{
        cpu::operand::{Values, with_values},
        values,
    },
    parallel::{Shared, for_each},
    quantized::{CHUNK, Format},
    rms_norm::RmsNorm,
    simd,
};
use integers::Rows;
use product::Product;

/// Rows of the weight that a task takes.
const COLUMNS: usize = 16;

/// Rows are normalised by a launch of their own; then all layers in one.
pub(super) fn plan(operator: QuantizedLinear, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
    let ([m, k], x, mut plan, mut buffers) = (layers.extents(), layers.x, Plan::default(), layers.parameters(outputs)?);
    if let Some(epsilon) = operator.epsilon {
        plan.scratch.push(x.bytes());
        let inputs = [Some((x, Argument::Input(AT.x))), layers.norm.map(|norm| (norm, Argument::Input(AT.norm)))];
        plan.add(&RmsNorm { epsilon, ..RmsNorm::default() }, &inputs, &[Argument::Scratch(0)], device)?;
        (buffers[AT.x].1, buffers[AT.norm].1) = (Argument::Scratch(0), Argument::Absent);
    }
    let key = KernelKey::new("quantized_linear", &[x.dtype, layers.dtype(AT.b0)]).with("format", operator.format as u32);
    let key = key.with("fast", u32::from(operator.precision.is_fast()));
    let launch = Launch::new(key, kernel(x.dtype, operator.precision)?, &layers.params(operator), buffers);
    plan.launches.push(launch.with_operations(product_operations(&[m, k, (0..3).map(|index| layers.n(index)).sum()])));
    Ok(plan)
}

fn kernel(x: DType, precision: Precision) -> Result<HostKernel> {
    Ok(with_float!(x, T => match precision {
        Precision::Strict | Precision::Invariant => |arguments: &mut HostArguments<'_>| run::<T>(arguments, Precision::Strict),
        Precision::Fast => |arguments: &mut HostArguments<'_>| run::<T>(arguments, Precision::Fast),
    }))
}

/// A layer's weight and bias, and how many rows they have.
struct Layer<'a> {
    n: usize,
    weight: &'a [u8],
    bias: Option<Values<'a>>,
}

impl Layer<'_> {
    /// Some columns of the layer's results for each row of x.
    fn columns<'a>(&self, product: Product, x: &Rows, row_bytes: usize, columns: Range<usize>, room: &'a mut Results) -> &'a mut [[f32; COLUMNS]] {
        let results = room.rows(x.m);
        product.multiply(x, [row_bytes, columns.len()], &self.weight[row_bytes * columns.start..], results);
        if let Some(bias) = self.bias {
            let mut wide = [0.0; COLUMNS];
            with_values!(bias, |bias| wide.iter_mut().zip(&bias[columns]).for_each(|(wide, bias)| *wide = bias.to_f32()));
            results.iter_mut().for_each(|results| results.iter_mut().zip(wide).for_each(|(result, bias)| *result += bias));
        }
        results
    }
}

/// Room for a task's results of each row of x; a single row's needs no memory of the system's.
#[derive(Default)]
struct Results {
    one: [[f32; COLUMNS]; 1],
    more: Vec<[f32; COLUMNS]>,
}

impl Results {
    /// Those of `m` rows.
    fn rows(&mut self, m: usize) -> &mut [[f32; COLUMNS]] {
        if m == 1 {
            return &mut self.one;
        }
        self.more.resize(m, [0.0; COLUMNS]);
        &mut self.more
    }
}

fn run<T: Float>(arguments: &mut HostArguments<'_>, precision: Precision) -> Result<()> {
    let Params { m, n, chunks, row_bytes, format, bias, .. } = arguments.params()?;
    let format = Format::ALL.get(format as usize).ok_or_else(|| Error::internal(format!("there is no format {format}")))?;
    let [m, chunks, row_bytes] = [m, chunks, row_bytes].map(|extent| extent as usize);
    let (mut layers, mut results) = (Vec::new(), Vec::new());
    for (index, n) in n.into_iter().enumerate() {
        let Some(weight) = arguments.optional(AT.w0 + index)? else { break };
        let bias = arguments.is_bound(AT.b0 + index).then(|| values(arguments, AT.b0 + index, bias)).transpose()?;
        layers.push(Layer { n: n as usize, weight, bias });
        if arguments.is_bound(AT.y0 + index) {
            results.push(Shared::new(arguments.output::<T>(AT.y0 + index)?));
        }
    }
    let (x, residual) = (arguments.input::<T>(AT.x)?, arguments.optional::<f32>(AT.residual)?);
    let product = Product::new(*format, m, precision);
    let rows = product.rows(x, [m, chunks]);
    // Two layers have one result if one gates the other.
    let taken = if results.len() < layers.len() { layers.len() } else { 1 };
    let tiles = layers.iter().step_by(taken).map(|layer| layer.n.div_ceil(COLUMNS)).sum();
    for_each(tiles, taken * COLUMNS * CHUNK * m * chunks, |mut tile| {
        for (layers, y) in layers.chunks(taken).zip(&results) {
            let [layer, gated @ ..] = layers else { return };
            let tiles = layer.n.div_ceil(COLUMNS);
            if tile >= tiles {
                tile -= tiles;
                continue;
            }
            let columns = COLUMNS * tile..layer.n.min(COLUMNS * (tile + 1));
            let (mut room, mut others) = (Results::default(), Results::default());
            let values = layer.columns(product, &rows, row_bytes, columns.clone(), &mut room);
            for layer in gated {
                gate(values, layer.columns(product, &rows, row_bytes, columns.clone(), &mut others));
            }
            for (row, values) in values.iter_mut().enumerate() {
                let at = row * layer.n + columns.start;
                if let Some(residual) = residual {
                    values.iter_mut().zip(&residual[at..][..columns.len()]).for_each(|(value, residual)| *value += residual);
                }
                // SAFETY: these elements belong to this tile's task.
                let y = unsafe { y.part(at, columns.len()) };
                y.iter_mut().zip(values).for_each(|(y, value)| *y = T::from_f32(*value));
            }
            return;
        }
    });
    Ok(())
}

simd! {
    /// As [`SwiGlu`](crate::swiglu::SwiGlu) does it.
    fn gate(gates: &mut [[f32; COLUMNS]], values: &[[f32; COLUMNS]]) {
        gates.as_flattened_mut().iter_mut().zip(values.as_flattened()).for_each(|(gate, value)| *gate = math::gate(*gate, 1.0) * value);
    }
}
