//! A preprocessed Metal text, read.

use std::collections::HashSet;

use elinvar_core::{Error, Result};

use crate::{
    attributes::{self, attributes},
    instantiation::{Instantiation, instantiation},
    integers::Integers,
    kernel::{FunctionConstant, Kernel, Parameter, ParameterKind},
    location::Location,
    signature::{self, Declaration, TemplateParameter},
    structure::{Scope, Structure},
    tokens::{TokenKind, Tokens},
};

/// A preprocessed Metal text: its kernels, its function constants, and what can be made of them.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) tokens: Tokens,
    pub(crate) structure: Structure,
    integers: Integers,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) constants: Vec<DeclaredConstant>,
    kernels: Vec<Kernel>,
    /// Kernels with arguments that are not modelled, by name and by the index of their declaration's name, and why.
    unsupported: Vec<(String, usize, Error)>,
    function_constants: Vec<FunctionConstant>,
}

/// A function constant and the tokens of its declaration, the semicolon included.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredConstant {
    pub(crate) constant: FunctionConstant,
    pub(crate) range: (usize, usize),
}

impl Module {
    /// Reads what [`preprocess`](crate::preprocess) gives, whose line markers (`# 12 "file"`) give locations.
    ///
    /// # Errors
    ///
    /// A kernel's declaration that cannot be launched: an unknown attribute, a parameter bound to nothing, two kernels of one name. The message
    /// starts with the file and line.
    pub fn read(preprocessed: &str) -> Result<Self> {
        let tokens = Tokens::new(preprocessed);
        if let Some(attribute) = attributes::unknown(&tokens) {
            let location = tokens.location(attribute.at);
            return Err(Error::compile_failed(format!(
                "{location}: unknown attribute [[{}]]; compute kernels have none of that name",
                attribute.name
            )));
        }
        let structure = Structure::new(&tokens);
        let integers = Integers::new(&tokens, &structure);
        let mut module = Self {
            tokens,
            structure,
            integers,
            declarations: Vec::new(),
            constants: Vec::new(),
            kernels: Vec::new(),
            unsupported: Vec::new(),
            function_constants: Vec::new(),
        };
        module.read_declarations()?;
        module.read_kernels()?;
        module.function_constants = module.constants.iter().map(|declared| declared.constant.clone()).collect();
        Ok(module)
    }

