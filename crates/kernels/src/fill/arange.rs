//! Evenly spaced values.

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Result};

use super::cpu;
use crate::{
    Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    elementwise::{self, Operand, Space, over_elements, scalar::Scalar},
    metal::{self, metal_file, params},
    signature::operands,
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, ArangeParams::METAL, metal_file!("fill/arange.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "arange");

attributes! {
    /// `start, start + step, …` up to but not including `limit`: `[⌈(limit − start) / step⌉]`. No inputs.
    #[derive(Clone, Copy, Debug)]
    pub struct Arange {
        /// The first value.
        pub start: Scalar = 0,
        /// Where the values end; it is not one of them.
        pub limit: Scalar,
        /// The distance; negative counts down.
        pub step: Scalar = 1,
        /// The type.
        pub dtype: DType = f32,
    }
}

params! {
    /// The parameter block.
    pub struct ArangeParams {
        /// Number of elements.
        pub count: u64,
        /// The first value: an integer's low bits, or an f32's bits.
        pub start: u64,
        /// The distance, alike.
        pub step: u64,
    }
}

impl Arange {
    fn count(&self) -> Result<usize> {
        let reject = |why: &str| Error::invalid_argument(format!("from {} to {} by {}: {why}", self.start, self.limit, self.step));
        if self.dtype == DType::Bool {
            return Err(reject("bool has no sequence of values"));
        }
        if self.step.to_f64() == 0.0 {
            return Err(reject("the step must not be zero"));
        }
        let count = if self.dtype.is_float() {
            let count = ((self.limit.to_f64() - self.start.to_f64()) / self.step.to_f64()).ceil();
            if !count.is_finite() || count > isize::MAX as f64 {
                return Err(reject("it does not end"));
            }
            count as i128
        } else {
            let whole = |value: Scalar| value.whole().ok_or_else(|| reject("whole numbers are expected for an integer type"));
            let (start, limit, step) = (whole(self.start)?, whole(self.limit)?, whole(self.step)?);
            let distance = limit.checked_sub(start).ok_or_else(|| reject("it is too long"))?;
            distance.div_euclid(step) + i128::from(distance.rem_euclid(step) != 0 && step > 0)
        };
        usize::try_from(count.max(0)).map_err(|_| reject("it is too long"))
    }
}

operands! {
    pub(super) mod operands {
        -> y: write(DType::NUMBERS), "[ceil((limit - start) / step)]";
    }
}

impl Operator for Arange {
    fn name(&self) -> &'static str {
        "arange"
    }

    fn outputs(&self, _inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        Ok(vec![TensorInfo::new(self.dtype, &[self.count()?])?])
    }

    fn plan(&self, _inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let count = outputs[0].elements();
        let bits = |value: Scalar| match value.whole() {
            Some(whole) if !self.dtype.is_float() => Ok(whole as u64),
            _ => value.bits(DType::F32),
        };
        let params = ArangeParams { count: count as u64, start: bits(self.start)?, step: bits(self.step)? };
        let buffers = operands::Inputs {}.parameters(outputs)?;
        let launch = Launch::new(KernelKey::new("arange", &[self.dtype]), cpu::arange(self.dtype)?, &params, buffers);
        Ok(over_elements(launch.with_metal(METAL), count).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(dtype: DType, [start, limit, step]: [&str; 3]) -> Result<usize> {
        let scalar = |text: &str| text.parse().unwrap();
        Arange { start: scalar(start), limit: scalar(limit), step: scalar(step), dtype }.count()
    }

    #[test]
    fn the_number_of_values_is_the_ceiling_of_the_quotient() {
        for (values, expected) in [(["1", "5", "2"], 2), (["10", "6", "-3"], 2), (["0", "6", "3"], 2), (["6", "0", "-3"], 2), (["3", "1", "1"], 0)] {
            assert_eq!(count(DType::I32, values).unwrap(), expected, "{values:?}");
            assert_eq!(count(DType::F32, values).unwrap(), expected, "{values:?}");
        }
        assert_eq!(count(DType::BF16, ["0", "1", "0.3"]).unwrap(), 4);
    }

    #[test]
    fn sequences_without_end_are_rejected() {
        for (dtype, values) in [
            (DType::F32, ["0", "1", "0"]),
            (DType::F32, ["0", "inf", "1"]),
            (DType::F32, ["nan", "1", "1"]),
            (DType::I8, ["0", "1", "0.5"]),
            (DType::Bool, ["0", "1", "1"]),
            (DType::I64, ["0", "36893488147419103232", "1"]),
        ] {
            assert!(count(dtype, values).is_err(), "{dtype} {values:?}");
        }
    }
}
