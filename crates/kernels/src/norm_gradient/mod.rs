//! The gradients of [`RmsNorm`](crate::rms_norm::RmsNorm) and [`LayerNorm`](crate::layer_norm::LayerNorm).
//!
//! With `c = x − μ` (`μ = 0` for `rms_norm`), `r = 1 / sqrt(Σ c² / n + ε)`, `v = c · r` and `h = g · w` of the gradient `g`:
//! `dx = ((h − Σ h / n) − v · (Σ h c · r / n)) · r`, for `rms_norm` without `Σ h / n`; `dw = Σ g · v` and, of `layer_norm`, `db = Σ g` over all rows. Computed in
//! f32, rounded once. An addend, which is what a residual stream has as its gradient, is added to the rounded `dx`.
//!
//! * Memory: the rows are read once and the result is written once; the later looks at rows that registers do not hold hit the cache.
//! * Order of the rows' sums: the row order of [`crate::order`], products by fma; `μ` and `r` have the bits of the norms.
//! * Order of the columns' sums: the rows are cut into shares of consecutive rows (`Shares`), a function of their number and length alone. Walker `i` of
//!   `W` of a share folds its rows `i`, `i + W`, … from +0, `a = fma(g, v, a)` and `a = a + g`; the walkers' sums are added in their order, and those of the
//!   shares in the row order of [`crate::order`].
//! * Error against exact arithmetic, before the rounding of the output: `(d(n) + 10) · 2^-24 · (max |h| + |v| Σ |h v| / n) · r` for `dx`; for sums over `m`
//!   rows in `s` shares, with `k = ⌈m / s W⌉ + W + d(s)`, `(d(n) + k + 5) · 2^-24 · Σ |g v|` and `k · 2^-24 · Σ |g|`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    description::describe,
    gradient::{self, Gradient},
    metal::{self, metal_file, params},
    order,
    rms_norm::check_weight,
    rows::Rows,
    signature::{misshapen, operands},
};

attributes! {
    /// The gradient of a norm. Inputs `x […]`, `weight` of the normalised axes' shape, optional, `dy`, as `x`, and an `addend`, as `x`, optional; outputs
    /// `dx` or the sum of that and the addend, as `x`, and, if wanted, of the normalised axes' shape, `dweight` and, of `layer_norm`, `dbias`.
    #[derive(Clone, Copy, Debug)]
    pub struct NormGradient {
        /// The first normalised axis; negative counts from the end.
        pub axis: isize = -1,
        /// Added to the mean of the squares, or to the variance.
        pub epsilon: f32 = 1e-5,
        /// Also give `dweight` and, of `layer_norm`, `dbias`.
        pub parameters: bool = false,
    } and {
        /// Of `layer_norm`.
        pub centred: bool,
    }
}

params! {
    struct Params {
        pub rows: Rows,
        pub epsilon: f32,
        /// Whether there is a weight.
        pub weighted: u32,
        /// Whether there is an addend.
        pub added: u32,
        /// Of `layer_norm`.
        pub centred: u32,
        /// Rows of a share that are under way at once; none without sums.
        pub walkers: u32,
        /// Rows of a share.
        pub share: u32,
        /// Words of memory of a share.
        pub words: u64,
    }
}

