//! Linear layers of one input whose weights are quantised in blocks, alone or with what a transformer's layer does around them.
//!
//! `y_i = x' W_iᵀ + b_i` for one to three weights, with `x' = x` or `x' = rms_norm(x)`; then `residual + y_0` for a single weight, or, gated,
//! `silu(y_0) · y_1` for two.
//!
//! * Memory: the weights, [packed](Format::pack), are read once for every 4 rows of x, from the caches after the first (on a CPU 128, on matrix units 8
//!   to 64); x is read and written once as 16-bit integers, or, a single row on a GPU, kept as such by every threadgroup.
//! * Order: 32 neighbours of a row of x are multiples `q` of `s = max |x| / 32767`, to the nearest integer, ties to even; `s` is zero if that is less than 2^-126.
//!   Of the same 32 elements of a row of the weight, `Σ q w` and `Σ q` over those that share a scale `a` and an offset `b` are exact integers, rounded
//!   once to f32. Sum `l` of 8 takes those of the elements `32 c …`, `c ≡ l (mod 8)`, in ascending order: `fma(a s, Σ q w, ·)`, then, in formats with offsets,
//!   `fma(b s, Σ q, ·)`. The 8 sums are combined by the lanes' xor tree (4, 2, 1); the bias is added. So integers may be summed in any order, by any unit.
//!   What stands around the layers has the bits of the operators for it: [`RmsNorm`], [`SwiGlu`], [`Binary`].
//! * Error, beside that of the weight: `max |x| / 65534` of each 32 elements for each of them, and f32's for the sums of `k / 32` products.
//! * Fast, of many rows on a GPU: the product of x and the weights, both rounded to bf16, as [`MatMul`] has it.
//!   On compute capability 9.0, of 9 to 64 rows of a multiple of 128 elements, thread blocks decode the weights in shared memory, which are read once; of
//!   more rows they are decoded first.
//! * Fast, on a CPU: as above with `s = max |x| / 127`, so that an element of x is at most `max |x| / 254` of its 32 neighbours off; of 8 rows or more there
//!   is one sum of all chunks in place of 8. The 16 bits stay where 8 gain nothing: less than 8 rows on processors with VNNI; with AVX2 alone, formats whose
//!   fields are bytes with a sign (`Q8_0`, `IQ4_NL`, `IQ4_XS`, `MXFP4`, `AFFINE8`); and without AVX2.
//! * An element of x that is NaN or infinite makes its row of y NaN.

mod cpu;
mod gpu;
mod hopper;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Result};

use crate::{
    Argument, Definition, Description, Operand, Operator, Plan, Precision, Rounding, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    cast::Cast,
    chain,
    dequantize::Dequantize,
    description::describe,
    gradient::Gradient,
    matmul::{MatMul, dtype_code},
    metal::params,
    quantized::{CHUNK, Format},
    rms_norm::{RmsNorm, check_weight},
    signature::{mismatch, misshapen, operands, shape_of},
    swiglu::SwiGlu,
};

/// Sums of an element of y.
const SUMS: usize = 8;
/// Rows of x from which decoded weights are faster.
const DECODED: usize = 160;
/// Rows of x from which, and up to which, weights that are decoded where they are multiplied are faster.
const DECODED_IN_BLOCKS: std::ops::RangeInclusive<usize> = 9..=chain::FEW;
/// What they are decoded to.
const DECODED_TO: DType = DType::BF16;

attributes! {
    /// Linear layers of one input, of quantised weights.
    ///
    /// Inputs: `x […, k]`; `w0`, `w1`, `w2`, u8 `[n, packed bytes of k elements]`, the latter two optional; `b0 [n0]`, `b1 [n1]`, `b2 [n2]` of one type,
    /// each optional; `norm [k]`, the norm's weight, where `epsilon` is given; `residual […, n0]`, f32, optional beside a single weight. Outputs:
    /// `[…, n]` for each weight; one if `gated`, which takes two weights alike.
    #[derive(Clone, Copy, Debug)]
    pub struct QuantizedLinear {
        /// The weights' format.
        pub format: Format,
        /// Normalise the rows first, with this added to the mean of the squares.
        pub epsilon: Option<f32>,
        /// Give `silu(y0) · y1`.
        pub gated: bool = false,
        /// Fast: of many rows on a GPU, the weights are decoded to bf16 and multiplied as such; on a CPU, x may have 8 bits.
        pub precision: Precision = strict,
        /// Type of the outputs; that of x if absent.
        pub output: Option<DType>,
    }
}

