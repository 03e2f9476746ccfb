use elinvar_core::Result;

use crate::{
    attributes::{AttributeInfo, Attributes},
    operator::Operator,
    signature::Port,
};

/// An operator, described.
#[derive(Clone, Copy)]
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// What it computes, in a line.
    pub summary: &'static str,
    /// Inputs in order.
    pub inputs: &'static [Port],
    /// Outputs in order, and after them the inputs that it updates in place.
    pub outputs: &'static [Port],
    /// Attributes.
    pub attributes: &'static [AttributeInfo],
    /// Makes the operator from its attributes.
    pub build: fn(&Attributes) -> Result<Box<dyn Operator>>,
}

impl Description {
    /// Makes the operator from attribute texts.
    ///
    /// # Errors
    /// Attributes that are unknown, missing or do not parse.
    pub fn operator<K: Into<String>, V: Into<String>>(&self, attributes: impl IntoIterator<Item = (K, V)>) -> Result<Box<dyn Operator>> {
        Attributes::new(self.name, self.attributes, attributes).and_then(|a| (self.build)(&a)).map_err(|e| e.context(self.name))
    }
}

/// The description of an operator: its name, what it computes, the module that declares its operands, and the operator: a type that `attributes!` declares,
/// with the values of the fields that are no attributes, or after `=` a value that has none.
macro_rules! describe {
    ($name:expr, $summary:expr, $($operands:ident)::+, = $operator:expr) => {
        $crate::description::describe!(@ $name, $summary, $($operands)::+, &[], |_| Ok(Box::new($operator)))
    };
    ($name:expr, $summary:expr, $($operands:ident)::+, $operator:ident $(($($given:expr),+))?) => {
        $crate::description::describe!(
            @ $name, $summary, $($operands)::+, $operator::ATTRIBUTES, |attributes| Ok(Box::new($operator::read(attributes $($(, $given)+)?)?))
        )
    };
    (@ $name:expr, $summary:expr, $($operands:ident)::+, $attributes:expr, $build:expr) => {
        $crate::Description {
            name: $name,
            summary: $summary,
            inputs: $($operands)::+::INPUTS,
            outputs: $($operands)::+::OUTPUTS,
            attributes: $attributes,
            build: $build,
        }
    };
}

pub(crate) use describe;
