//! Linear layers of one input in one launch: what a transformer's layer does around its attention while it decodes.
//!
//! `y_i = x' W_iᵀ + b_i` for one to three weights, with `x' = x` or `x' = rms_norm(x)`; then `residual + y_0` for a single weight, or, gated,
//! `silu(y_0) · y_1` for two. Weights are f32, f16 or bf16; the rows and the outputs are f32, or of a 16-bit type.
//!
//! * Memory: the weights are read once, everything else comes from the caches, on a GPU also the weights for every four rows after the first. On a GPU a single row is
//!   kept, and normalised, by every threadgroup that needs it; several rows, and rows too long for that, by a launch before. In fast and invariant
//!   precision a CUDA device of compute capability 9.0 rounds rows to the type of 16-bit weights, and multiplies them on its tensor cores (`chain`).
//! * Order: that of the operators it stands for, [`RmsNorm`], [`MatMul`], [`Binary`] and [`SwiGlu`], each step in f32: their
//!   bits. On a CPU, where a launch costs next to nothing, the plan is theirs.
//! * Error: the sum of theirs.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, Precision, Rounding, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    cast::Cast,
    chain,
    collective::DeliveryFiles,
    cuda::CudaFeatures,
    description::describe,
    dot,
    launch::product_operations,
    math,
    matmul::{DOT, FEW_FOR_LIBRARY, LINES, MatMul, SHARED_ROW, Sums, check_extents, kept_row_bytes},
    metal::{self, metal_file, params},
    operator::Bound,
    order,
    rms_norm::{NORMALISED, RmsNorm, check_weight},
    signature::{mismatch, misshapen, operands, shape_of},
    swiglu::SwiGlu,
};

const fn files<const N: usize>(delivery: DeliveryFiles) -> [MetalFile; N] {
    let own = [dot::PAIRS, dot::INTEGERS, dot::TILE, dot::ROW, NORMALISED, Params::METAL, metal_file!("projection/projection.metal")];
    let (first, last) = ([metal::TYPES, metal::LAUNCHES, math::METAL, order::METAL], [order::LANES, LINES, DOT, SHARED_ROW]);
    metal::joined(&[&first, delivery.outbox, delivery.row, &last, &own])
}
const METAL: MetalForm = MetalForm::new(&files::<17>(DeliveryFiles::ALONE), "projection").with_delivering(&files::<19>(DeliveryFiles::DELIVERING));

attributes! {
    /// Linear layers of one input.
    ///
    /// Inputs: `x […, k]`; `norm [k]`, the norm's weight, where `epsilon` is given; `w0 [n0, k]`, `w1 [n1, k]`, `w2 [n2, k]` of one type, the latter
    /// two optional; `b0 [n0]`, `b1 [n1]`, `b2 [n2]` of one type, each optional; `residual […, n0]`, f32, optional beside a single weight. Outputs:
    /// `[…, n]` for each weight; one if `gated`, which takes two weights alike.
    #[derive(Clone, Copy, Debug)]
    pub struct Projection {
        /// Normalise the rows first, with this added to the mean of the squares.
        pub epsilon: Option<f32>,
        /// Give `silu(y0) · y1`.
        pub gated: bool = false,
        /// How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order).
        pub precision: Precision = strict,
        /// Type of the outputs; f32 if absent.
        pub output: Option<DType>,
    }
}

impl Default for Projection {
    fn default() -> Self {
        Self { epsilon: None, gated: false, precision: Precision::Strict, output: None }
    }
}

params! {
    /// What the kernel gets besides its buffers.
    struct Params {
        /// Rows.
        pub m: u64,
        /// Elements of a row of x.
        pub k: u64,
        /// Rows of each weight; zero where it is absent.
        pub n: [u64; 3],
        /// Tiles of a row.
        pub tiles: u32,
        /// Threadgroups of a row.
        pub groups: u32,
        /// Which of the biases, the norm's weight and the residual there are: a bit each.
        pub present: u32,
        /// Added to the mean of the squares.
        pub epsilon: f32,
    }
}

