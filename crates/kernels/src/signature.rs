//! What operators take and give: each declares its operands once, by `operands!`. From the declaration follow the ports that the registry shows, the
//! checks of inference, the parameters of the launch, and the indices by which the CPU kernel finds its arguments.

use std::fmt;

use elinvar_core::{Access, DType, Error, Parameter, Result, Shape};

use crate::{attributes::choice, elementwise::storage, launch::Argument, operator::TensorInfo};

/// One input or output of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Its name: the tensor's name in the files of `elinvar op`.
    pub name: &'static str,
    /// Data types it takes. In a launch an absent operand has the first, unless it is of the type of one that is present.
    pub dtypes: &'static [DType],
    /// What the operator does with it: an input that is updated in place is also a result.
    pub access: Access,
    /// The operand whose type it has, by its index among inputs and outputs.
    pub like: Option<usize>,
    /// May be absent.
    pub optional: bool,
    /// Stands for any number of tensors of one type, named `name0`, `name1`, …; only the last input may.
    pub variadic: bool,
    /// Its shape and meaning.
    pub doc: &'static str,
    prefetched: bool,
    bits: bool,
}

/// The words of a declaration.
impl Port {
    const fn new(name: &'static str, access: Access, dtypes: &'static [DType], like: Option<usize>, doc: &'static str) -> Self {
        Self { name, dtypes, access, like, optional: false, variadic: false, doc, prefetched: false, bits: false }
    }

    pub(crate) const fn read(name: &'static str, dtypes: &'static [DType], like: Option<usize>, doc: &'static str) -> Self {
        Self::new(name, Access::Read, dtypes, like, doc)
    }

    pub(crate) const fn write(name: &'static str, dtypes: &'static [DType], like: Option<usize>, doc: &'static str) -> Self {
        Self::new(name, Access::Write, dtypes, like, doc)
    }

    pub(crate) const fn update(name: &'static str, dtypes: &'static [DType], like: Option<usize>, doc: &'static str) -> Self {
        Self::new(name, Access::ReadWrite, dtypes, like, doc)
    }

    pub(crate) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(crate) const fn variadic(self) -> Self {
        Self { variadic: true, ..self }
    }

    /// The launch may read it before those ahead have ended: [`Parameter::prefetched`].
    pub(crate) const fn prefetched(self) -> Self {
        Self { prefetched: true, ..self }
    }

    /// The kernel moves it as bits: its parameter has the unsigned type of that size.
    pub(crate) const fn bits(self) -> Self {
        Self { bits: true, ..self }
    }

    /// Checks the type that an operand has, or that an attribute gives it.
    ///
    /// # Errors
    /// It takes others.
    pub(crate) fn check(&self, dtype: DType) -> Result<()> {
        if self.dtypes.contains(&dtype) {
            return Ok(());
        }
        Err(mismatch(&[type_of(self.name, dtype)], choice(self.dtypes.iter().map(|dtype| dtype.name()))))
    }

    /// The parameter of a launch that is composed by hand.
    pub(crate) fn bind(&self, dtype: DType, to: Argument) -> (Parameter, Argument) {
        (self.parameter(dtype), to)
    }

    fn parameter(&self, dtype: DType) -> Parameter {
        let dtype = if self.bits { storage(dtype) } else { dtype };
        Parameter { name: self.name.into(), access: self.access, dtype, optional: self.optional, prefetched: self.prefetched }
    }
}

/// The same operands with each type that follows from another's put in.
pub(crate) const fn resolved<const N: usize>(mut ports: [Port; N]) -> [Port; N] {
    let mut index = 0;
    while index < N {
        if let Some(like) = ports[index].like {
            ports[index].dtypes = ports[like].dtypes;
        }
        index += 1;
    }
    ports
}

/// The same operands, for an operator of the family that takes only these types.
pub(crate) const fn limited<const N: usize>(mut ports: [Port; N], dtypes: &'static [DType]) -> [Port; N] {
    let mut index = 0;
    while index < N {
        ports[index].dtypes = dtypes;
        index += 1;
    }
    ports
}

