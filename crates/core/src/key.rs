use std::{borrow::Cow, fmt};

use crate::dtype::DType;

/// A kernel's identity: operator, data types and compile-time constants. Two kernels with equal keys are the same kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelKey {
    /// The operator, or the name of a user's kernel.
    pub operator: Cow<'static, str>,
    /// The data types it is instantiated for.
    pub dtypes: Vec<DType>,
    /// Compile-time constants.
    pub constants: Vec<(&'static str, u32)>,
}

impl KernelKey {
    /// An operator for these data types, without constants.
    pub fn new(operator: impl Into<Cow<'static, str>>, dtypes: &[DType]) -> Self {
        Self { operator: operator.into(), dtypes: dtypes.to_vec(), constants: Vec::new() }
    }

    /// Adds a constant.
    pub fn with(mut self, name: &'static str, value: impl Into<u32>) -> Self {
        self.constants.push((name, value.into()));
        self
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operator)?;
        for dtype in &self.dtypes {
            write!(f, "_{dtype}")?;
        }
        for (name, value) in &self.constants {
            write!(f, "_{name}{value}")?;
        }
        Ok(())
    }
}