params! {
    /// What the shares of the rows have for the weight and, behind that, for the bias.
    struct Parts {
        /// Shares.
        pub count: u64,
        /// Sums of a share.
        pub width: u64,
        /// Of these, for the weight.
        pub columns: u64,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Rows::METAL, Params::METAL, metal_file!("norm_gradient/norm_gradient.metal")];
const LAST_FILES: &[MetalFile] = &[metal::TYPES, order::METAL, Parts::METAL, metal_file!("norm_gradient/parameters.metal")];

/// Columns of a threadgroup that adds up shares, as the Metal text has them.
const COLUMNS: u64 = 8;

/// Threads of a share of several walkers.
const WALKING: usize = 256;

/// How rows are cut for the sums of their columns: into shares that keep a GPU busy, and whose sums are read again at little cost.
struct Shares {
    /// Rows of a share that are under way at once.
    walkers: usize,
    /// Rows of a share.
    rows: usize,
    /// Shares.
    count: usize,
    /// Threads of a share.
    threads: usize,
    /// Words of 16 bytes that these threads add up, for each norm's parameter.
    words: usize,
}

impl Shares {
    fn new(rows: &Rows) -> Self {
        /// Sums of all shares together, about, and how many rows a walker takes at least and at most.
        const SUMS: usize = 1 << 21;
        const STEPS: [usize; 2] = [2, 256];
        let (count, length) = (rows.count(), rows.length as usize);
        let walkers = if length.is_multiple_of(8) && length <= order::ONE_SIMDGROUP { WALKING / order::row_lanes(length) } else { 1 };
        let most = (SUMS / (walkers * length.max(1))).clamp(128, 1024);
        let rows = walkers * count.div_ceil(walkers * most).clamp(STEPS[0], STEPS[1]);
        let threads = if walkers > 1 { WALKING } else { order::row_threads(length) };
        Self { walkers, rows, count: count.div_ceil(rows), threads, words: 2 * threads * (walkers * length).div_ceil(8 * threads) }
    }
}

operands! {
    x: read(DType::FLOATS), "[…]";
    weight: read(DType::FLOATS) optional, "the shape of x from axis on; 1 where absent";
    dy: read(like x), "the gradient of the norm, as x";
    addend: read(like x) optional, "what is added to the gradient, as x";
    -> dx: write(like x), "as x";
    dweight: write(like weight) optional, "if wanted: the shape of x from axis on";
    dbias: write(like weight) optional, "if wanted, of layer_norm: as dweight";
}

impl Operator for NormGradient {
    fn name(&self) -> &'static str {
        if self.centred { "layer_norm_gradient" } else { "rms_norm_gradient" }
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, weight, dy, addend } = operands::Inputs::new(inputs)?;
        check_weight(("x", x), self.axis, ("weight", weight))?;
        if x.shape() != dy.shape() {
            return Err(misshapen!(dy, x; "one shape"));
        }
        if let Some(addend) = addend.filter(|addend| addend.shape() != x.shape()) {
            return Err(misshapen!(addend, x; "one shape"));
        }
        let mut outputs = vec![TensorInfo::of(x.dtype, *x.shape())];
        if self.parameters {
            let columns = Shape::new(&x.shape()[x.shape().axis(self.axis)?..])?;
            outputs.resize(if self.centred { 3 } else { 2 }, TensorInfo::of(weight.map_or(DType::F32, |weight| weight.dtype), columns));
        }
        Ok(outputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (dtype, weight) = (inputs.x.dtype, inputs.dtype(operands::AT.weight));
        let rows = Rows::from_axis(inputs.x.shape(), self.axis)?;
        let shares = Shares::new(&rows);
        let words = shares.words * if self.centred { 2 } else { 1 };
        let memory = 4 * order::PARTIALS + 16 * words;
        let is_shared = memory <= device.threadgroup_memory || !device.has_simdgroups();
        let summed = if self.parameters { 1 + u32::from(!is_shared) } else { 0 };
        let [x, w, dy, addend, dx, dweight, dbias] = inputs.parameters(outputs)?;
        let [weighted, added, centred] = [inputs.weight.is_some(), inputs.addend.is_some(), self.centred].map(u32::from);
        let walkers = if self.parameters { shares.walkers as u32 } else { 0 };
        let params = Params { rows, epsilon: self.epsilon, weighted, added, centred, walkers, share: shares.rows as u32, words: words as u64 };
        let key = rows.key(KernelKey::new("norm_gradient", &[dtype, weight]).with("centred", centred).with("summed", summed));
        let key = key.with("threads", order::row_threads_bound(rows.length as usize));
        let written = |name, dtype, index, is_there| {
            (Parameter::write(name, dtype).or_absent(), if is_there { Argument::Scratch(index) } else { Argument::Absent })
        };
        let buffers = [x, w, dy, addend, dx, written("parts", DType::F32, 0, summed > 0), written("sums", DType::F32, 1, summed == 2)];
        let launch = Launch::new(key, cpu::kernel(dtype, weight)?, &params, buffers).with_metal(MetalForm::new(FILES, "norm_gradient"));
        if !self.parameters {
            return Ok(rows.launch(launch, device).with_threadgroup_memory(4 * order::PARTIALS).into());
        }
        let width = (1 + u64::from(centred)) * rows.length;
        let groups = |count: u64| Extent::linear(count.min(u32::MAX.into()) as u32);
        let launch = launch
            .over(groups(if rows.length > 0 { shares.count as u64 } else { 0 }), Extent::linear(shares.threads as u32))
            .with_threadgroup_memory(if summed == 1 { memory.min(device.threadgroup_memory) } else { 4 * order::PARTIALS });
        let parts = Parts { count: shares.count as u64, width, columns: rows.length };
        let buffers = [(Parameter::read("parts", DType::F32), Argument::Scratch(0)), dweight, dbias];
        let last = Launch::new(KernelKey::new("norm_parameter_gradient", &[weight]), cpu::last_kernel(weight)?, &parts, buffers)
            .with_metal(MetalForm::new(LAST_FILES, "norm_parameter_gradient"))
            .over(groups(width.div_ceil(COLUMNS)), Extent::linear(32 * COLUMNS as u32))
            .with_threadgroup_memory(4 * 33 * COLUMNS as usize);
        let count = shares.count.max(1);
        let scratch = [4 * count * width.max(1) as usize, 16 * count * words.max(1)];
        Ok(Plan { launches: vec![launch, last], scratch: scratch[..summed as usize].to_vec() })
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        let mut definition = Definition::new(inputs);
        let given = operands::AT;
        let Some(addend) = definition.input(given.addend) else { return Ok(None) };
        let taken = [given.x, given.weight, given.dy].map(|index| definition.input(index));
        let mut outputs = definition.apply(*self, &taken)?;
        outputs[0] = definition.apply_one(Binary { op: BinaryOp::Add }, &[Some(addend), Some(outputs[0])])?;
        definition.outputs = outputs;
        Ok(Some(definition))
    }

    fn gradient(&self, _: &[Option<TensorInfo>], _: &[Option<TensorInfo>], _: &[bool]) -> Result<Definition> {
        Err(gradient::none(self))
    }
}

/// The gradients of a norm by its input 0, by its weight, input 1, and by its bias, input 2.
pub(crate) fn of_norm(mut gradient: Gradient, wanted: &[bool], axis: isize, epsilon: f32, centred: bool) -> Result<Definition> {
    let operator = NormGradient { axis, epsilon, parameters: wanted.get(1) == Some(&true), centred };
    let upstream = gradient.upstream(0)?;
    // A bias by itself needs nothing of the rows.
    let found = match wanted.iter().take(2).any(|wanted| *wanted) {
        true => gradient.apply_all(operator, &[Some(gradient.input(0)?), gradient.optional(1), Some(upstream)])?,
        false => Vec::new(),
    };
    gradient.of(wanted, |_, index| Ok(found.get(index).copied().unwrap_or(upstream)))
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("rms_norm_gradient", "the gradients of rms_norm by its rows and, if wanted, by its weight", operands, NormGradient(false)),
    describe!("layer_norm_gradient", "the gradients of layer_norm by its rows and, if wanted, by its weight and bias", operands, NormGradient(true)),
];
