//! What a caller needs to know of a kernel to launch it.

use elinvar_core::{Error, Result};

use crate::location::Location;

/// A kernel that can be launched: a plain one, or an instantiation of a template.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The name the host asks for: the argument of `host_name`, else the function's name.
    pub name: String,
    /// The qualified name of the function, template arguments included.
    pub function: String,
    /// The parameters in order.
    pub parameters: Vec<Parameter>,
    /// The argument of `max_total_threads_per_threadgroup`: a launch may not have more.
    pub max_total_threads: Option<u32>,
    /// Where the kernel, or its instantiation, is declared.
    pub location: Location,
    /// A C++ expression for the address of the function.
    pub(crate) address: String,
}

impl Kernel {
    /// A kernel that no text of Metal Shading Language declares.
    pub fn of_compiled(name: String, parameters: Vec<Parameter>, max_total_threads: Option<u32>, location: Location) -> Self {
        Self { function: name.clone(), name, parameters, max_total_threads, location, address: String::new() }
    }

    /// Whether it asks how many threads the whole grid has.
    pub fn counts_threads(&self) -> bool {
        let counts = |kind: &ParameterKind| matches!(kind, ParameterKind::Position(Position::ThreadsPerGrid | Position::GridSize));
        self.parameters.iter().any(|parameter| counts(&parameter.kind))
    }

    /// The index of the buffer of that name.
    ///
    /// # Errors
    /// No parameter of that name, or it is no buffer.
    pub fn buffer_index(&self, name: &str) -> Result<u32> {
        match self.parameter(name)?.kind {
            ParameterKind::Buffer { index, .. } => Ok(index),
            ParameterKind::Threadgroup { .. } | ParameterKind::Position(_) => {
                Err(Error::invalid_argument(format!("kernel `{}`: `{name}` is no buffer", self.name)))
            }
        }
    }

    /// The index of the threadgroup memory of that name.
    ///
    /// # Errors
    /// No parameter of that name, or it is no threadgroup memory.
    pub fn threadgroup_index(&self, name: &str) -> Result<u32> {
        match self.parameter(name)?.kind {
            ParameterKind::Threadgroup { index, .. } => Ok(index),
            ParameterKind::Buffer { .. } | ParameterKind::Position(_) => {
                Err(Error::invalid_argument(format!("kernel `{}`: `{name}` is no threadgroup memory", self.name)))
            }
        }
    }

    fn parameter(&self, name: &str) -> Result<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name).ok_or_else(|| {
            let bound = self.parameters.iter().filter(|parameter| !matches!(parameter.kind, ParameterKind::Position(_)));
            let names: Vec<_> = bound.map(|parameter| parameter.name.as_str()).collect();
            Error::invalid_argument(format!("kernel `{}` has no parameter `{name}`: it takes {}", self.name, names.join(", ")))
        })
    }
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name; empty where the declaration leaves it out.
    pub name: String,
    /// The type as written, with template arguments put in.
    pub type_name: String,
    /// What is bound to the parameter.
    pub kind: ParameterKind,
    /// The function constant that says whether the argument is bound at all: `[[buffer(1), function_constant(has_bias)]]`.
    pub condition: Option<String>,
}

/// What a parameter is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A buffer, or bytes for a `constant` reference.
    Buffer {
        /// The index in the argument table.
        index: u32,
        /// Device or constant memory.
        space: AddressSpace,
        /// Whether the kernel may write: what is pointed to is not `const`.
        written: bool,
        /// The element's type.
        element: String,
        /// Whether the parameter is a reference, so that one element suffices.
        reference: bool,
    },
    /// Threadgroup memory whose size the launch gives.
    Threadgroup {
        /// The index in the threadgroup memory table.
        index: u32,
        /// The element's type.
        element: String,
    },
    /// A position that Metal fills in.
    Position(Position),
}

/// The memory a buffer's parameter points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSpace {
    /// `device`.
    Device,
    /// `constant`, which a kernel cannot write.
    Constant,
}

/// A constant whose value is given when a pipeline is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionConstant {
    /// The variable's name.
    pub name: String,
    /// The index in `[[function_constant(index)]]`.
    pub index: u32,
    /// The type as written.
    pub type_name: String,
}

macro_rules! positions {
    ($($(#[$doc:meta])* $name:ident = $shown:literal $(| $alias:literal)*;)*) => {
        /// A position attribute. The discriminant is the row of `elv_positions` that holds it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is the attribute of the same name")]
        pub enum Position { $($(#[$doc])* $name,)* }

        impl Position {
            /// Every position, in order.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The attribute's name.
            pub fn attribute(self) -> &'static str {
                match self { $(Self::$name => $shown,)* }
            }

            /// The position of that attribute.
            pub fn from_attribute(name: &str) -> Option<Self> {
                match name { $($shown $(| $alias)* => Some(Self::$name),)* _ => None }
            }
        }
    };
}

positions! {
    ThreadPositionInGrid = "thread_position_in_grid";
    ThreadPositionInThreadgroup = "thread_position_in_threadgroup";
    ThreadgroupPositionInGrid = "threadgroup_position_in_grid";
    ThreadsPerThreadgroup = "threads_per_threadgroup";
    ThreadsPerGrid = "threads_per_grid";
    ThreadgroupsPerGrid = "threadgroups_per_grid";
    ThreadIndexInThreadgroup = "thread_index_in_threadgroup";
    ThreadIndexInSimdgroup = "thread_index_in_simdgroup";
    SimdgroupIndexInThreadgroup = "simdgroup_index_in_threadgroup";
    ThreadsPerSimdgroup = "threads_per_simdgroup" | "thread_execution_width";
    SimdgroupsPerThreadgroup = "simdgroups_per_threadgroup";
    DispatchThreadsPerThreadgroup = "dispatch_threads_per_threadgroup";
    QuadgroupIndexInThreadgroup = "quadgroup_index_in_threadgroup";
    ThreadIndexInQuadgroup = "thread_index_in_quadgroup";
    GridOrigin = "grid_origin";
    GridSize = "grid_size";
    DispatchSimdgroupsPerThreadgroup = "dispatch_simdgroups_per_threadgroup";
    QuadgroupsPerThreadgroup = "quadgroups_per_threadgroup";
    DispatchQuadgroupsPerThreadgroup = "dispatch_quadgroups_per_threadgroup";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_has_its_row() {
        let rows = format!("#define ELV_POSITIONS {}\n", Position::ALL.len());
        assert!(crate::simulator::PRELUDE.iter().any(|(name, text)| *name == "runtime.h" && text.contains(&rows)));
        for (row, &position) in Position::ALL.iter().enumerate() {
            assert_eq!(position as usize, row);
            assert_eq!(Position::from_attribute(position.attribute()), Some(position));
        }
    }
}
