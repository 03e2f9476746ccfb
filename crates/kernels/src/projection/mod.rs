//! Linear layers of one input in one launch: what a transformer's layer does around its attention while it decodes.
//!
//! `y_i = x' W_iᵀ + b_i` for one to three weights, with `x' = x` or `x' = rms_norm(x)`; then `residual + y_0` for a single weight, or, gated,
//! `silu(y_0) · y_1` for two. Activations are f32, weights f32, f16 or bf16.
//!
//! * Memory: the weights are read once (on a GPU once for every four rows), everything else comes from the caches. On a GPU a single row is
//!   kept, and normalised, by every threadgroup that needs it; several rows, and rows too long for that, by a launch before.
//! * Order: that of the operators it stands for, [`RmsNorm`], [`MatMul`] in strict precision, [`Binary`] and [`SwiGlu`], each step in f32: their
//!   bits. On a CPU, where a launch costs next to nothing, the plan is theirs.
//! * Error: the sum of theirs.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalForm, Result};

use crate::{
    Argument, AttributeInfo, Description, Launch, Operator, Plan, Precision, TensorInfo,
    binary::{Binary, BinaryOp},
    math,
    matmul::{DOT, LINES, MatMul, SHARED_ROW, check_extents, shared_row_bytes},
    metal::{self, metal_file, params},
    operator::product_operations,
    order,
    rms_norm::{RmsNorm, check_weight},
    signature::operands,
    swiglu::SwiGlu,
};

const METAL: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        metal::LAUNCHES,
        math::METAL,
        order::METAL,
        order::LANES,
        LINES,
        DOT,
        SHARED_ROW,
        Params::METAL,
        metal_file!("projection/projection.metal"),
    ],
    "projection",
);

/// Linear layers of one input.
///
/// Inputs: `x […, k]`, f32; `norm [k]`, the norm's weight, where `epsilon` is given; `w0 [n0, k]`, `w1 [n1, k]`, `w2 [n2, k]` of one type, the latter
/// two optional; `b0 [n0]`, `b1 [n1]`, `b2 [n2]` of one type, each optional; `residual […, n0]`, f32, optional beside a single weight. Outputs, f32:
/// `[…, n]` for each weight; one if `gated`, which takes two weights alike.
#[derive(Clone, Copy, Debug, Default)]
pub struct Projection {
    /// Normalise the rows first, with this added to the mean of the squares.
    pub epsilon: Option<f32>,
    /// Give `silu(y0) · y1`.
    pub gated: bool,
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
        /// Tiles that a simdgroup makes one after the other.
        pub repeats: u32,
        /// Which of the biases, the norm's weight and the residual there are: a bit each.
        pub present: u32,
        /// Added to the mean of the squares.
        pub epsilon: f32,
    }
}

/// Simdgroups of a threadgroup.
const SIMDGROUPS: usize = 8;

operands! {
    x: read(&[DType::F32]), "[…, k]";
    norm: read(DType::FLOATS) optional early, "[k], the norm's weight; 1 where absent";
    w0: read(DType::FLOATS) early, "[n0, k]";
    w1: read(like w0) optional early, "[n1, k], of the type of w0";
    w2: read(like w0) optional early, "[n2, k], of the type of w0";
    b0: read(DType::FLOATS) optional, "[n0]; none where absent";
    b1: read(like b0) optional, "[n1]; none where absent; biases have one type";
    b2: read(like b0) optional, "[n2]; none where absent";
    residual: read(&[DType::F32]) optional, "[…, n0], added to the product of a single weight";
    -> y0: write(&[DType::F32]), "[…, n0]";
    y1: write(&[DType::F32]) optional, "[…, n1], for a second weight that is not the gated one";
    y2: write(&[DType::F32]) optional, "[…, n2], for a third weight";
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
    fn result(&self, index: usize) -> Result<TensorInfo> {
        let mut dims = self.x.shape().to_vec();
        dims.pop();
        dims.push(self.n(index));
        TensorInfo::new(DType::F32, &dims)
    }

    fn check(&self, operator: Projection) -> Result<()> {
        let refuse = |text: String| Err(Error::invalid_argument(text));
        if self.x.shape().rank() == 0 {
            return refuse("x is a scalar: at least one axis expected".into());
        }
        if operator.epsilon.is_none() && self.norm.is_some() {
            return refuse("a norm's weight is given without epsilon: give both or neither".into());
        }
        check_weight(self.x.shape(), -1, self.norm, "norm")?;
        let [_, k] = self.extents();
        if self.w1.is_none() && self.w2.is_some() {
            return refuse("w2 is given without w1".into());
        }
        for (index, (weight, bias)) in self.weights().iter().zip(&self.biases()).enumerate() {
            let found = |name: &str, info: &TensorInfo| format!("{name}{index} has shape {}", info.shape());
            match weight {
                Some(w) if w.shape().rank() != 2 || w.shape()[1] != k => {
                    return refuse(format!("{}: [n, {k}] expected", found("w", w)));
                }
                _ => {}
            }
            match bias {
                Some(b) if **b.shape() != [self.n(index)] => {
                    return refuse(format!("{}: [{}] expected", found("b", b), self.n(index)));
                }
                _ => {}
            }
        }
        if operator.gated && (self.count() != 2 || self.n(0) != self.n(1)) {
            return refuse("a gated projection takes two weights of the same shape".into());
        }
        match self.residual {
            Some(r) if operator.gated || self.count() > 1 => refuse(format!("a residual {} beside several weights: one expected", r.shape())),
            Some(r) if r != self.result(0)? => refuse(format!("the residual is {} {}: f32 {} expected", r.dtype, r.shape(), self.result(0)?.shape())),
            _ => Ok(()),
        }
    }
}