    /// The plain kernels and the explicit instantiations, in the order of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel that the host calls `name`. A template's instantiation that the text does not name is made on demand from `function<arguments>`.
    ///
    /// # Errors
    ///
    /// No such kernel: the message lists those that come near.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        match self.kernels.iter().find(|kernel| kernel.name == name) {
            Some(kernel) => Ok(kernel.clone()),
            None => match self.unsupported().find(|(unsupported, _)| *unsupported == name) {
                Some((_, error)) => Err(error.clone()),
                None => self.instantiate(name),
            },
        }
    }

    /// The kernels that cannot be lowered because they take arguments that are not modelled, such as textures: their names, and why not.
    pub fn unsupported(&self) -> impl Iterator<Item = (&str, &Error)> {
        self.unsupported.iter().map(|(name, _, error)| (name.as_str(), error))
    }

    /// The function constants, in the order of the text.
    pub fn constants(&self) -> &[FunctionConstant] {
        &self.function_constants
    }

    /// Each kernel that the text declares, templates as they are written: where, and its parameters.
    pub(crate) fn signatures(&self) -> impl Iterator<Item = (Location, Vec<Parameter>)> {
        let read = |declaration: &Declaration| {
            let parameters = signature::parameters(&self.tokens, &self.integers, declaration, &[]).ok()?;
            Some((self.tokens.location(declaration.at), parameters))
        };
        self.declarations.iter().filter(|declaration| declaration.body.is_some()).filter_map(read)
    }

    fn read_declarations(&mut self) -> Result<()> {
        let starts: Vec<usize> = self.structure.starts(Scope::Namespace).collect();
        for start in starts {
            if let Some(declaration) = self.declaration(start) {
                self.declarations.push(declaration);
            } else if let Some(constant) = self.function_constant(start)? {
                self.constants.push(constant);
            }
        }
        Ok(())
    }

    /// The kernel declared by the statement at `start`, if it is one.
    fn declaration(&self, start: usize) -> Option<Declaration> {
        let tokens = &self.tokens;
        let (template, head) = template_head(tokens, start)?;
        let (mut is_kernel, mut host_name, mut max_total_threads, mut at) = (false, None, None, head);
        while !matches!(tokens.text(at), "(" | ";" | "{" | "=") && tokens.kind(at) != TokenKind::End {
            if tokens.is_attribute(at) {
                for attribute in attributes(tokens, at) {
                    match attribute.name {
                        "kernel" => is_kernel = true,
                        "host_name" => host_name = Some(tokens.string(attribute.arguments.0)),
                        "max_total_threads_per_threadgroup" => max_total_threads = Some(attribute.arguments),
                        _ => {}
                    }
                }
            }
            is_kernel |= tokens.text(at) == "kernel";
            at = match tokens.text(at) {
                "alignas" | "decltype" | "__attribute__" => tokens.after(at + 1),
                "[" | "<" => tokens.after(at),
                _ => at + 1,
            };
        }
        if !is_kernel || tokens.text(at) != "(" {
            return None;
        }
        let (name, arguments) = match tokens.before(at) {
            ">" => tokens.angle_start(at).map(|open| (open.saturating_sub(1), Some((open + 1, at - 1))))?,
            _ => (at.checked_sub(1)?, None),
        };
        let close = tokens.partner(at);
        let body = tokens.find(close + 1, tokens.len(), &["{", ";"]);
        Some(Declaration {
            qualified: self.structure.namespace(tokens, start) + tokens.text(name),
            host_name,
            max_total_threads,
            template: template.filter(|parameters| !parameters.is_empty()),
            arguments,
            at: name,
            parameters: (at + 1, close),
            body: (tokens.text(body) == "{").then(|| (body + 1, tokens.partner(body))),
        })
    }

    fn function_constant(&self, start: usize) -> Result<Option<DeclaredConstant>> {
        let tokens = &self.tokens;
        let mut found = None;
        for at in start..tokens.find(start, tokens.len(), &[";", "{", "(", "="]) {
            if tokens.is_attribute(at)
                && let Some(attribute) = attributes(tokens, at).into_iter().find(|attribute| attribute.name == "function_constant")
            {
                found = Some((at, attribute.arguments));
            }
        }
        let Some((at, arguments)) = found else { return Ok(None) };
        let name = tokens.before(at).to_owned();
        let index = self.integers.evaluate(tokens, arguments).and_then(|value| u32::try_from(value).ok()).ok_or_else(|| {
            let location = tokens.location(at);
            Error::compile_failed(format!(
                "{location}: the index of function constant {name:?} is no number known here: {}",
                tokens.join(arguments.0, arguments.1)
            ))
        })?;
        let words = (start..at.saturating_sub(1)).filter(|&at| !matches!(tokens.text(at), "constant" | "const" | "static" | "constexpr"));
        let type_name = crate::tokens::join(words.map(|at| tokens.text(at)));
        Ok(Some(DeclaredConstant {
            constant: FunctionConstant { name, index, type_name },
            range: (start, tokens.find(at, tokens.len(), &[";"]) + 1),
        }))
    }

    fn read_kernels(&mut self) -> Result<()> {
        let (mut kernels, mut unsupported) = (Vec::new(), Vec::new());
        for declaration in &self.declarations {
            if declaration.template.is_none() && declaration.body.is_some() {
                match self.plain(declaration) {
                    Ok(kernel) => kernels.push(kernel),
                    Err(error) if error.is_unsupported() => unsupported.push((self.plain_name(declaration), declaration.at, error)),
                    Err(error) => return Err(error),
                }
            }
        }
        for start in self.structure.starts(Scope::Namespace) {
            if is_explicit_instantiation(&self.tokens, start)
                && let Some(found) = instantiation(&self.tokens, start).filter(|found| found.is_kernel)
            {
                match self.instantiated(start, &found) {
                    Ok(kernel) => kernels.push(kernel),
                    Err(error) if error.is_unsupported() => {
                        let declaration = self.template(self.tokens.text(found.name), None).map_or(found.name, |declaration| declaration.at);
                        unsupported.push((found.host_name.unwrap_or_default(), declaration, error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let mut seen = HashSet::new();
        for kernel in &kernels {
            if !seen.insert(&kernel.name) {
                return Err(Error::compile_failed(format!("{}: a second kernel is named {:?}", kernel.location, kernel.name)));
            }
        }
        self.kernels = kernels;
        self.unsupported = unsupported;
        Ok(())
    }

    /// Whether the kernel whose name stands at `at` has arguments that are not modelled.
    pub(crate) fn is_unsupported(&self, at: usize) -> bool {
        self.unsupported.iter().any(|&(_, declared, _)| declared == at)
    }

    fn plain_name(&self, declaration: &Declaration) -> String {
        let arguments = declaration.arguments.map(|(start, end)| format!("<{}>", self.tokens.join(start, end))).unwrap_or_default();
        declaration.host_name.clone().unwrap_or_else(|| self.tokens.text(declaration.at).to_owned() + &arguments)
    }

    fn plain(&self, declaration: &Declaration) -> Result<Kernel> {
        let tokens = &self.tokens;
        let arguments = declaration.arguments.map(|(start, end)| format!("<{}>", tokens.join(start, end))).unwrap_or_default();
        let function = format!("{}{arguments}", declaration.qualified);
        Ok(Kernel {
            name: self.plain_name(declaration),
            address: address_of(&function),
            function,
            parameters: signature::parameters(tokens, &self.integers, declaration, &[])?,
            max_total_threads: signature::max_total_threads(tokens, &self.integers, declaration, &[]),
            location: tokens.location(declaration.at),
        })
    }

    fn instantiated(&self, start: usize, found: &Instantiation) -> Result<Kernel> {
        let tokens = &self.tokens;
        let location = tokens.location(start);
        let count = found.parameters.map(|range| signature::parameter_ranges(tokens, range).len());
        let declaration = self.template(tokens.text(found.name), count).ok_or_else(|| {
            Error::compile_failed(format!("{location}: no kernel template {:?} is declared for this instantiation", tokens.text(found.name)))
        })?;
        let arguments: Option<Vec<String>> =
            found.arguments.map(|(start, end)| tokens.split(start, end).into_iter().map(|(start, end)| tokens.join(start, end)).collect());
        let substitution = substitution(declaration, &arguments.unwrap_or_default());
        let mut parameters = signature::parameters(tokens, &self.integers, declaration, &substitution)?;
        if let Some(range) = found.parameters {
            repeat_types(tokens, range, &mut parameters);
        }
        let id = tokens.join(found.id.0, found.id.1);
        let qualified = format!("{}{id}", self.structure.namespace(tokens, start));
        let address = match found.parameters {
            Some((start, end)) if found.arguments.is_none() => {
                format!("(void (*)({})){}", without_attributes(tokens, start, end), address_of(&qualified))
            }
            _ => address_of(&qualified),
        };
        Ok(Kernel {
            name: found.host_name.clone().unwrap_or(id),
            function: qualified,
            parameters,
            max_total_threads: signature::max_total_threads(tokens, &self.integers, declaration, &substitution),
            location,
            address,
        })
    }

    /// The kernel template called `name`; of several, the one with `count` parameters.
    fn template(&self, name: &str, count: Option<usize>) -> Option<&Declaration> {
        let mut named = self.declarations.iter().filter(|declaration| declaration.template.is_some() && self.tokens.text(declaration.at) == name);
        let fits =
            |declaration: &&Declaration| count.is_none_or(|count| signature::parameter_ranges(&self.tokens, declaration.parameters).len() == count);
        named.clone().find(fits).or_else(|| named.next())
    }

    fn instantiate(&self, name: &str) -> Result<Kernel> {
        let (function, arguments) = name.trim_end().strip_suffix('>').and_then(|name| name.split_once('<')).ok_or_else(|| self.no_kernel(name))?;
        let declaration = self.template(function.trim().rsplit("::").next().unwrap_or(function), None).ok_or_else(|| self.no_kernel(name))?;
        let list = Tokens::new(arguments);
        let arguments: Vec<String> = list.split(0, list.len()).into_iter().map(|(start, end)| list.join(start, end)).collect();
        let substitution = substitution(declaration, &arguments);
        let function = format!("{}<{}>", declaration.qualified, arguments.join(", "));
        Ok(Kernel {
            name: name.to_owned(),
            parameters: signature::parameters(&self.tokens, &self.integers, declaration, &substitution)?,
            max_total_threads: signature::max_total_threads(&self.tokens, &self.integers, declaration, &substitution),
            location: self.tokens.location(declaration.at),
            address: address_of(&function),
            function,
        })
    }

    fn no_kernel(&self, name: &str) -> Error {
        let mut names: Vec<&str> = self.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let common = |other: &str| other.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        names.sort_by_key(|other| std::cmp::Reverse(common(other)));
        let templates =
            self.declarations.iter().filter(|declaration| declaration.template.is_some()).map(|declaration| declaration.qualified.as_str());
        let found = match names.as_slice() {
            [] => "it has no kernels".to_owned(),
            names => {
                format!("it has {} kernels: {}{}", names.len(), names[..names.len().min(8)].join(", "), if names.len() > 8 { ", …" } else { "" })
            }
        };
        let templates: Vec<&str> = templates.take(8).collect();
        let on_demand =
            if templates.is_empty() { String::new() } else { format!("; templates, asked for as name<arguments>: {}", templates.join(", ")) };
        Error::invalid_argument(format!("no kernel {name:?} in this text; {found}{on_demand}"))
    }
}

/// The parameters of the template heads at `start`, and the index after them; nothing for an explicit instantiation.
fn template_head(tokens: &Tokens, start: usize) -> Option<(Option<Vec<TemplateParameter>>, usize)> {
    let (mut template, mut at) = (None, start);
    while tokens.text(at) == "template" {
        if tokens.text(at + 1) != "<" {
            return None;
        }
        template = Some(signature::template_parameters(tokens, at + 1));
        at = tokens.after(at + 1);
    }
    Some((template, at))
}

pub(crate) fn is_explicit_instantiation(tokens: &Tokens, start: usize) -> bool {
    tokens.text(start) == "template" && tokens.text(start + 1) != "<"
}

/// The address of a function by its qualified name: with `using namespace metal`, one called `transpose` is not Metal's.
fn address_of(function: &str) -> String {
    format!("&::{}", function.trim_start_matches("::"))
}

/// What stands for each template parameter: the argument given, else the default.
fn substitution(declaration: &Declaration, arguments: &[String]) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for (index, parameter) in declaration.template.iter().flatten().enumerate() {
        // A default may be a parameter before it.
        let of = |default: &String| all.iter().find(|(name, _)| name == default).map_or(default, |(_, argument)| argument).clone();
        let argument = arguments.get(index).cloned().or_else(|| parameter.default.as_ref().map(of));
        all.extend(argument.map(|argument| (parameter.name.clone(), argument)));
    }
    all
}

/// Takes the types from the parameters that an instantiation repeats.
fn repeat_types(tokens: &Tokens, range: (usize, usize), parameters: &mut [crate::kernel::Parameter]) {
    for (range, parameter) in signature::parameter_ranges(tokens, range).into_iter().zip(parameters) {
        let types = signature::parameter_type(tokens, range);
        parameter.type_name = types.whole;
        if let ParameterKind::Buffer { element, .. } | ParameterKind::Threadgroup { element, .. } = &mut parameter.kind {
            *element = types.element;
        }
    }
}

fn without_attributes(tokens: &Tokens, start: usize, end: usize) -> String {
    let mut kept = Vec::new();
    let mut at = start;
    while at < end {
        if tokens.is_attribute(at) {
            at = tokens.after(at);
        } else {
            kept.push(tokens.text(at));
            at += 1;
        }
    }
    crate::tokens::join(kept.into_iter())
}

#[cfg(test)]
mod tests;
