use std::{
    any::Any,
    fmt::{self, Write},
    hash::{Hash, Hasher},
    sync::Arc,
};

use elinvar_core::{DType, Device, DeviceProperties, Layout, Result, Shape};

use crate::{
    ElementOp,
    elementwise::dispatch::named,
    gradient,
    launch::{Argument, Plan},
};

named! {
    /// How a matrix product or attention may be computed.
    #[derive(Default)]
    pub enum Precision("precision") {
        /// The canonical order of operations: the same bits everywhere.
        #[default]
        Strict "strict",
        /// One order of operations on each device: the same bits of a row on that device, whatever else is computed.
        Invariant "invariant",
        /// Any order and any matrix unit, f32 accumulation: compared by normalised error.
        Fast "fast",
    }
}

impl Precision {
    /// Whether the order of operations may depend on the shapes.
    pub fn is_fast(self) -> bool {
        match self {
            Precision::Strict | Precision::Invariant => false,
            Precision::Fast => true,
        }
    }

    /// The precision of an operator's gradient, and of what is computed to be differentiated. A gradient sums over the rows of a batch, so none of its rows is to
    /// be the same whatever the others are: that of an invariant operator is fast.
    #[must_use]
    pub fn of_gradients(self) -> Self {
        match self {
            Precision::Strict => Precision::Strict,
            Precision::Invariant | Precision::Fast => Precision::Fast,
        }
    }
}

/// What an operator knows of a tensor: the type of its elements and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Type of the elements.
    pub dtype: DType,
    /// Where they lie, relative to the start of what is bound ([`Layout::span`] starts at zero).
    pub layout: Layout,
}

impl TensorInfo {
    /// Adds to a key what an operator sees of a tensor.
    pub fn identify(dtype: DType, layout: &Layout, key: &mut Vec<u8>) {
        key.extend_from_slice(&[dtype as u8, layout.shape().rank() as u8]);
        for (extent, stride) in layout.shape().iter().zip(layout.strides()) {
            key.extend_from_slice(&extent.to_ne_bytes());
            key.extend_from_slice(&stride.to_ne_bytes());
        }
        key.extend_from_slice(&layout.origin().to_ne_bytes());
    }

    /// A row-major tensor.
    ///
    /// # Errors
    /// A shape beyond the limits of [`Shape::new`].
    pub fn new(dtype: DType, dims: &[usize]) -> Result<Self> {
        Ok(Self { dtype, layout: Layout::contiguous(Shape::new(dims)?) })
    }

    /// A row-major tensor of `shape`.
    pub fn of(dtype: DType, shape: Shape) -> Self {
        Self { dtype, layout: Layout::contiguous(shape) }
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape().elements()
    }

    /// Bytes of its elements, row-major.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }
}

/// What an operator does to an operand before anything else: operands that several round alike can be rounded once.
#[derive(Clone, Debug)]
pub struct Rounding {
    /// The input.
    pub input: usize,
    /// The type that it gets.
    pub to: DType,
    /// The operator that takes it rounded.
    pub operator: Arc<dyn Operator>,
}

/// An operator: its attributes, and how it is inferred and planned.
///
/// `inputs` always has one entry for each declared input; absent optional inputs are `None`.
pub trait Operator: Any + fmt::Debug + Send + Sync {
    /// Its name, as the registry has it.
    fn name(&self) -> &'static str;

    /// What [`Operator::infer`] gives.
    ///
    /// # Errors
    /// Shapes or data types that do not fit, said in one line that names the operands.
    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>>;