params! {
    /// The layers.
    struct Params {
        /// Rows of x and y.
        pub m: u64,
        /// 32 elements each of a row of x.
        pub chunks: u64,
        /// Bytes of a row of a weight.
        pub row_bytes: u64,
        /// Rows of each weight; zero where it is absent.
        pub n: [u64; 3],
        /// Tiles of a row.
        pub tiles: u64,
        /// Which of the biases, the norm's weight and the residual there are: a bit each.
        pub present: u32,
        /// Added to the mean of the squares.
        pub epsilon: f32,
        /// The format's place in [`Format::ALL`].
        pub format: u32,
        /// The type of the biases.
        pub bias: u32,
    }
}

operands! {
    x: read(DType::FLOATS), "[…, k]";
    w0: read(&[DType::U8]) prefetched, "[n0, packed bytes of k elements]";
    w1: read(&[DType::U8]) optional prefetched, "[n1, packed bytes of k elements]";
    w2: read(&[DType::U8]) optional prefetched, "[n2, packed bytes of k elements]";
    b0: read(DType::FLOATS) optional, "[n0]; none where absent";
    b1: read(like b0) optional, "[n1]; none where absent; biases have one type";
    b2: read(like b0) optional, "[n2]; none where absent";
    norm: read(DType::FLOATS) optional prefetched, "[k], the norm's weight; 1 where absent";
    residual: read(&[DType::F32]) optional, "[…, n0], added to the product of a single weight";
    -> y0: write(DType::FLOATS), "[…, n0], of type output";
    y1: write(like y0) optional, "[…, n1], for a second weight that is not the gated one";
    y2: write(like y0) optional, "[…, n2], for a third weight";
}
use operands::{AT, Inputs as Layers};

impl Layers {
    fn weights(&self) -> [Option<TensorInfo>; 3] {
        [Some(self.w0), self.w1, self.w2]
    }

    fn biases(&self) -> [Option<TensorInfo>; 3] {
        [self.b0, self.b1, self.b2]
    }

    fn count(&self) -> usize {
        self.weights().iter().flatten().count()
    }

    /// Rows of a weight.
    fn n(&self, index: usize) -> usize {
        self.weights()[index].map_or(0, |w| w.shape()[0])
    }

    /// Rows of x and elements of each.
    fn extents(&self) -> [usize; 2] {
        self.x.shape().split_last().map_or([1, 1], |(&k, rows)| [rows.iter().product(), k])
    }

    /// The result of weight `index`.
    fn result(&self, operator: QuantizedLinear, index: usize) -> Result<TensorInfo> {
        let mut dims = self.x.shape().to_vec();
        dims.pop();
        dims.push(self.n(index));
        TensorInfo::new(operator.output.unwrap_or(self.x.dtype), &dims)
    }

    /// Whether there is nothing but a weight and its bias.
    fn is_plain(&self, operator: QuantizedLinear) -> bool {
        operator.epsilon.is_none() && !operator.gated && self.residual.is_none() && self.count() == 1 && operator.output.is_none()
    }

    fn check(&self, operator: QuantizedLinear) -> Result<()> {
        let (x, format) = (self.x, operator.format);
        if x.shape().rank() == 0 {
            return Err(misshapen!(x; "at least one axis"));
        }
        if operator.epsilon.is_none() && self.norm.is_some() {
            return Err(Error::invalid_argument("norm is given without epsilon: expected both or neither"));
        }
        check_weight(("x", x), -1, ("norm", self.norm))?;
        let [_, k] = self.extents();
        let Some(row_bytes) = format.packed_row_bytes(k) else {
            return Err(misshapen!(x; "a last axis of whole blocks of {format}, {} elements each", format.weights()));
        };
        if self.w1.is_none() && self.w2.is_some() {
            return Err(Error::invalid_argument("w2 is given without w1: expected both or w1 alone"));
        }
        for (index, (weight, bias)) in self.weights().iter().zip(&self.biases()).enumerate() {
            let found = |name: &str, info: &TensorInfo| shape_of(&format!("{name}{index}"), info);
            match weight {
                Some(w) if w.shape().rank() != 2 || w.shape()[1] != row_bytes => {
                    let expected = format_args!("[n, {row_bytes}], packed rows of {k} elements in {format}");
                    return Err(mismatch(&[found("w", w), shape_of("x", &x)], expected));
                }
                Some(_) | None => {}
            }
            match (bias, weight) {
                (Some(b), None) => return Err(mismatch(&[found("b", b)], format_args!("a w{index} beside it"))),
                (Some(b), Some(w)) if **b.shape() != [self.n(index)] => {
                    return Err(mismatch(&[found("b", b), found("w", w)], format_args!("[{}]", self.n(index))));
                }
                (Some(_) | None, _) => {}
            }
        }
        if operator.gated {
            let (w0, Some(w1)) = (self.w0, self.w1.filter(|_| self.w2.is_none())) else {
                return Err(Error::invalid_argument(format!("{} weights are given: expected w0 and w1, as it is gated", self.count())));
            };
            if w0.shape() != w1.shape() {
                return Err(misshapen!(w0, w1; "one shape, as it is gated"));
            }
        }
        let (Some(residual), y0) = (self.residual, self.result(operator, 0)?) else { return Ok(()) };
        if operator.gated || self.count() > 1 {
            return Err(Error::invalid_argument(format!("residual is given beside {} weights: expected one", self.count())));
        }
        if residual.shape() != y0.shape() {
            let w0 = self.w0;
            return Err(misshapen!(residual, x, w0; "a residual of {}", y0.shape()));
        }
        Ok(())
    }

