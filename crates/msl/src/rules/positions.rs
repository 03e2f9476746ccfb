//! Positions of one kernel are all scalars or all vectors of one width.

use std::collections::BTreeMap;

use crate::{
    kernel::{Parameter, ParameterKind, Position},
    lints::Lint,
    module::Module,
};

/// Kernels that mix scalars and vectors among the positions of which Metal asks one shape.
pub(crate) fn positions(module: &Module) -> Vec<Lint> {
    let mut lints: Vec<Lint> = Vec::new();
    for (location, parameters) in module.signatures() {
        let mut widths: BTreeMap<usize, &Parameter> = BTreeMap::new();
        for parameter in &parameters {
            if let Some(width) = width(parameter) {
                widths.entry(width).or_insert(parameter);
            }
        }
        if widths.len() > 1 {
            let shown: Vec<String> = widths.values().map(|parameter| format!("`{} {}`", parameter.type_name, parameter.name)).collect();
            let message = format!(
                "{} are positions of one kernel: Metal takes them all as scalars or all as vectors of one width; use the wider type for all",
                shown.join(" and ")
            );
            lints.push(Lint { location, rule: "positions", message });
        }
    }
    lints
}

/// How many numbers a position has of which Metal asks one shape; none for other parameters.
fn width(parameter: &Parameter) -> Option<usize> {
    let ParameterKind::Position(position) = parameter.kind else { return None };
    let shaped = match position {
        Position::ThreadPositionInGrid
        | Position::ThreadPositionInThreadgroup
        | Position::ThreadgroupPositionInGrid
        | Position::ThreadsPerThreadgroup
        | Position::ThreadsPerGrid
        | Position::ThreadgroupsPerGrid
        | Position::DispatchThreadsPerThreadgroup => true,
        Position::ThreadIndexInThreadgroup
        | Position::ThreadIndexInSimdgroup
        | Position::SimdgroupIndexInThreadgroup
        | Position::ThreadsPerSimdgroup
        | Position::SimdgroupsPerThreadgroup
        | Position::QuadgroupIndexInThreadgroup
        | Position::ThreadIndexInQuadgroup
        | Position::GridOrigin
        | Position::GridSize
        | Position::DispatchSimdgroupsPerThreadgroup
        | Position::QuadgroupsPerThreadgroup
        | Position::DispatchQuadgroupsPerThreadgroup => false,
    };
    let width = parameter.type_name.chars().last().and_then(|last| last.to_digit(10)).map_or(1, |width| width as usize);
    shaped.then_some(width)
}
