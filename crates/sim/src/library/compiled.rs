//! Kernels of Metal libraries that Apple's compiler has made.

use std::{collections::HashMap, sync::Arc};

use elinvar_core::{ConstantValue, Error, Result};
use elinvar_metallib::{Access, Argument, ArgumentKind, FunctionKind, Library as Contents};
use elinvar_msl::{AddressSpace, FunctionConstant, Kernel, Location, Parameter, ParameterKind, Position};

use super::Library;
use crate::{
    air,
    compile::{Place, Target},
};

/// A file that holds libraries.
#[derive(Clone)]
pub(super) struct File {
    name: String,
    bytes: Arc<[u8]>,
    /// Places of functions in the list, by name: the first of each.
    functions: Arc<HashMap<String, Function>>,
    /// In the order of the file.
    kernels: Arc<Vec<String>>,
}

struct Function {
    kind: FunctionKind,
    constants: Vec<FunctionConstant>,
    bitcode: std::ops::Range<usize>,
}

impl File {
    pub(super) fn read(name: &str, bytes: Arc<[u8]>) -> Result<Self> {
        let (mut functions, mut kernels) = (HashMap::new(), Vec::new());
        for function in Contents::read(name, &bytes)?.functions() {
            let start = function.bitcode.as_ptr() as usize - bytes.as_ptr() as usize;
            let constants = function.constants.iter().map(|constant| FunctionConstant {
                name: constant.name.to_owned(),
                index: constant.index.into(),
                type_name: constant.kind.name().to_owned(),
            });
            functions.entry(function.name.to_owned()).or_insert_with(|| {
                kernels.extend((function.kind == FunctionKind::Kernel).then(|| function.name.to_owned()));
                Function { kind: function.kind, constants: constants.collect(), bitcode: start..start + function.bitcode.len() }
            });
        }
        Ok(Self { name: name.to_owned(), bytes, functions: Arc::new(functions), kernels: Arc::new(kernels) })
    }

    pub(super) fn kernels(&self) -> Vec<&str> {
        self.kernels.iter().map(String::as_str).collect()
    }

    fn function(&self, name: &str) -> Result<&Function> {
        let Some(function) = self.functions.get(name) else {
            // The error names similar ones.
            return Err(Contents::read(&self.name, &self.bytes)?
                .function(name)
                .map_or_else(|error| error, |_| Error::internal(format!("{name} is lost"))));
        };
        match function.kind {
            FunctionKind::Kernel => Ok(function),
            other => Err(Error::unsupported(format!("{}: `{name}` is a {} function; the simulator executes kernels", self.name, other.name()))),
        }
    }

    pub(super) fn bitcode(&self, name: &str) -> Result<&[u8]> {
        Ok(self.bytes.get(self.function(name)?.bitcode.clone()).unwrap_or_default())
    }

    pub(super) fn constants(&self, name: &str) -> Result<Vec<FunctionConstant>> {
        Ok(self.function(name)?.constants.clone())
    }

    pub(super) fn kernel(&self, name: &str) -> Result<Kernel> {
        let mut description =
            elinvar_metallib::describe(self.bitcode(name)?).map_err(|error| error.context(format_args!("{}, function `{name}`", self.name)))?;
        description.arguments.sort_by_key(|argument| argument.position);
        let parameters = description.arguments.iter().map(|argument| self.parameter(name, argument)).collect::<Result<_>>()?;
        let location = Location { file: air::file(&self.name, name).into(), line: 1 };
        Ok(Kernel::of_compiled(name.to_owned(), parameters, description.max_threads, location))
    }

    fn parameter(&self, kernel: &str, argument: &Argument) -> Result<Parameter> {
        let element = argument.type_name.clone();
        let unsupported = |what: &str| {
            Error::unsupported(format!(
                "{}, function `{kernel}`: its parameter `{}` is a {what}, which the simulator does not have",
                self.name, argument.name
            ))
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

impl Library {
    pub(super) fn compile_function(&self, file: &File, name: &str, constants: &[(u32, ConstantValue)], target: &Target) -> Result<Place> {
        let bitcode = file.bitcode(name)?;
        let what = format!("{}, function `{name}`", file.name);
        let kernel = file.kernel(name)?;
        let module = self.compiler.toolchain().disassemble(bitcode, &what)?;
        let lower = |runtime: &_| {
            let request = air::Request {
                library: &file.name,
                function: name,
                parameters: &kernel.parameters,
                constants,
                checked: target.checked,
                math: target.math,
                runtime,
            };
            air::lower(&module, &request)
        };
        let place = Place { library: self.compiler.compiled(&what, target, lower)?, symbol: air::ENTRY.to_owned() };
        self.compiler.remember(&self.key(name, target)?, &place)?;
        Ok(place)
    }
}
