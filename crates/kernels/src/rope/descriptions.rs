use super::{Rope, embedding, operands};
use crate::{Description, description::describe};

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("rope", "rotary position embedding by angles position * frequency", operands, Rope), embedding::DESCRIPTION];