/// Simdgroups of a threadgroup.
const SIMDGROUPS: usize = 8;

/// Threadgroups that keep their row and a GPU's core runs at once.
const AT_ONCE: usize = 2;

/// Rows up to which layers read more than they compute.
const FEW_ROWS: usize = 8;

operands! {
    x: read(DType::FLOATS), "[…, k]";
    norm: read(DType::FLOATS) optional prefetched, "[k], the norm's weight; 1 where absent";
    w0: read(DType::FLOATS) prefetched, "[n0, k]";
    w1: read(like w0) optional prefetched, "[n1, k], of the type of w0";
    w2: read(like w0) optional prefetched, "[n2, k], of the type of w0";
    b0: read(DType::FLOATS) optional, "[n0]; none where absent";
    b1: read(like b0) optional, "[n1]; none where absent; biases have one type";
    b2: read(like b0) optional, "[n2]; none where absent";
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

    /// The weights, the biases, the residual and the results.
    fn operands(&self, outputs: &[TensorInfo]) -> Result<[(Parameter, Argument); 10]> {
        let all = self.parameters(outputs)?;
        Ok([AT.w0, AT.w1, AT.w2, AT.b0, AT.b1, AT.b2, AT.residual, AT.y0, AT.y1, AT.y2].map(|index| all[index].clone()))
    }

    /// Rows of x and elements of each.
    fn extents(&self) -> [usize; 2] {
        self.x.shape().split_last().map_or([1, 1], |(&k, rows)| [rows.iter().product(), k])
    }

    /// The result of weight `index`, in f32.
    fn result(&self, index: usize) -> Result<TensorInfo> {
        let mut dims = self.x.shape().to_vec();
        dims.pop();
        dims.push(self.n(index));
        TensorInfo::new(DType::F32, &dims)
    }

    fn check(&self, operator: Projection) -> Result<()> {
        let x = self.x;
        if operator.epsilon.is_none() && self.norm.is_some() {
            return Err(Error::invalid_argument("norm is given without epsilon: expected both or neither"));
        }
        check_weight(("x", x), -1, ("norm", self.norm))?;
        let [_, k] = self.extents();
        if self.w1.is_none() && self.w2.is_some() {
            return Err(Error::invalid_argument("w2 is given without w1: expected both or w1 alone"));
        }
        for (index, (weight, bias)) in self.weights().iter().zip(&self.biases()).enumerate() {
            let found = |name: &str, info: &TensorInfo| shape_of(&format!("{name}{index}"), info);
            match weight {
                Some(w) if w.shape().rank() != 2 || w.shape()[1] != k => {
                    return Err(mismatch(&[found("w", w), shape_of("x", &x)], format_args!("[n, {k}]")));
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
        let (Some(residual), y0) = (self.residual, self.result(0)?) else { return Ok(()) };
        if operator.gated || self.count() > 1 {
            return Err(Error::invalid_argument(format!("residual is given beside {} weights: expected one", self.count())));
        }
        if residual.shape() != y0.shape() {
            let w0 = self.w0;
            return Err(misshapen!(residual, x, w0; "a residual of {}", y0.shape()));
        }
        Ok(())
    }
}

fn has_library(device: &DeviceProperties) -> bool {
    device.features().is_some_and(|cuda: &CudaFeatures| cuda.matrix_library)
}

impl Operator for Projection {
    fn name(&self) -> &'static str {
        "projection"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let layers = Layers::new(inputs)?;
        layers.check(*self)?;
        let dtype = self.output();
        operands::OUTPUTS[0].check(dtype)?;
        (0..if self.gated { 1 } else { layers.count() }).map(|index| Ok(TensorInfo { dtype, ..layers.result(index)? })).collect()
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let layers = Layers::new(inputs)?;
        let ([rows, _], is_fast) = (layers.extents(), self.precision == Precision::Fast);
        if let Some(plan) = self.by_chains(&layers, outputs, device)? {
            return Ok(plan);
        }
        let by_library = is_fast && has_library(device) && rows > FEW_FOR_LIBRARY;
        let in_f32 = [layers.x.dtype, self.output()] == [DType::F32; 2];
        if device.simd_width > 1 && !by_library && in_f32 { self.for_gpu(&layers, outputs, device) } else { self.definition(inputs)?.plan(device) }
    }

    fn rounds(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Rounding>> {
        let layers = Layers::new(inputs)?;
        let rounds = self.epsilon.is_none() && layers.x.dtype == DType::F32 && self.has_chains(&layers, device);
        Ok(rounds.then(|| Rounding { input: AT.x, to: layers.w0.dtype, operator: Arc::new(*self) }))
    }

    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let operator = Self { output: Some(to), ..*self };
        let stores = self.output.is_none() && to != DType::F32 && operator.has_chains(&Layers::new(inputs)?, device);
        Ok(stores.then(|| Arc::new(operator) as Arc<dyn Operator>))
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.definition(inputs).map(Some)
    }
}

impl Projection {
    /// Whether a launch of it gains over the operators it stands for, of this precision, over so many rows and with such weights.
    pub fn gains(precision: Precision, rows: usize, weight: TensorInfo, device: &DeviceProperties) -> bool {
        match precision {
            Precision::Fast if chain::takes(weight, device) => rows <= chain::FEW || rows >= chain::MANY,
            Precision::Invariant if chain::takes(weight, device) => true,
            Precision::Fast if has_library(device) => rows <= FEW_FOR_LIBRARY,
            Precision::Strict | Precision::Invariant if weight.dtype.size() == 2 && dot::hopper::has(device) => rows <= dot::hopper::FEW,
            Precision::Strict | Precision::Invariant | Precision::Fast => rows <= FEW_ROWS,
        }
    }

    fn output(&self) -> DType {
        self.output.unwrap_or(DType::F32)
    }

    fn definition(&self, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let layers = Layers::new(inputs)?;
        layers.check(*self)?;
        let mut definition = Definition::new(inputs);
        let mut x = definition.input(AT.x);
        if layers.x.dtype != DType::F32 {
            x = Some(definition.apply_one(Cast { to: DType::F32 }, &[x])?);
        }
        if let Some(epsilon) = self.epsilon {
            x = Some(definition.apply_one(RmsNorm { epsilon, ..RmsNorm::default() }, &[x, definition.input(AT.norm)])?);
        }
        let linear = MatMul { transpose_b: true, precision: self.precision, ..MatMul::default() };
        for index in 0..layers.count() {
            let (weight, bias) = (definition.input(AT.w0 + index), definition.input(AT.b0 + index));
            let result = definition.apply_one(linear, &[x, weight, bias])?;
            definition.outputs.push(result);
        }
        if self.gated {
            let both: Vec<_> = std::mem::take(&mut definition.outputs).into_iter().map(Some).collect();
            definition.outputs = definition.apply(SwiGlu { alpha: 1.0 }, &both)?;
        }
        if let (Some(residual), &[result]) = (definition.input(AT.residual), &*definition.outputs) {
            definition.outputs = definition.apply(Binary { op: BinaryOp::Add }, &[Some(residual), Some(result)])?;
        }
        if self.output() != DType::F32 {
            for result in std::mem::take(&mut definition.outputs) {
                let converted = definition.apply_one(Cast { to: self.output() }, &[Some(result)])?;
                definition.outputs.push(converted);
            }
        }
        Ok(definition)
    }

    fn for_gpu(&self, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let [m, k] = layers.extents();
        let n = [0, 1, 2].map(|index| layers.n(index));
        check_extents([m, n.iter().sum(), k], device)?;
        let sums = Sums::of(!self.precision.is_fast(), [DType::F32, layers.w0.dtype]);
        if sums == Sums::Fixed
            && let Some(plan) = self.on_tensor_cores(layers, outputs, device)?
        {
            return Ok(plan);
        }
        let shared = order::PARTIALS + kept_row_bytes(k, sums);
        let kept = m == 1 && shared <= device.threadgroup_memory;
        let inside = kept && order::row_threads(k) <= 32 * SIMDGROUPS;
        let mut plan = Plan::default();
        let (_, x) = if inside { (layers.x, Argument::Input(AT.x)) } else { self.normalised(layers, device, &mut plan)? };
        let source = match self.epsilon {
            Some(_) if inside => 2,
            _ => u32::from(kept),
        };
        let rows = m.next_power_of_two().min(4);
        // More of them for several rows, which are loaded once for all.
        let columns = match rows {
            1 if !self.gated => 1,
            1 | 2 => 2,
            _ => 4,
        };
        let tiles: usize = if self.gated { n[0].div_ceil(columns / 2) } else { n.iter().map(|n| n.div_ceil(columns)).sum() };
        // Where threadgroups keep the row, no more of them than run at once (as many as registers allow a unit): simdgroups take tiles in turn.
        let groups = tiles.div_ceil(SIMDGROUPS).min(if kept { AT_ONCE * device.compute_units.max(1) } else { usize::MAX });
        let present = (0..3).map(|i| u32::from(layers.biases()[i].is_some()) << i).sum::<u32>()
            | u32::from(layers.norm.is_some()) << 3
            | u32::from(layers.residual.is_some()) << 4;
        let params = Params {
            m: m as u64,
            k: k as u64,
            n: n.map(|n| n as u64),
            tiles: tiles as u32,
            groups: groups as u32,
            present,
            epsilon: self.epsilon.unwrap_or(0.0),
        };
        let groups = groups * m.div_ceil(rows);
        let groups = u32::try_from(groups).map_err(|_| Error::unsupported(format!("{m} rows of {tiles} tiles: too many for one launch")))?;
        let sharing = if source == 2 { order::sharing_threads(k) } else { 0 };
        let constants = [source, self.gated.into(), rows as u32, columns as u32, u32::from(sums == Sums::Fixed), sharing as u32];
        let launch = Self::kernel(layers, x, outputs, &params, constants)?;
        let launch = launch.with_operations(product_operations(&[m, k, n.iter().sum()]));
        let memory = if kept { shared } else { order::PARTIALS };
        plan.launches.push(launch.over(Extent::linear(groups), Extent::linear(32 * SIMDGROUPS as u32)).with_threadgroup_memory(memory));
        Ok(plan)
    }

    /// Whether its sums are chains. One row has a kernel of fewer launches, where its bits may differ.
    fn has_chains(&self, layers: &Layers, device: &DeviceProperties) -> bool {
        let serves = match self.precision {
            Precision::Strict => false,
            Precision::Fast => matches!(layers.extents()[0], 2..=chain::FEW | chain::MANY..),
            Precision::Invariant => true,
        };
        let (x, weight, output) = (layers.x.dtype, layers.w0.dtype, self.output());
        let takes = x == DType::F32 || x == weight && self.epsilon.is_none();
        let gives = output == DType::F32 || output == weight && self.gated;
        serves && takes && gives && layers.weights().iter().flatten().all(|weight| chain::takes(*weight, device))
    }

    /// The plan of products whose sums are chains, where it has some.
    fn by_chains(&self, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Option<Plan>> {
        if !self.has_chains(layers, device) {
            return Ok(None);
        }
        let product = chain::Layers {
            extents: layers.extents(),
            n: [0, 1, 2].map(|index| layers.n(index)),
            dtypes: [AT.w0, AT.b0].map(|index| layers.dtype(index)),
            format: None,
            biases: layers.biases().map(|bias| bias.is_some()),
            gated: self.gated,
            rounded: self.output() != DType::F32,
            norm: self.epsilon.map(|epsilon| chain::Norm { epsilon, weight: layers.norm.map(|norm| (norm, Argument::Input(AT.norm))) }),
        };
        let operands = layers.operands(outputs)?.map(|(_, argument)| argument);
        product.plan((layers.x, Argument::Input(AT.x)), operands, device)
    }

    /// The rows that are multiplied: those that the norm's own operator gives, in f32, if there is a norm.
    fn normalised(&self, layers: &Layers, device: &DeviceProperties, plan: &mut Plan) -> Result<Bound> {
        let x = (layers.x, Argument::Input(AT.x));
        let Some(epsilon) = self.epsilon else { return Ok(x) };
        let to = (TensorInfo::of(DType::F32, *layers.x.shape()), Argument::Scratch(plan.scratch.len()));
        plan.scratch.push(to.0.bytes());
        let norm = layers.norm.map(|norm| (norm, Argument::Input(AT.norm)));
        plan.add(&RmsNorm { epsilon, output: Some(DType::F32), ..RmsNorm::default() }, &[Some(x), norm], &[to.1], device)?;
        Ok(to)
    }

    /// The plan of several rows where the device multiplies integers so, with the norm and the gate of their own operators.
    fn on_tensor_cores(&self, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Option<Plan>> {
        let ([m, k], mut plan) = (layers.extents(), Plan::default());
        let (_, from) = self.normalised(layers, device, &mut plan)?;
        let mut operands = layers.operands(outputs)?;
        if self.gated {
            for (number, operand) in operands[7..9].iter_mut().enumerate() {
                operand.1 = Argument::Scratch(plan.scratch.len() + number);
            }
            plan.scratch.extend([4 * m * layers.n(0); 2]);
        }
        let products = [operands[7].1, operands[8].1];
        let product = dot::hopper::Layers {
            x: dot::hopper::Rows { dtype: DType::F32, origin: 0, strides: [k as isize, 1], count: m, from },
            k,
            dtypes: [AT.w0, AT.b0].map(|index| layers.dtype(index)),
            n: [0, 1, 2].map(|index| layers.n(index)),
            present: (0..3).map(|i| u64::from(layers.biases()[i].is_some()) << i).sum::<u64>() | u64::from(layers.residual.is_some()) << 3,
        };
        if product.plan(operands, device, &mut plan).is_none() {
            return Ok(None);
        }
        if self.gated {
            let both = products.map(|from| Ok(Some((layers.result(0)?, from)))).into_iter().collect::<Result<Vec<_>>>()?;
            plan.add(&SwiGlu { alpha: 1.0 }, &both, &[Argument::Output(0)], device)?;
        }
        Ok(Some(plan))
    }

    fn kernel(
        layers: &Layers,
        x: Argument,
        outputs: &[TensorInfo],
        params: &Params,
        [source, gated, rows, columns, fixed, sharing]: [u32; 6],
    ) -> Result<Launch> {
        let key = KernelKey::new("projection", &[AT.norm, AT.w0, AT.b0].map(|index| layers.dtype(index)));
        let key =
            key.with("source", source).with("gated", gated).with("rows", rows).with("columns", columns).with("fixed", fixed).with("sharing", sharing);
        let mut buffers = layers.parameters(outputs)?;
        buffers[AT.x].1 = x;
        // Of fixed sums a launch that gathers costs less: 343 tokens/s of an 8b model on two H200s, 337 where rows are delivered.
        let form = if fixed == 1 { MetalForm { delivering: None, ..METAL } } else { METAL };
        Ok(Launch::on_gpu(key, form, params, buffers))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("projection", "linear layers of one input: rms_norm before, a residual or a gate after, in one launch", operands, Projection)];
