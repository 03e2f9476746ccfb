//! Fused operators and what they stand for: they have the same bits, but for fast precision.

use std::{collections::BTreeSet, sync::Arc};

use elinvar_core::{Device, DeviceProperties, Error, Result};

use super::{Case, Placement, run};
use crate::{Operator, Plan, Precision, TensorInfo};

/// An operator by the plan of what it stands for.
#[derive(Debug)]
struct Defined(Arc<dyn Operator>);

impl Operator for Defined {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.0.outputs(inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let definition = self.0.stands_for(inputs)?;
        definition.ok_or_else(|| Error::internal(format!("{} stands for nothing", self.name())))?.plan(device)
    }

    fn accepts_strides(&self, index: usize) -> bool {
        self.0.accepts_strides(index)
    }
}

/// Compares the operators of cases with what they stand for on a device: the names of those that stand for something.
///
/// # Errors
/// The first one that has other bits, or what [`run`] reports.
pub fn check_fused(device: &Device, cases: &[Case]) -> Result<BTreeSet<&'static str>> {
    let mut names = BTreeSet::new();
    for case in cases.iter().filter(|case| case.operator.precision() != Precision::Fast) {
        if case.operator.stands_for(&case.infos()?)?.is_none() {
            continue;
        }
        let fused = run(case, device, Placement::Aligned)?;
        let defined = run(&Case { operator: Arc::new(Defined(case.operator.clone())), ..case.clone() }, device, Placement::Aligned)?;
        if let Some((output, at)) =
            fused.iter().zip(&defined).enumerate().find_map(|(output, (fused, defined))| Some((output, fused.first_difference(defined)?)))
        {
            let (found, expected, name) = (fused[output].to_f64()[at], defined[output].to_f64()[at], case.name());
            let device = &device.properties().name;
            return Err(Error::invalid_data(format!(
                "{name}: element {at} of result {output} is {found}, and {expected} by the operators that it stands for on {device}"
            )));
        }
        names.insert(case.operator.name());
    }
    Ok(names)
}