    fn params(&self, operator: QuantizedLinear) -> Params {
        let [m, k] = self.extents();
        let present = (0..3).map(|i| u32::from(self.biases()[i].is_some()) << i).sum::<u32>()
            | u32::from(self.norm.is_some()) << 3
            | u32::from(self.residual.is_some()) << 4;
        Params {
            m: m as u64,
            chunks: (k / CHUNK) as u64,
            row_bytes: self.w0.shape()[1] as u64,
            n: [0, 1, 2].map(|index| self.n(index) as u64),
            tiles: 0,
            present,
            epsilon: operator.epsilon.unwrap_or(0.0),
            format: operator.format as u32,
            bias: dtype_code(self.dtype(AT.b0)),
        }
    }
}

impl QuantizedLinear {
    /// A strict layer by itself.
    pub const fn new(format: Format) -> Self {
        Self { format, epsilon: None, gated: false, precision: Precision::Strict, output: None }
    }
}

impl Operator for QuantizedLinear {
    fn name(&self) -> &'static str {
        "quantized_linear"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let layers = Layers::new(inputs)?;
        layers.check(*self)?;
        if let Some(output) = self.output {
            operands::OUTPUTS[0].check(output)?;
        }
        (0..if self.gated { 1 } else { layers.count() }).map(|index| layers.result(*self, index)).collect()
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let layers = Layers::new(inputs)?;
        if let Some(plan) = self.by_chains(&layers, outputs, device)? {
            return Ok(plan);
        }
        if !layers.is_plain(*self) && (layers.x.dtype != DType::F32 || self.output.is_some_and(|output| output != DType::F32)) {
            return self.definition(&layers, inputs)?.plan(device);
        }
        if device.has_simdgroups() && self.precision.is_fast() && layers.extents()[0] >= DECODED {
            return self.decoded(&layers, inputs)?.plan(device);
        }
        if device.has_simdgroups() {
            return gpu::plan(*self, &layers, outputs, device);
        }
        cpu::plan(*self, &layers, outputs, device)
    }

    fn rounds(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Rounding>> {
        let layers = Layers::new(inputs)?;
        let rounds = self.epsilon.is_none() && layers.x.dtype == DType::F32 && self.has_chains(&layers, device);
        let operator = Self { output: self.output.or(Some(DType::F32)), ..*self };
        Ok(rounds.then(|| Rounding { input: AT.x, to: DECODED_TO, operator: Arc::new(operator) }))
    }

    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let (layers, operator) = (Layers::new(inputs)?, Self { output: Some(to), ..*self });
        let stores = to == DECODED_TO && self.output.unwrap_or(layers.x.dtype) == DType::F32 && operator.has_chains(&layers, device);
        Ok(stores.then(|| Arc::new(operator) as Arc<dyn Operator>))
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        let layers = Layers::new(inputs)?;
        layers.check(*self)?;
        if layers.is_plain(*self) { Ok(None) } else { self.definition(&layers, inputs).map(Some) }
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        let layers = Layers::new(inputs)?;
        layers.check(*self)?;
        if !layers.is_plain(*self) {
            return self.definition(&layers, inputs)?.gradient(self, upstream, wanted);
        }
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let (weight, upstream) = (gradient.input(AT.w0)?, gradient.upstream(0)?);
            if index == AT.b0 {
                return Ok(upstream);
            }
            let [_, k] = layers.extents();
            let rows = gradient.apply(Dequantize { format: self.format, width: k as u64, dtype: DType::F32 }, &[weight])?;
            gradient.apply(MatMul { output: Some(layers.x.dtype), precision: self.precision.of_gradients(), ..MatMul::default() }, &[upstream, rows])
        })
    }
}

