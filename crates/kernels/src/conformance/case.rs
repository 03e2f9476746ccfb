//! A case of the suite: an operator, its inputs and its oracle.

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Result};

pub(crate) use super::tensor::HostTensor;
use crate::{Operator, Plan, TensorInfo, attention::oracle::elements};

/// How far a result may be from the oracle's, before its own rounding: half an ulp of the output's type is always added.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub(super) relative: f64,
    pub(super) absolute: f64,
    pub(super) normalised: Option<f64>,
}

impl Bound {
    /// Equal, up to the output's rounding.
    pub const EXACT: Bound = Bound { relative: 0.0, absolute: 0.0, normalised: None };

    /// Relative to the exact value.
    pub const fn relative(relative: f64) -> Self {
        Self { relative, ..Self::EXACT }
    }

    /// Also absolute: for results that may cancel.
    pub const fn with_absolute(self, absolute: f64) -> Self {
        Self { absolute, ..self }
    }

    /// Of each row along the last axis, `‖found − exact‖ / ‖exact‖`, the output's own rounding included.
    pub const fn normalised(error: f64) -> Self {
        Self { normalised: Some(error), ..Self::EXACT }
    }

    fn allows(&self, dtype: DType, found: f64, exact: f64) -> bool {
        if found == exact || found.is_nan() && exact.is_nan() {
            return true;
        }
        // Half a unit in the last place, relative, and the smallest denormal's half, absolute.
        let (rounding, tiny, largest) = match dtype {
            DType::F32 => (2f64.powi(-24), 2f64.powi(-150), f64::from(f32::MAX)),
            DType::F16 => (2f64.powi(-11), 2f64.powi(-25), 65504.0),
            DType::BF16 => (2f64.powi(-8), 2f64.powi(-134), f64::from(half::bf16::MAX)),
            DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 | DType::U64 | DType::I64 | DType::F64 => {
                (0.0, 0.0, f64::INFINITY)
            }
        };
        if found.is_infinite() {
            return exact.signum() == found.signum() && exact.abs() > largest * (1.0 - self.relative);
        }
        (found - exact).abs() <= exact.abs() * (self.relative + rounding * (1.0 + 1e-9)) + self.absolute + tiny
    }
}

pub(super) type Oracle = Arc<dyn Fn(&[Vec<f64>]) -> Vec<Vec<f64>> + Send + Sync>;

/// One operator on given inputs.
#[derive(Clone)]
pub struct Case {
    /// The operator.
    pub operator: Arc<dyn Operator>,
    /// Its inputs; `None` for an absent optional one.
    pub inputs: Vec<Option<HostTensor>>,
    pub(super) bound: Bound,
    pub(super) oracle: Oracle,
    pub(super) updated: Vec<usize>,
    /// Results of bytes are packed rows of a cache, of which the oracle gives the elements.
    pub(super) packed: bool,
    /// Whether the oracle rounds, so that its differences are no gradient.
    pub rounds: bool,
    /// What sets it apart from another case of the same operator and types.
    pub(super) note: &'static str,
}

