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