impl Operator for Projection {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let layers = Layers::new("projection", inputs)?;
        layers.check(*self)?;
        (0..if self.gated { 1 } else { layers.count() }).map(|index| layers.result(index)).collect()
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let layers = Layers::new("projection", inputs)?;
        if device.simd_width > 1 { self.for_gpu(&layers, outputs, device) } else { self.composed(&layers, device) }
    }
}

impl Projection {
    /// The rows normalised into a temporary.
    fn normalise(&self, plan: &mut Plan, layers: &Layers, epsilon: f32, to: Argument, device: &DeviceProperties) -> Result<()> {
        let inputs = [Some((layers.x, Argument::Input(AT.x))), layers.norm.map(|norm| (norm, Argument::Input(AT.norm)))];
        plan.add(&RmsNorm { axis: -1, epsilon }, &inputs, to, device)
    }

    /// The operators it stands for.
    fn composed(&self, layers: &Layers, device: &DeviceProperties) -> Result<Plan> {
        let mut plan = Plan::default();
        let temporary = |info: &TensorInfo, plan: &mut Plan| {
            plan.scratch.push(info.elements() * info.dtype.size());
            Argument::Scratch(plan.scratch.len() - 1)
        };
        let mut x = (layers.x, Argument::Input(AT.x));
        if let Some(epsilon) = self.epsilon {
            x.1 = temporary(&x.0, &mut plan);
            self.normalise(&mut plan, layers, epsilon, x.1, device)?;
        }
        let linear = MatMul { transpose_b: true, precision: Precision::Strict, ..MatMul::default() };
        let mut results = Vec::new();
        for index in 0..layers.count() {
            let (weight, bias) = (layers.weights()[index], layers.biases()[index]);
            let result = layers.result(index)?;
            let passes_on = self.gated || layers.residual.is_some();
            let to = if passes_on { temporary(&result, &mut plan) } else { Argument::Output(index) };
            let inputs = [Some(x), weight.map(|w| (w, Argument::Input(AT.w0 + index))), bias.map(|b| (b, Argument::Input(AT.b0 + index)))];
            plan.add(&linear, &inputs, to, device)?;
            results.push(Some((result, to)));
        }
        if self.gated {
            plan.add(&SwiGlu { alpha: 1.0 }, &results, Argument::Output(0), device)?;
        }
        if let Some(residual) = layers.residual {
            results.insert(0, Some((residual, Argument::Input(AT.residual))));
            plan.add(&Binary { op: BinaryOp::Add }, &results, Argument::Output(0), device)?;
        }
        Ok(plan)
    }

    fn for_gpu(&self, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let [m, k] = layers.extents();
        let n = [0, 1, 2].map(|index| layers.n(index));
        check_extents([m, n.iter().sum(), k], device)?;
        let shared = order::PARTIALS + shared_row_bytes(k);
        let kept = m == 1 && shared <= device.threadgroup_memory;
        let inside = kept && order::row_threads(k) <= 32 * SIMDGROUPS;
        let mut plan = Plan::default();
        let mut x = Argument::Input(AT.x);
        if let Some(epsilon) = self.epsilon.filter(|_| !inside) {
            plan.scratch.push(4 * m * k);
            x = Argument::Scratch(0);
            self.normalise(&mut plan, layers, epsilon, x, device)?;
        }
        let source = match self.epsilon {
            Some(_) if inside => 2,
            _ => u32::from(kept),
        };
        let rows = m.next_power_of_two().min(4);
        let columns = if rows > 1 || self.gated { 2 } else { 1 };
        let tiles: usize = if self.gated { n[0] } else { n.iter().map(|n| n.div_ceil(columns)).sum() };
        // Where threadgroups keep the row, no more of them than run at once (as many as registers allow a unit), each with several tiles.
        const AT_ONCE: usize = 2;
        let repeats = if kept { tiles.div_ceil(SIMDGROUPS * AT_ONCE * device.compute_units.max(1)).max(1) } else { 1 };
        let present = (0..3).map(|i| u32::from(layers.biases()[i].is_some()) << i).sum::<u32>()
            | u32::from(layers.norm.is_some()) << 3
            | u32::from(layers.residual.is_some()) << 4;
        let params = Params {
            m: m as u64,
            k: k as u64,
            n: n.map(|n| n as u64),
            tiles: tiles as u32,
            repeats: repeats as u32,
            present,
            epsilon: self.epsilon.unwrap_or(0.0),
        };
        let groups = if m == 0 { 0 } else { tiles.div_ceil(SIMDGROUPS * repeats) };
        let launch = Self::kernel(layers, x, outputs, &params, [source, self.gated.into(), rows as u32, columns as u32])?;
        let launch = launch.with_operations(product_operations(&[m, k, n.iter().sum()]));
        let memory = if kept { shared } else { order::PARTIALS };
        let grid = Extent([groups as u32, m.div_ceil(rows) as u32, 1]);
        plan.launches.push(launch.over(grid, Extent::linear(32 * SIMDGROUPS as u32)).with_threadgroup_memory(memory));
        Ok(plan)
    }