impl QuantizedLinear {
    /// Whether its sums are chains of tensor-core steps, by weights that are decoded where they are multiplied.
    fn has_chains(&self, layers: &Layers, device: &DeviceProperties) -> bool {
        let ([m, k], x, output) = (layers.extents(), layers.x.dtype, self.output.unwrap_or(layers.x.dtype));
        let takes = x == DType::F32 || x == DECODED_TO && self.epsilon.is_none();
        let gives = output == DType::F32 || output == DECODED_TO && self.gated;
        self.precision.is_fast() && DECODED_IN_BLOCKS.contains(&m) && takes && gives && chain::takes_packed(k, device)
    }

    /// The plan of products whose sums are chains, where it has some.
    fn by_chains(&self, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Option<Plan>> {
        if !self.has_chains(layers, device) {
            return Ok(None);
        }
        let product = chain::Layers {
            extents: layers.extents(),
            n: [0, 1, 2].map(|index| layers.n(index)),
            dtypes: [DECODED_TO, layers.dtype(AT.b0)],
            format: Some(self.format),
            biases: layers.biases().map(|bias| bias.is_some()),
            gated: self.gated,
            rounded: outputs[0].dtype != DType::F32,
            norm: self.epsilon.map(|epsilon| chain::Norm { epsilon, weight: layers.norm.map(|norm| (norm, Argument::Input(AT.norm))) }),
        };
        let [_, w0, w1, w2, b0, b1, b2, _, residual, y0, y1, y2] = layers.parameters(outputs)?.map(|(_, argument)| argument);
        product.plan((layers.x, Argument::Input(AT.x)), [w0, w1, w2, b0, b1, b2, residual, y0, y1, y2], device)
    }

    /// With weights that are decoded first, for all of which x is rounded once.
    fn decoded(&self, layers: &Layers, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let [_, k] = layers.extents();
        let decode = Dequantize { format: self.format, width: k as u64, dtype: DECODED_TO };
        let product = MatMul { transpose_b: true, precision: Precision::Fast, output: Some(DType::F32), ..MatMul::default() };
        let mut rounded = None;
        self.around(layers, inputs, layers.x.dtype, |definition, x, weight, bias| {
            if rounded.is_none() {
                rounded = if layers.x.dtype == DECODED_TO { x } else { Some(definition.apply_one(Cast { to: DECODED_TO }, &[x])?) };
            }
            let weight = definition.apply_one(decode, &[weight])?;
            definition.apply_one(product, &[rounded, Some(weight), bias])
        })
    }

    fn definition(&self, layers: &Layers, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let linear = Self { epsilon: None, gated: false, output: None, ..*self };
        let layer = |definition: &mut Definition, x, weight, bias| definition.apply_one(linear, &[x, weight, None, None, bias]);
        self.around(layers, inputs, DType::F32, layer)
    }

    /// What stands around the layers, of rows in this type; `linear` gives f32 of an x, a weight and a bias.
    fn around(
        &self,
        layers: &Layers,
        inputs: &[Option<TensorInfo>],
        rows: DType,
        mut linear: impl FnMut(&mut Definition, Option<Operand>, Option<Operand>, Option<Operand>) -> Result<Operand>,
    ) -> Result<Definition> {
        let mut definition = Definition::new(inputs);
        let mut x = definition.input(AT.x);
        if layers.x.dtype != rows {
            x = Some(definition.apply_one(Cast { to: rows }, &[x])?);
        }
        if let Some(epsilon) = self.epsilon {
            x = Some(definition.apply_one(RmsNorm { epsilon, ..RmsNorm::default() }, &[x, definition.input(AT.norm)])?);
        }
        for index in 0..layers.count() {
            let (weight, bias) = (definition.input(AT.w0 + index), definition.input(AT.b0 + index));
            let result = linear(&mut definition, x, weight, bias)?;
            definition.outputs.push(result);
        }
        if self.gated {
            let both: Vec<_> = std::mem::take(&mut definition.outputs).into_iter().map(Some).collect();
            definition.outputs = definition.apply(SwiGlu { alpha: 1.0 }, &both)?;
        }
        if let (Some(residual), &[result]) = (definition.input(AT.residual), &*definition.outputs) {
            definition.outputs = definition.apply(Binary { op: BinaryOp::Add }, &[Some(residual), Some(result)])?;
        }
        let to = self.output.unwrap_or(layers.x.dtype);
        if to != DType::F32 {
            for result in std::mem::take(&mut definition.outputs) {
                let converted = definition.apply_one(Cast { to }, &[Some(result)])?;
                definition.outputs.push(converted);
            }
        }
        Ok(definition)
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!(
    "quantized_linear",
    "linear layers whose weights are quantised in blocks: rms_norm before, a residual or a gate after, in one launch",
    operands,
    QuantizedLinear
)];