    /// The outputs' types (row-major). An operator that only updates an input in place has none.
    ///
    /// # Errors
    /// Shapes or data types that do not fit: `rms_norm: weight has shape [5], x has shape [2, 4]: expected [4]`.
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.outputs(inputs).map_err(|e| e.context(self.name()))
    }

    /// The launches. Called after [`Operator::infer`] has accepted the inputs.
    ///
    /// # Errors
    /// What the device does not offer.
    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan>;

    /// How sums may be ordered: strict unless the operator offers a choice.
    fn precision(&self) -> Precision {
        Precision::Strict
    }

    /// Whether input `index` may have any strides; others are made row-major before the operator sees them.
    fn accepts_strides(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// Whether input `index` is updated in place.
    fn updates(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// The operand that the plan for `device` rounds first, if it rounds one.
    ///
    /// # Errors
    /// As [`Operator::infer`].
    fn rounds(&self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Rounding>> {
        let _ = (inputs, device);
        Ok(None)
    }

    /// The operator that gives its one result rounded to `to`, where the plan for `device` stores it so: then no launch needs to round it.
    ///
    /// # Errors
    /// As [`Operator::infer`].
    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let _ = (to, inputs, device);
        Ok(None)
    }

    /// The same in strict precision, where the operator offers a choice.
    fn strict(&self) -> Option<Arc<dyn Operator>> {
        None
    }

    /// What it is to a program that computes element by element, if that can have it.
    fn element_op(&self) -> Option<ElementOp> {
        None
    }

    /// For a fused operator: the plain operators whose bits it has.
    ///
    /// # Errors
    /// As [`Operator::infer`].
    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        let _ = inputs;
        Ok(None)
    }

    /// The gradients of the wanted inputs: a definition over the inputs, then the outputs, then the gradients of the outputs (of their shapes and types,
    /// with any strides; absent where an output has none), whose outputs they are, in the order of the inputs and of their shapes and types.
    ///
    /// ```
    /// # use elinvar_kernels::{Operator, TensorInfo, unary::{Unary, UnaryOp}};
    /// # use elinvar_core::DType;
    /// let x = Some(TensorInfo::new(DType::F32, &[3])?);
    /// let gradient = Unary { op: UnaryOp::Relu }.gradient(&[x], &[x], &[true])?;
    /// assert_eq!(gradient.steps.last().map(|step| step.operator.name()), Some("where"));
    /// # Ok::<(), elinvar_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// An operator that has none, which the error names; inputs that it rejects; or one that is wanted and is absent or no floating-point number.
    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        match self.stands_for(inputs)? {
            Some(definition) => definition.gradient(self, upstream, wanted),
            None => Err(gradient::none(self)),
        }
    }
}

impl dyn Operator {
    /// [`Operator::plan`], with errors that name the operator.
    fn named_plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        self.plan(inputs, outputs, device).map_err(|e| e.context(self.name()))
    }

    /// It as an operator of this type, if it is one.
    pub fn downcast_ref<T: Operator>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Adds what it is to a key: its type and, as its `Debug` form lists them, its attributes.
    pub fn identify(&self, key: &mut Vec<u8>) {
        struct Text<'a>(&'a mut Vec<u8>);

        impl fmt::Write for Text<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }

        /// A type's number is a hash already.
        #[derive(Default)]
        struct Number(u64);

        impl Hasher for Number {
            fn finish(&self) -> u64 {
                self.0
            }

            fn write(&mut self, bytes: &[u8]) {
                bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
            }

            fn write_u64(&mut self, number: u64) {
                self.0 ^= number;
            }
        }

        let mut number = Number::default();
        self.type_id().hash(&mut number);
        key.extend_from_slice(&number.finish().to_le_bytes());
        // What is written into memory does not fail.
        let _ = write!(Text(key), "{self:?}");
        // No text has this byte: what follows begins here.
        key.push(0xff);
    }

    /// Whether both are operators of one type.
    pub fn is_like(&self, other: &dyn Operator) -> bool {
        self.type_id() == other.type_id()
    }

    /// Whether both are the same operator with the same attributes, which its `Debug` form lists.
    pub fn is_same(&self, other: &dyn Operator) -> bool {
        let identity = |operator: &dyn Operator| {
            let mut key = Vec::new();
            operator.identify(&mut key);
            key
        };
        self.is_like(other) && identity(self) == identity(other)
    }
}