    fn kernel(layers: &Layers, x: Argument, outputs: &[TensorInfo], params: &Params, [source, gated, rows, columns]: [u32; 4]) -> Result<Launch> {
        let key = KernelKey::new("projection", &[AT.norm, AT.w0, AT.b0].map(|index| layers.dtype(index)));
        let key = key.with("source", source).with("gated", gated).with("rows", rows).with("columns", columns);
        let mut buffers = layers.parameters(outputs)?;
        buffers[AT.x].1 = x;
        Ok(Launch::on_gpu(key, METAL, params, buffers))
    }
}

const ATTRIBUTES: &[AttributeInfo] = &[
    AttributeInfo::float("epsilon", Some(""), "normalise the rows of x first, with this added to the mean of the squares"),
    AttributeInfo::bool("gated", Some("false"), "give silu(x w0^T + b0) * (x w1^T + b1)"),
];

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "projection",
    summary: "linear layers of one input, strict: rms_norm before, a residual or a gate after, in one launch",
    inputs: operands::INPUTS,
    outputs: operands::OUTPUTS,
    attributes: ATTRIBUTES,
    build: |a| Ok(Box::new(Projection { epsilon: a.optional("epsilon")?, gated: a.flag("gated")? })),
}];

#[cfg(test)]
mod tests {
    use elinvar_core::{Backend, NullBackend};

    use super::*;

    fn info(dtype: DType, dims: &[usize]) -> Option<TensorInfo> {
        Some(TensorInfo::new(dtype, dims).unwrap())
    }

    #[test]
    fn misfits_are_refused_in_a_line() {
        let (x, w) = (info(DType::F32, &[2, 8]), info(DType::BF16, &[6, 8]));
        let refused = |operator: Projection, change: &dyn Fn(&mut [Option<TensorInfo>; 9]), word: &str| {
            let mut inputs = [x, None, w, None, None, None, None, None, None];
            assert!(Projection::default().infer(&inputs).is_ok());
            change(&mut inputs);
            let message = operator.infer(&inputs).unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains('\n'), "{message}");
        };
        let (plain, gated) = (Projection::default(), Projection { gated: true, epsilon: None });
        refused(plain, &|i| i[0] = info(DType::BF16, &[2, 8]), "x is bf16");
        refused(plain, &|i| i[2] = None, "'w0' is missing");
        refused(plain, &|i| i[2] = info(DType::F32, &[6, 7]), "[n, 8] expected");
        refused(plain, &|i| i[4] = w, "w2 is given without w1");
        refused(plain, &|i| i[3] = info(DType::F16, &[6, 8]), "w1 is f16, w0 bf16: they must have one type");
        refused(plain, &|i| i[5] = info(DType::F32, &[5]), "[6] expected");
        refused(plain, &|i| i[1] = info(DType::F32, &[8]), "without epsilon");
        refused(Projection { epsilon: Some(0.0), gated: false }, &|i| i[1] = info(DType::F32, &[7]), "norm has shape [7]");
        refused(gated, &|_| (), "two weights of the same shape");
        refused(gated, &|i| i[3] = info(DType::BF16, &[5, 8]), "two weights of the same shape");
        refused(plain, &|i| (i[3], i[8]) = (w, info(DType::F32, &[2, 6])), "beside several weights");
        refused(plain, &|i| i[8] = info(DType::F32, &[2, 8]), "f32 [2, 6] expected");
    }

    #[test]
    fn a_row_that_fits_is_normalised_in_the_launch() {
        let device = NullBackend::new().properties().clone();
        let launches = |rows: usize, k: usize| {
            let inputs = [info(DType::F32, &[rows, k]), None, info(DType::BF16, &[4096, k]), None, None, None, None, None, None];
            let operator = Projection { epsilon: Some(1e-5), gated: false };
            let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
            plan.launches.iter().map(|l| l.kernel.key.operator.clone()).collect::<Vec<_>>()
        };
        assert_eq!(launches(1, 4096), ["projection"]);
        assert_eq!(launches(2, 4096), ["rms_norm", "projection"]);
        assert_eq!(launches(1, 14_336), ["rms_norm", "projection"]);
    }
}
