//! Products of matrices in blocks with activations of about 31 bits.
//!
//! [`quantized_linear`](elinvar::kernels::quantized_linear) makes of 32 neighbours 16-bit multiples of a scale. Here it multiplies another row beside each: what
//! that leaves of x, at most half a scale, whose own error is at most 2^-32 of the largest of the 32. The weights are read once, the products are added.

use std::sync::Arc;

use elinvar::{
    DType, DeviceProperties, Error, Executor, Result, Tensor,
    kernels::{
        Definition, Operand, Operator, Plan, TensorInfo,
        binary::{Binary, BinaryOp},
        quantized::{CHUNK, Format},
        quantized_linear::QuantizedLinear,
        reduce::{Reduce, Reduction},
        ternary::{Clamp, Fma},
        unary::{Unary, UnaryOp, WithScalar},
    },
};

/// What such products share.
pub(crate) struct Wide {
    /// How often the multiples are added in each row, `[2, 1, 1]`: never, and minus once.
    factors: Tensor,
}

impl Wide {
    pub(super) fn new(executor: &Executor) -> Result<Self> {
        Ok(Self { factors: executor.tensor(&[2, 1, 1], &[0f32, -1.0])? })
    }

    /// `x Wᵀ` of an x of f32, strictly.
    pub(super) fn linear(&self, x: &Tensor, rows: &Tensor, format: Format) -> Result<Tensor> {
        let apply = |operator: Arc<dyn Operator>, inputs: [&Tensor; 2]| {
            let outputs = x.executor().apply(operator, &inputs.map(Some))?;
            outputs.into_iter().next().ok_or_else(|| Error::internal("an operator of one output gave none"))
        };
        let y = apply(Arc::new(QuantizedLinear::new(format)), [&apply(Arc::new(WithRest), [x, &self.factors])?, rows])?;
        y.i(0)?.add(&y.i(1)?)
    }
}

/// An x of f32, and what its 16-bit multiples leave of it, rounded once: `[2, …]`. The second input is [`Wide`]'s.
///
/// One operator, of plain ones: a recording of all of them for each layer would take long to match.
#[derive(Debug)]
struct WithRest;

impl WithRest {
    fn definition(inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let mut steps = Definition::new(inputs);
        let (Some(x), factors) = (steps.input(0), steps.input(1)) else { return Err(Error::internal("there is no x")) };
        let chunks = Some(Operand { info: TensorInfo::new(x.info.dtype, &[1, x.info.elements() / CHUNK, CHUNK])?, ..x });
        let unary = |op: UnaryOp| Unary { op };
        let magnitudes = steps.apply_one(unary(UnaryOp::Abs), &[chunks])?;
        let largest = steps.apply_one(Reduce { reduction: Reduction::Max, axes: vec![-1], keepdims: true }, &[Some(magnitudes)])?;
        // As `quantized_linear` has it. What is too small for a scale is zero there, in both rows.
        let scale = steps.apply_one(WithScalar { op: BinaryOp::Div, scalar: 32767.0 }, &[Some(largest)])?;
        let normal = Clamp { min: Some(f64::from(f32::MIN_POSITIVE).into()), max: None };
        let scale = Some(steps.apply_one(normal, &[Some(scale)])?);
        let inverse = steps.apply_one(unary(UnaryOp::Reciprocal), &[scale])?;
        let scaled = steps.apply_one(Binary { op: BinaryOp::Mul }, &[chunks, Some(inverse)])?;
        let multiples = steps.apply_one(unary(UnaryOp::Round), &[Some(scaled)])?;
        let subtracted = steps.apply_one(Binary { op: BinaryOp::Mul }, &[Some(multiples), factors])?;
        let both = steps.apply_one(Fma, &[Some(subtracted), scale, chunks])?;
        steps.outputs.push(both);
        Ok(steps)
    }
}

impl Operator for WithRest {
    fn name(&self) -> &'static str {
        "with_rest"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let Some(Some(x)) = inputs.first() else { return Err(Error::internal("there is no x")) };
        let dims: Vec<usize> = [2].iter().chain(x.shape().iter()).copied().collect();
        Ok(vec![TensorInfo::new(DType::F32, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        Self::definition(inputs)?.plan(device)
    }
}

#[cfg(test)]
mod tests {
    use elinvar::{Precision, kernels::quantized::Format};
    use elinvar_core::SplitMix64;

    use super::{super::matrix::Matrix, *};

    const COLUMNS: usize = 512;
    const ROWS: usize = 20;

    #[test]
    fn wide_activations_have_the_error_of_f32() {
        let executor = Executor::new_cpu(2.try_into().unwrap()).unwrap().with_precision(Precision::Fast);
        let uniform = |seed: u64, i: usize| (SplitMix64::nth(seed, i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        // One of 32 is large; chunks are of all sizes, one is too small for a scale, one zero.
        let x: Vec<f32> = (0..3 * COLUMNS)
            .map(|i| uniform(1, i) * if i % 37 == 0 { 300.0 } else { 1.0 } * [1.0, 1e-3, 1e4, 1e-37, 0.0, 1.0, 1.0, 1.0][i / CHUNK % 8])
            .collect();
        let bias: Vec<f32> = (0..ROWS).map(|i| uniform(2, i)).collect();
        for format in [Format::Q4_0, Format::Q8_0, Format::Q4K, Format::Q6K, Format::Mxfp4] {
            let weights: Vec<f32> = (0..ROWS * COLUMNS).map(|i| uniform(3, i)).collect();
            let (mut blocks, mut decoded) = (vec![0; format.row_bytes(COLUMNS).unwrap()], vec![0.0; COLUMNS]);
            let mut packed = vec![0; ROWS * format.packed_row_bytes(COLUMNS).unwrap()];
            let mut exact = vec![0.0; 3 * ROWS];
            for (row, packed) in packed.chunks_mut(format.packed_row_bytes(COLUMNS).unwrap()).enumerate() {
                format.encode(&weights[row * COLUMNS..][..COLUMNS], None, &mut blocks).unwrap();
                format.pack(&blocks, packed).unwrap();
                format.decode(&blocks, &mut decoded).unwrap();
                for (text, x) in x.chunks(COLUMNS).enumerate() {
                    exact[text * ROWS + row] = x.iter().zip(&decoded).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() + f64::from(bias[row]);
                }
            }
            let rows = executor.tensor(&[ROWS, packed.len() / ROWS], &packed).unwrap();
            let mut matrix = Matrix::Packed { rows, format, columns: COLUMNS, wide: None };
            let (x, bias) = (executor.tensor(&[3, COLUMNS], &x).unwrap(), executor.tensor(&[ROWS], &bias).unwrap());
            let error = |matrix: &Matrix| {
                let y = matrix.linear(&x, Some(&bias)).unwrap();
                let recorded = executor.fuse(|recorded| matrix.linear(&x.on(recorded)?, Some(&bias))).unwrap();
                assert_eq!(recorded.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
                y.to_vec::<f32>().unwrap().iter().zip(&exact).map(|(y, exact)| (f64::from(*y) - exact).abs()).fold(0.0, f64::max)
            };
            let narrow = error(&matrix);
            matrix.widen(&Arc::new(Wide::new(&executor).unwrap()));
            let (wide, greatest) = (error(&matrix), exact.iter().fold(0f64, |most, y| most.max(y.abs())));
            println!("{format}: {narrow:e}, wide {wide:e} of up to {greatest:e}");
            assert!(wide < 1e-6 * greatest && narrow > 10.0 * wide, "{format}: {narrow:e}, wide {wide:e} of up to {greatest:e}");
        }
    }
}