/// Where an operand comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Input of the fused operator, by index.
    Input(usize),
    /// A step and which of its outputs.
    Step(usize, usize),
}

/// What a step takes: a source, seen through a layout that is relative to its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Where it comes from.
    pub source: Source,
    /// Its type and layout.
    pub info: TensorInfo,
}

impl Operand {
    /// The step that gives it, if one does.
    pub fn step(&self) -> Option<usize> {
        match self.source {
            Source::Step(step, _) => Some(step),
            Source::Input(_) => None,
        }
    }

    /// The same memory in another layout.
    pub fn view(self, layout: Layout) -> Self {
        Self { info: TensorInfo { layout, ..self.info }, ..self }
    }
}

/// An operator and what it takes.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operator.
    pub operator: Arc<dyn Operator>,
    /// One for each declared input.
    pub inputs: Vec<Option<Operand>>,
}

/// The plain operators that a fused operator stands for, in order. Their results have its bits; so a definition is at once the fused operator's meaning to
/// whatever looks for it in a graph, and its plan where nothing better is there.
#[derive(Clone, Debug)]
pub struct Definition {
    pub(crate) inputs: Vec<Option<TensorInfo>>,
    /// The operators.
    pub steps: Vec<Step>,
    /// What the fused operator's outputs hold.
    pub outputs: Vec<Operand>,
    /// Inputs that are updated in place, beside those that a step updates, and what they hold then.
    pub updated: Vec<(usize, Operand)>,
}

/// A tensor and what it is bound to.
pub(crate) type Bound = (TensorInfo, Argument);

impl Plan {
    /// Adds the launches of an operator, its inputs and its outputs bound to these.
    pub(crate) fn add(&mut self, operator: &dyn Operator, inputs: &[Option<Bound>], outputs: &[Argument], device: &DeviceProperties) -> Result<()> {
        let infos: Vec<_> = inputs.iter().map(|input| input.map(|(info, _)| info)).collect();
        let plan = operator.named_plan(&infos, &operator.infer(&infos)?, device)?;
        let before = self.scratch.len();
        self.scratch.extend(plan.scratch);
        for mut launch in plan.launches {
            for argument in &mut launch.arguments {
                *argument = match *argument {
                    Argument::Input(index) => inputs.get(index).copied().flatten().map_or(Argument::Absent, |(_, to)| to),
                    Argument::Output(index) => outputs.get(index).copied().unwrap_or(Argument::Absent),
                    Argument::Scratch(index) => Argument::Scratch(before + index),
                    Argument::Absent => Argument::Absent,
                };
            }
            self.launches.push(launch);
        }
        Ok(())
    }
}

/// An operator's launches on a device whose kernels are prepared for them. A kernel that needs many registers may run with fewer threads than the
/// device's properties say: the operator is then asked for launches of no more than these, until its kernels can run them or it has no smaller ones,
/// which the device compiles the kernel for, or rejects when they are submitted.
///
/// # Errors
/// What the operator rejects, or a kernel that does not compile.
pub fn plan_for(operator: &dyn Operator, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &Device) -> Result<Plan> {
    let mut plan = operator.named_plan(inputs, outputs, device.properties())?;
    let mut most = device.properties().max_threads_per_threadgroup;
    if !device.properties().has_simdgroups() {
        return Ok(plan);
    }
    loop {
        let mut fewer = most;
        for launch in &plan.launches {
            let limit = device.pipeline(&launch.kernel)?.info().map_or(usize::MAX, |info| info.max_threads);
            if launch.threadgroup.count() > limit as u128 {
                fewer = fewer.min(limit);
            }
        }
        if fewer == most {
            return Ok(plan);
        }
        most = fewer;
        plan = operator.named_plan(inputs, outputs, &DeviceProperties { max_threads_per_threadgroup: most, ..device.properties().clone() })?;
    }
}