/// How many results there are: outputs, and inputs updated in place.
pub(crate) const fn result_count(ports: &[Port]) -> usize {
    let (mut index, mut count) = (0, 0);
    while index < ports.len() {
        count += ports[index].access.writes() as usize;
        index += 1;
    }
    count
}

/// The outputs, and after them the inputs updated in place.
pub(crate) const fn results<const N: usize>(ports: &[Port], inputs: usize) -> [Port; N] {
    let mut all = [ports[ports.len() - 1]; N];
    let (mut index, mut count) = (0, 0);
    while count < N {
        let port = ports[(inputs + index) % ports.len()];
        if port.access.writes() {
            all[count] = port;
            count += 1;
        }
        index += 1;
    }
    all
}

/// Checks what there is of inputs: how many they are and their types. Presence is checked by [`required`].
///
/// # Errors
/// What contradicts the declaration.
pub(crate) fn check(ports: &[Port], inputs: &[Option<TensorInfo>]) -> Result<()> {
    if let Some(last) = ports.last().filter(|port| port.variadic) {
        let (first, name) = (ports.len() - 1, last.name);
        for (index, input) in inputs.get(first..).unwrap_or_default().iter().enumerate() {
            let Some(input) = input else { return Err(missing(&format!("{name}{index}"))) };
            if let Some(before) = inputs[first].filter(|before| before.dtype != input.dtype) {
                let found = [type_of(&format!("{name}{index}"), input.dtype), type_of(&format!("{name}0"), before.dtype)];
                return Err(mismatch(&found, "one type"));
            }
        }
    } else if inputs.len() > ports.len() {
        return Err(mismatch(&[format!("{} inputs are given", inputs.len())], format_args!("at most {}", ports.len())));
    }
    let present = || ports.iter().zip(inputs).enumerate().filter_map(|(index, (port, input))| Some((index, port, input.as_ref()?.dtype)));
    for (index, port, dtype) in present() {
        port.check(dtype)?;
        let group = port.like.unwrap_or(index);
        if let Some((_, other, expected)) = present().find(|(other, p, _)| p.like.unwrap_or(*other) == group)
            && expected != dtype
        {
            return Err(mismatch(&[type_of(port.name, dtype), type_of(other.name, expected)], "one type"));
        }
    }
    Ok(())
}

/// An input that must be there.
///
/// # Errors
/// It is not.
pub(crate) fn required(port: &Port, input: Option<TensorInfo>) -> Result<TensorInfo> {
    input.ok_or_else(|| missing(&format!("{}{}", port.name, if port.variadic { "0" } else { "" })))
}

fn missing(name: &str) -> Error {
    Error::invalid_argument(format!("input '{name}' is missing"))
}

/// The error of operands that do not fit: what each was found to be, and what fits.
pub(crate) fn mismatch(found: &[String], expected: impl fmt::Display) -> Error {
    Error::invalid_argument(format!("{}: expected {expected}", found.join(", ")))
}

/// `x is f32`.
pub(crate) fn type_of(name: &str, dtype: DType) -> String {
    format!("{name} is {dtype}")
}

/// `x has shape [2, 4]`.
pub(crate) fn shape_of(name: &str, info: &TensorInfo) -> String {
    format!("{name} has shape {}", info.shape())
}

/// The error of operands whose shapes do not fit, variables of their declared names: `misshapen!(weight, x; "{n:?}")` for `weight has shape [5], x has shape
/// [2, 4]: expected [4]`. With `= value`, an attribute.
macro_rules! misshapen {
    ($($operand:ident $(= $value:expr)?),+; $($expected:tt)+) => {
        $crate::signature::mismatch(&[$($crate::signature::misshapen!(@found $operand $($value)?)),+], format_args!($($expected)+))
    };
    (@found $operand:ident) => { $crate::signature::shape_of(stringify!($operand), &$operand) };
    (@found $attribute:ident $value:expr) => { format!("{} is {}", stringify!($attribute), $value) };
}

