//! The kernels of a file, as those of a text are described.

use std::{collections::HashMap, ops::Range, sync::Arc};

use elinvar_core::{Error, Result};
use elinvar_msl::{AddressSpace, FunctionConstant, Kernel, Location, Module, Parameter, ParameterKind, Position};

use crate::{Access, Argument, ArgumentKind, Description, FunctionKind, Library, describe};

/// What kernels are compiled from.
#[derive(Clone)]
pub enum Kernels {
    /// A text that was read.
    Text(Arc<Module>),
    /// What Apple's compiler has made.
    Compiled(CompiledLibrary),
}

impl Kernels {
    /// The kernels' names.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Kernels::Text(module) => module.kernels().iter().map(|kernel| kernel.name.as_str()).collect(),
            Kernels::Compiled(library) => library.names().collect(),
        }
    }

    /// What a kernel takes.
    ///
    /// # Errors
    /// No such kernel; a compiled one that takes what no device here has, such as a texture.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        match self {
            Kernels::Text(module) => module.kernel(name),
            Kernels::Compiled(library) => library.kernel(name),
        }
    }

    /// The function constants that a kernel may take.
    ///
    /// # Errors
    /// No such kernel, in a library.
    pub fn constants(&self, kernel: &str) -> Result<&[FunctionConstant]> {
        match self {
            Kernels::Text(module) => Ok(module.constants()),
            Kernels::Compiled(library) => Ok(&library.function(kernel)?.constants),
        }
    }

    /// For each parameter of a kernel, the bytes of an element if it is a buffer, where they are known.
    ///
    /// # Errors
    /// As [`Kernels::kernel`].
    pub fn element_sizes(&self, kernel: &Kernel) -> Result<Vec<Option<usize>>> {
        match self {
            Kernels::Text(module) => {
                let size = |parameter: &Parameter| match &parameter.kind {
                    ParameterKind::Buffer { element, .. } => module.size_of(element),
                    ParameterKind::Threadgroup { .. } | ParameterKind::Position(_) => None,
                };
                Ok(kernel.parameters.iter().map(size).collect())
            }
            Kernels::Compiled(library) => {
                let size = |argument: &Argument| match argument.kind {
                    ArgumentKind::Buffer { size, .. } => Some(size as usize).filter(|&size| size > 0),
                    ArgumentKind::Threadgroup { .. } | ArgumentKind::Position(_) | ArgumentKind::Bound { .. } => None,
                };
                Ok(library.description(&kernel.name)?.arguments.iter().map(size).collect())
            }
        }
    }
}

/// A file that holds Metal libraries; clones share it.
#[derive(Clone)]
pub struct CompiledLibrary {
    name: String,
    bytes: Arc<[u8]>,
    /// By name: the first of each.
    functions: Arc<HashMap<String, Function>>,
    /// In the order of the file.
    kernels: Arc<Vec<String>>,
}

struct Function {
    kind: FunctionKind,
    constants: Vec<FunctionConstant>,
    bitcode: Range<usize>,
    library: Range<usize>,
}

impl CompiledLibrary {
    /// Lists what is in a file, which messages call `name`.
    ///
    /// # Errors
    /// It holds no library, or one that contradicts itself.
    pub fn read(name: &str, bytes: Arc<[u8]>) -> Result<Self> {
        let (mut functions, mut kernels) = (HashMap::new(), Vec::new());
        for function in Library::read(name, &bytes)?.functions() {
            let place = |part: &[u8]| {
                let start = part.as_ptr().addr() - bytes.as_ptr().addr();
                start..start + part.len()
            };
            let constants = function.constants.iter().map(|constant| FunctionConstant {
                name: constant.name.to_owned(),
                index: constant.index.into(),
                type_name: constant.kind.name().to_owned(),
            });
            functions.entry(function.name.to_owned()).or_insert_with(|| {
                kernels.extend((function.kind == FunctionKind::Kernel).then(|| function.name.to_owned()));
                let (bitcode, library) = (place(function.bitcode), place(function.library));
                Function { kind: function.kind, constants: constants.collect(), bitcode, library }
            });
        }
        Ok(Self { name: name.to_owned(), bytes, functions: Arc::new(functions), kernels: Arc::new(kernels) })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernels' names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(String::as_str)
    }

    fn function(&self, name: &str) -> Result<&Function> {
        let Some(function) = self.functions.get(name) else {
            // The error names similar ones.
            return Err(Library::read(&self.name, &self.bytes)?
                .function(name)
                .map_or_else(|error| error, |_| Error::internal(format!("{name} is lost"))));
        };
        match function.kind {
            FunctionKind::Kernel => Ok(function),
            other => Err(Error::unsupported(format!("{}: `{name}` is a {} function; only kernels are launched", self.name, other.name()))),
        }
    }

    /// A kernel's LLVM bitcode.
    ///
    /// # Errors
    /// No such kernel.
    pub fn bitcode(&self, name: &str) -> Result<&[u8]> {
        Ok(self.bytes.get(self.function(name)?.bitcode.clone()).unwrap_or_default())
    }

    /// Where in the file the library lies that a kernel is in.
    ///
    /// # Errors
    /// No such kernel.
    pub fn library(&self, name: &str) -> Result<Range<usize>> {
        Ok(self.function(name)?.library.clone())
    }

    /// The file.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// What a kernel takes.
    ///
    /// # Errors
    /// No such kernel; one that takes what no device here has, such as a texture.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let description = self.description(name)?;
        let parameters = description.arguments.iter().map(|argument| self.parameter(name, argument)).collect::<Result<_>>()?;
        let location = Location { file: disassembly(&self.name, name).into(), line: 1 };
        Ok(Kernel::of_compiled(name.to_owned(), parameters, description.max_threads, location))
    }

    /// With the arguments in the order of the function's parameters.
    fn description(&self, name: &str) -> Result<Description> {
        let mut description = describe(self.bitcode(name)?).map_err(|error| error.context(format_args!("{}, function `{name}`", self.name)))?;
        description.arguments.sort_by_key(|argument| argument.position);
        Ok(description)
    }

    fn parameter(&self, kernel: &str, argument: &Argument) -> Result<Parameter> {
        let element = argument.type_name.clone();
        let unsupported = |what: &str| {
            Error::unsupported(format!("{}, function `{kernel}`: its parameter `{}` is a {what}, which is not supported", self.name, argument.name))
        };
        let kind = match &argument.kind {
            ArgumentKind::Buffer { index, access, constant, needed, .. } => ParameterKind::Buffer {
                index: *index,
                space: if *constant { AddressSpace::Constant } else { AddressSpace::Device },
                written: *access != Access::Read,
                element,
                reference: needed.is_some(),
            },
            ArgumentKind::Threadgroup { index } => ParameterKind::Threadgroup { index: *index, element },
            ArgumentKind::Position(name) => {
                ParameterKind::Position(Position::from_attribute(name).ok_or_else(|| unsupported(&format!("position `{name}`")))?)
            }
            ArgumentKind::Bound { kind, .. } => return Err(unsupported(kind)),
        };
        // Which constant decides is computed by the function itself.
        let condition = argument.conditional.then(String::new);
        Ok(Parameter { name: argument.name.clone(), type_name: argument.type_name.clone(), kind, condition })
    }
}

/// What findings call a function's disassembly.
pub fn disassembly(library: &str, function: &str) -> String {
    format!("{library}/{function}.ll")
}
