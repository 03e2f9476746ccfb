//! What every operator says of operands that do not fit.

use std::collections::BTreeSet;

use elinvar_core::{Backend, DType};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Port, TensorInfo,
    binary::BinaryOp,
    conformance,
    registry::{find, operators},
    unary::WithScalar,
};

/// The operand at a place, as messages name it.
fn operand(ports: &[Port], index: usize) -> String {
    match ports.get(index).or(ports.last()) {
        Some(port) if port.variadic => format!("{}{}", port.name, index + 1 - ports.len()),
        Some(port) => port.name.to_owned(),
        None => unreachable!("an operator without inputs is given one"),
    }
}

/// The operand with every other type; as a scalar; and with each extent one larger.
fn misfits(info: TensorInfo) -> Vec<TensorInfo> {
    let dims = info.shape().to_vec();
    let types = DType::PROGRAMS.iter().filter(|dtype| **dtype != info.dtype).map(|&dtype| TensorInfo { dtype, ..info });
    let longer = (0..dims.len()).map(|axis| dims.iter().enumerate().map(|(other, extent)| extent + usize::from(other == axis)).collect());
    let shapes = std::iter::once(Vec::new()).chain(longer).map(|dims: Vec<_>| TensorInfo::new(info.dtype, &dims).unwrap());
    types.chain(shapes).collect()
}

#[test]
fn operands_that_do_not_fit_are_named_beside_their_operator() {
    let device = CpuBackend::new(None).unwrap();
    let (mut seen, mut rejected, mut wrong) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for case in conformance::cases() {
        let (operator, infos) = (&case.operator, case.infos().unwrap());
        let name = operator.name();
        let kinds: Vec<_> = infos.iter().map(|info| info.map(|info| (info.dtype, info.shape().rank()))).collect();
        // Of functions with a number for an operand, some are no operators of the registry.
        let of_registry = |op: BinaryOp| matches!(op, BinaryOp::LeakyRelu | BinaryOp::Elu | BinaryOp::HardSigmoid);
        let is_other = operator.downcast_ref::<WithScalar>().is_some_and(|with| !of_registry(with.op));
        if is_other || !seen.insert(format!("{operator:?} {kinds:?}")) {
            continue;
        }
        let ports = find(name).unwrap().inputs;
        for (index, info) in infos.iter().enumerate().filter_map(|(index, info)| Some((index, (*info)?))) {
            let operand = operand(ports, index);
            for misfit in misfits(info) {
                let mut given = infos.clone();
                given[index] = Some(misfit);
                let error = match operator.infer(&given) {
                    // What is accepted can be computed.
                    Ok(outputs) => match operator.plan(&given, &outputs, device.properties()) {
                        Ok(_) => continue,
                        Err(error) => error.context("accepted, and rejected when it is planned"),
                    },
                    Err(error) => error,
                };
                let message = error.to_string();
                let names_it = message.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1).any(|word| word == operand);
                let begins = message.starts_with(&format!("{name}: ")) && message.matches(&format!("{name}:")).count() == 1;
                if !(error.is_invalid_argument() && begins && names_it && !message.contains('\n')) {
                    wrong.insert(format!("{name}, {operand}: {message}"));
                }
                rejected.insert((name, operand.clone()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for description in operators() {
        for (index, port) in description.inputs.iter().enumerate() {
            // Types alone may fit everywhere.
            let takes_all = matches!(description.name, "copy" | "cast" | "reshape" | "expand" | "transpose");
            assert!(takes_all || rejected.contains(&(description.name, operand(description.inputs, index))), "{}: {}", description.name, port.name);
        }
    }
}
