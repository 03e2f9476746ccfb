use elinvar_core::{Error, Result};

use super::{Compare, CompareOp, logical, operands};
use crate::{Attributes, Description, Operator};

/// The comparison of the operator's name.
fn build(attributes: &Attributes) -> Result<Box<dyn Operator>> {
    let name = attributes.operator();
    match CompareOp::of_name(name) {
        Some(op) => Ok(Box::new(Compare { op })),
        None => Err(Error::internal(format!("there is no comparison '{name}'"))),
    }
}

const fn described(op: CompareOp) -> Description {
    Description { name: op.name(), summary: op.summary(), inputs: operands::INPUTS, outputs: operands::OUTPUTS, attributes: &[], build }
}

const LOGICAL: [Description; 4] = [logical::AND, logical::OR, logical::XOR, logical::NOT];

const COUNT: usize = CompareOp::ALL.len() + LOGICAL.len();

pub(crate) const DESCRIPTIONS: &[Description] = &{
    let (mut all, mut index) = ([LOGICAL[0]; COUNT], 1);
    while index < COUNT {
        all[index] = if index < LOGICAL.len() { LOGICAL[index] } else { described(CompareOp::ALL[index - LOGICAL.len()]) };
        index += 1;
    }
    all
};