/// The same of operands whose types do not fit.
macro_rules! mistyped {
    ($($operand:ident),+; $($expected:tt)+) => {
        $crate::signature::mismatch(&[$($crate::signature::type_of(stringify!($operand), $operand.dtype)),+], format_args!($($expected)+))
    };
}

/// The axis of an operand that an attribute names; negative ones count from the end.
///
/// # Errors
/// The operand has no such axis.
pub(crate) fn axis(name: &str, info: &TensorInfo, axis: isize) -> Result<usize> {
    info.shape().axis(axis).map_err(|_| {
        let found = [shape_of(name, info), format!("the axis is {axis}")];
        match info.shape().rank() as isize {
            0 => mismatch(&found, "at least one axis"),
            rank => mismatch(&found, format_args!("an axis from {} to {}", -rank, rank - 1)),
        }
    })
}

/// The shape that operands broadcast to.
///
/// # Errors
/// They do not.
pub(crate) fn broadcast(operands: &[(&str, TensorInfo)]) -> Result<Shape> {
    let whole = operands.iter().map(|(_, info)| Ok(*info.shape())).reduce(|a, b| a?.broadcast(&b?));
    whole.unwrap_or_else(|| Shape::new(&[])).map_err(|_| {
        let found: Vec<_> = operands.iter().map(|(name, info)| shape_of(name, info)).collect();
        mismatch(&found, "shapes that broadcast: extents are equal, or 1")
    })
}

/// The type of operand `index`: its own, where it is absent that of one of the same type, else the first that it takes.
pub(crate) fn dtype(ports: &[Port], infos: &[Option<TensorInfo>], index: usize) -> DType {
    let group = |index: usize| ports[index].like.unwrap_or(index);
    let own = |index: usize| infos.get(index).copied().flatten().map(|info| info.dtype);
    own(index).or_else(|| (0..ports.len()).filter(|&other| group(other) == group(index)).find_map(own)).unwrap_or(ports[index].dtypes[0])
}

/// The error of a kernel that the declared types need and that does not exist.
pub(crate) fn no_kernel(types: impl fmt::Display) -> Error {
    Error::internal(format!("there is no CPU kernel for {types}"))
}

/// The parameters of a launch that takes inputs and outputs in the order declared, and what each is bound to.
///
/// # Errors
/// Outputs that contradict the declaration.
pub(crate) fn parameters<const N: usize>(
    ports: &[Port; N],
    inputs: &[Option<TensorInfo>],
    outputs: &[TensorInfo],
) -> Result<[(Parameter, Argument); N]> {
    let declared = &ports[inputs.len()..];
    let contradiction = || Error::internal(format!("{} outputs of {} are planned", outputs.len(), declared.len()));
    if outputs.len() > declared.len() || declared[outputs.len()..].iter().any(|port| !port.optional) {
        return Err(contradiction());
    }
    let infos: Vec<_> = inputs.iter().copied().chain(outputs.iter().copied().map(Some)).collect();
    Ok(bound(ports, &infos, inputs.len()))
}

/// The first parameters of such a launch, of so many inputs and of outputs.
pub(crate) fn bound<const N: usize>(ports: &[Port], infos: &[Option<TensorInfo>], inputs: usize) -> [(Parameter, Argument); N] {
    std::array::from_fn(|index| {
        let argument = match index.checked_sub(inputs) {
            None => Argument::Input(index),
            Some(output) if index < infos.len() => Argument::Output(output),
            Some(_) => Argument::Absent,
        };
        (ports[index].parameter(dtype(ports, infos, index)), argument)
    })
}