impl Case {
    /// A case; the oracle gets every input widened to f64 (an absent one is empty) and gives every output.
    pub fn new(
        operator: impl Operator + 'static,
        inputs: impl Into<Vec<Option<HostTensor>>>,
        bound: Bound,
        oracle: impl Fn(&[Vec<f64>]) -> Vec<Vec<f64>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            operator: Arc::new(operator),
            inputs: inputs.into(),
            bound,
            oracle: Arc::new(oracle),
            updated: Vec::new(),
            packed: false,
            rounds: false,
            note: "",
        }
    }

    /// The operator updates this input in place: its new value is a result, after the outputs and those of inputs named before.
    pub fn updating(mut self, input: usize) -> Self {
        self.updated.push(input);
        self
    }

    /// Results of bytes are packed rows of a cache: the oracle gives their elements.
    pub(crate) fn with_packed_caches(self) -> Self {
        Self { packed: true, ..self }
    }

    /// The oracle rounds as the operator's definition does: its differences are no gradient.
    pub(crate) fn of_rounded_steps(self) -> Self {
        Self { rounds: true, ..self }
    }

    /// The same with another bound.
    pub fn within(self, bound: Bound) -> Self {
        Self { bound, ..self }
    }

    /// What the case is, for messages.
    pub fn name(&self) -> String {
        let inputs: Vec<_> = self.inputs.iter().map(|i| i.as_ref().map_or("-".into(), |t| format!("{}{:?}", t.dtype(), t.dims()))).collect();
        let note = if self.note.is_empty() { String::new() } else { format!(", {}", self.note) };
        format!("{:?} on {}{note}", self.operator, inputs.join(" "))
    }

    /// The launches on a device.
    ///
    /// # Errors
    /// What the operator rejects.
    pub fn plan(&self, device: &DeviceProperties) -> Result<Plan> {
        let infos = self.infos()?;
        self.operator.plan(&infos, &self.operator.infer(&infos)?, device)
    }

    /// What the operator sees of the inputs.
    ///
    /// # Errors
    /// A shape beyond the limits.
    pub fn infos(&self) -> Result<Vec<Option<TensorInfo>>> {
        self.inputs.iter().map(|i| i.as_ref().map(HostTensor::info).transpose()).collect()
    }

    /// Compares results with the oracle.
    ///
    /// # Errors
    /// The first element outside the bound.
    pub fn check(&self, results: &[HostTensor]) -> Result<()> {
        let inputs: Vec<_> = self.inputs.iter().map(|i| i.as_ref().map_or_else(Vec::new, HostTensor::to_f64)).collect();
        let expected = (self.oracle)(&inputs);
        let fail = |why: String| Error::invalid_data(format!("{}: {why}", self.name()));
        if expected.len() != results.len() {
            return Err(fail(format!("{} outputs, {} expected", results.len(), expected.len())));
        }
        for (index, (result, expected)) in results.iter().zip(&expected).enumerate() {
            let found = if self.packed { elements(result.dtype(), result.dims(), &result.to_f64()) } else { result.to_f64() };
            if found.len() != expected.len() {
                return Err(fail(format!("output {index} has {} elements, {} expected", found.len(), expected.len())));
            }
            if let Some(limit) = self.bound.normalised {
                let width = result.dims().last().copied().unwrap_or(1).max(1);
                let errors = found.chunks(width).zip(expected.chunks(width)).map(|(found, exact)| normalised_error(found, exact));
                if let Some((row, error)) = errors.enumerate().find(|(_, error)| error.is_nan() || *error > limit) {
                    return Err(fail(format!("output {index}, row {row} has the normalised error {error:.2e}, at most {limit:.2e} expected")));
                }
                continue;
            }
            let wrong = found.iter().zip(expected).position(|(&f, &e)| !self.bound.allows(result.dtype(), f, e));
            if let Some(at) = wrong {
                return Err(fail(format!("output {index}, element {at} is {}, {} expected within {:?}", found[at], expected[at], self.bound)));
            }
        }
        Ok(())
    }
}

/// `‖found − exact‖ / ‖exact‖` over what is not NaN in both; zero if both are zeros.
fn normalised_error(found: &[f64], exact: &[f64]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let numbers = || found.iter().zip(exact).filter(|(f, e)| !(f.is_nan() && e.is_nan()));
    let error = norm(&mut numbers().map(|(f, e)| f - e));
    if error == 0.0 { 0.0 } else { error / norm(&mut numbers().map(|(_, e)| *e)) }
}

/// A part of a case, which is as this crate wrote it: one that cannot be made is a mistake here, and must not be left out without a word.
#[allow(clippy::panic, reason = "nothing that a caller gives comes here")]
pub(crate) fn made<T>(part: Result<T>) -> T {
    part.unwrap_or_else(|cause| panic!("a case of the conformance suite cannot be made: {cause}"))
}

/// The ragged lengths every row operator is tried at.
pub const LENGTHS: &[usize] = &[0, 1, 7, 31, 32, 33, 255, 256, 257, 1000, 1025, 4097];

/// Cases for each data type and each of [`LENGTHS`].
pub fn for_lengths<C: IntoIterator<Item = Case>>(dtypes: &[DType], make: impl Fn(DType, usize) -> C) -> Vec<Case> {
    dtypes.iter().flat_map(|&dtype| LENGTHS.iter().map(move |&n| (dtype, n))).flat_map(|(dtype, n)| make(dtype, n)).collect()
}

/// Lengths of rows that GPUs keep in registers, shared by more than one simdgroup: each number of threads, their last visit whole and in part.
pub const KEPT: [(DType, usize); 12] = [
    (DType::F16, 1040),
    (DType::F32, 2048),
    (DType::BF16, 2056),
    (DType::F32, 4096),
    (DType::BF16, 4096),
    (DType::F16, 4104),
    (DType::F32, 8192),
    (DType::BF16, 8192),
    (DType::F32, 8216),
    (DType::F16, 16_384),
    (DType::BF16, 20_008),
    (DType::F32, 32_768),
];

/// Cases for each of [`LENGTHS`] and data type, and for each of [`KEPT`].
pub fn for_rows<C: IntoIterator<Item = Case>>(make: impl Fn(DType, usize) -> C) -> Vec<Case> {
    let kept: Vec<_> = KEPT.into_iter().flat_map(|(dtype, n)| make(dtype, n)).collect();
    for_lengths(DType::FLOATS, make).into_iter().chain(kept).collect()
}