/// Declares an operator's operands once: inputs, and after `->` outputs, each with what the kernel does with it (`read`, `write`, or `update` for an input
/// that is updated in place), the types it takes or the operand that it is `like`, and its shape and meaning. Words between: `optional`, `variadic`,
/// `prefetched` and `bits`, as [`Port`] has them.
///
/// Makes a module, `operands` unless the declaration names it, with
/// * `INPUTS` and `OUTPUTS`, as a description has them, and `ALL`, both in one;
/// * `AT.name`, the index of each among all, and so among the arguments of a kernel that takes them in this order;
/// * `Inputs`, the types of the inputs by name: `Inputs::new` checks presence and data types, `parameters` are those of the launch.
macro_rules! operands {
    ($(#[$doc:meta])* $vis:vis mod $module:ident {
        $($input:ident: $access:ident $types:tt $($word:ident)*, $input_doc:expr;)*
        $(-> $($output:ident: $write:ident $output_types:tt $($output_word:ident)*, $output_doc:expr;)*)?
    }) => {
        $(#[$doc])*
        #[allow(dead_code, unused_imports, reason = "an operator needs some of it")]
        $vis mod $module {
            use super::*;
            use $crate::signature::{self, Port};

            /// The index of each operand.
            pub(crate) struct Places { $(pub(crate) $input: usize,)* $($(pub(crate) $output: usize,)*)? }

            /// The index of each operand.
            #[allow(unused_assignments, reason = "the last is followed by none")]
            pub(crate) const AT: Places = {
                let mut next = 0;
                Places { $($input: (next, next += 1).0,)* $($($output: (next, next += 1).0,)*)? }
            };

            /// Inputs and outputs.
            pub(crate) const ALL: [Port; INPUT_COUNT $($(+ [stringify!($output)].len())*)?] = signature::resolved([
                $(signature::port!($input, $access $types $($word)*, $input_doc),)*
                $($(signature::port!($output, $write $output_types $($output_word)*, $output_doc),)*)?
            ]);
            const INPUT_COUNT: usize = 0 $(+ [stringify!($input)].len())*;
            pub(crate) const INPUTS: &[Port] = ALL.split_at(INPUT_COUNT).0;
            /// Those updated in place are outputs too.
            pub(crate) const OUTPUTS: &[Port] = &signature::results::<{ signature::result_count(&ALL) }>(&ALL, INPUT_COUNT);

            /// The types of the inputs.
            #[derive(Clone, Copy, Debug)]
            pub(crate) struct Inputs { $(pub(crate) $input: signature::field!($($word)*),)* }

            impl Inputs {
                pub(crate) fn new(inputs: &[Option<TensorInfo>]) -> elinvar_core::Result<Self> {
                    Self::of(INPUTS, inputs)
                }

                /// Of an operator of the family whose inputs are these.
                pub(crate) fn of(ports: &[Port], inputs: &[Option<TensorInfo>]) -> elinvar_core::Result<Self> {
                    signature::check(ports, inputs)?;
                    Ok(Self { $($input: signature::field!(&INPUTS[AT.$input], inputs.get(AT.$input).copied().flatten(); $($word)*),)* })
                }

                fn infos(&self) -> [Option<TensorInfo>; INPUT_COUNT] {
                    [$(self.$input.into()),*]
                }

                /// The type of an input; of an absent one, the type that stands for it in kernels.
                pub(crate) fn dtype(&self, at: usize) -> elinvar_core::DType {
                    signature::dtype(INPUTS, &self.infos(), at)
                }

                /// The inputs as parameters of launches.
                pub(crate) fn buffers(&self) -> [(elinvar_core::Parameter, $crate::Argument); INPUT_COUNT] {
                    signature::bound(INPUTS, &self.infos(), INPUT_COUNT)
                }

                /// The parameters of a launch that takes all operands in this order.
                pub(crate) fn parameters(&self, outputs: &[TensorInfo]) -> elinvar_core::Result<[(elinvar_core::Parameter, $crate::Argument); ALL.len()]> {
                    signature::parameters(&ALL, &self.infos(), outputs)
                }
            }
        }
    };
    ($($operands:tt)*) => {
        $crate::signature::operands! {
            mod operands { $($operands)* }
        }
    };
}

/// A declared operand.
macro_rules! port {
    ($name:ident, $access:ident (like $like:ident) $($word:ident)*, $doc:expr) => {
        Port::$access(stringify!($name), &[], Some(AT.$like), $doc)$(.$word())*
    };
    ($name:ident, $access:ident ($types:expr) $($word:ident)*, $doc:expr) => {
        Port::$access(stringify!($name), $types, None, $doc)$(.$word())*
    };
}

/// The type of an input's field, and its value.
macro_rules! field {
    () => { $crate::TensorInfo };
    (optional $($word:ident)*) => { Option<$crate::TensorInfo> };
    ($other:ident $($word:ident)*) => { $crate::signature::field!($($word)*) };
    ($port:expr, $input:expr;) => { $crate::signature::required($port, $input)? };
    ($port:expr, $input:expr; optional $($word:ident)*) => { $input };
    ($port:expr, $input:expr; $other:ident $($word:ident)*) => { $crate::signature::field!($port, $input; $($word)*) };
}

pub(crate) use {field, misshapen, mistyped, operands, port};

#[cfg(test)]
mod tests {
    use super::*;

    operands! {
        x: read(DType::FLOATS), "[…]";
        weight: read(DType::FLOATS) optional prefetched, "[n]";
        bias: read(like weight) optional, "as weight";
        state: update(&[DType::I32]), "[2]";
        -> y: write(like x) bits, "as x";
        mean: write(&[DType::F32]) optional, "[1]";
    }

    fn info(dtype: DType) -> Option<TensorInfo> {
        Some(TensorInfo::new(dtype, &[2]).unwrap())
    }

    #[test]
    fn ports_and_places_follow_the_declaration() {
        let name = |ports: &[Port]| ports.iter().map(|port| port.name).collect::<Vec<_>>();
        assert_eq!((name(operands::INPUTS), name(operands::OUTPUTS)), (vec!["x", "weight", "bias", "state"], vec!["y", "mean", "state"]));
        assert_eq!((operands::AT.bias, operands::AT.y, operands::ALL[operands::AT.bias].dtypes), (2, 4, DType::FLOATS));
    }

    #[test]
    fn misfits_are_named() {
        let (f32, f16, state) = (info(DType::F32), info(DType::F16), info(DType::I32));
        let rejected = |inputs: &[Option<TensorInfo>]| operands::Inputs::new(inputs).unwrap_err().to_string();
        assert_eq!(rejected(&[info(DType::I8), None, None, state]), "x is i8: expected f32, f16 or bf16");
        assert_eq!(rejected(&[f32, f32, f16, state]), "bias is f16, weight is f32: expected one type");
        assert_eq!(rejected(&[f32, None, None, f32]), "state is f32: expected i32");
        assert_eq!(rejected(&[f32, f32]), "input 'state' is missing");
        assert_eq!(rejected(&[None; 5]), "5 inputs are given: expected at most 4");
    }

    #[test]
    fn parameters_are_in_the_order_declared() {
        let inputs = operands::Inputs::new(&[info(DType::BF16), None, info(DType::F16), info(DType::I32)]).unwrap();
        assert_eq!((inputs.dtype(operands::AT.weight), inputs.weight), (DType::F16, None));
        let parameters = inputs.parameters(&[TensorInfo::new(DType::BF16, &[2]).unwrap()]).unwrap();
        let [x, weight, bias, state, y, mean] = parameters;
        assert_eq!(x, (Parameter::read("x", DType::BF16), Argument::Input(0)));
        assert_eq!(weight, (Parameter::read("weight", DType::F16).or_absent().prefetched(), Argument::Input(1)));
        assert_eq!(bias, (Parameter::read("bias", DType::F16).or_absent(), Argument::Input(2)));
        assert_eq!(state, (Parameter::update("state", DType::I32), Argument::Input(3)));
        assert_eq!(y, (Parameter::write("y", DType::U16), Argument::Output(0)));
        assert_eq!(mean, (Parameter::write("mean", DType::F32).or_absent(), Argument::Absent));
        assert!(inputs.parameters(&[]).unwrap_err().is_internal());
    }
}
