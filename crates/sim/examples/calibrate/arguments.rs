//! What a kernel is launched with, made of what its library says of its parameters.

use elinvar_msl::ParameterKind;
use elinvar_sim::{ConstantValue, Library};

use crate::launch::{Given, Launch};

/// A kernel's arguments.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) launch: Launch,
    pub(crate) buffers: Vec<Argument>,
    pub(crate) bytes: Vec<(u32, Vec<u8>)>,
    pub(crate) constants: Vec<(u32, ConstantValue)>,
}

#[derive(Clone)]
pub(crate) struct Argument {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) element: String,
    pub(crate) contents: Vec<u8>,
    pub(crate) written: bool,
}

/// A number as an element of that type.
fn encode(element: &str, value: f64) -> Option<Vec<u8>> {
    Some(match element {
        "bool" => vec![u8::from(value != 0.0)],
        "char" => (value as i8).to_le_bytes().to_vec(),
        "uchar" | "_NoMask" => (value as i64 as u8).to_le_bytes().to_vec(),
        "short" => (value as i16).to_le_bytes().to_vec(),
        "ushort" => (value as i64 as u16).to_le_bytes().to_vec(),
        "int" => (value as i32).to_le_bytes().to_vec(),
        "uint" => (value as i64 as u32).to_le_bytes().to_vec(),
        "long" => (value as i64).to_le_bytes().to_vec(),
        "ulong" => (value as i64 as u64).to_le_bytes().to_vec(),
        "float" => (value as f32).to_le_bytes().to_vec(),
        "half" => half::f16::from_f64(value).to_le_bytes().to_vec(),
        "bfloat" => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// A type's scalars, and how many of them an element has.
pub(crate) fn scalars(element: &str) -> (&str, usize) {
    match element {
        "complex_t<float>" | "float2" => ("float", 2),
        "complex_t<half>" | "half2" => ("half", 2),
        scalar => (scalar, 1),
    }
}

/// Numbers from 0 to 1.
fn units(salt: u64) -> impl Iterator<Item = f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ salt;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    })
}

/// Elements between -4 and 4, and small where the type has no sign. Integers that may be divisors are not zero, for such a quotient is undefined.
fn filled(element: &str, elements: usize, salt: u64, is_divisor: bool) -> Option<Vec<u8>> {
    let (scalar, of_each) = scalars(element);
    let value = |unit: f64| match scalar {
        "float" | "half" | "bfloat" => unit * 8.0 - 4.0,
        "char" | "short" | "int" | "long" => (unit * 20.0).floor() - 10.0,
        "bool" => (unit * 2.0).floor(),
        _ => (unit * 10.0).floor(),
    };
    let values = units(salt).take(elements * of_each).map(value);
    values.map(|value| encode(scalar, if is_divisor && value == 0.0 { 1.0 } else { value })).collect::<Option<Vec<_>>>().map(|all| all.concat())
}

impl Case {
    /// Plausible arguments; an error where a type or parameter is not provided for.
    pub(crate) fn new(library: &Library, name: &str, launch: Launch) -> Result<Self, String> {
        let kernel = library.kernels().kernel(name).map_err(|error| error.to_string())?;
        let (mut buffers, mut bytes) = (Vec::new(), Vec::new());
        for parameter in &kernel.parameters {
            let ParameterKind::Buffer { index, written, element, space, .. } = &parameter.kind else { continue };
            let unknown = || format!("its parameter `{}` of `{element}` is not provided for", parameter.name);
            let given = launch.given.iter().find(|(known, _)| *known == parameter.name).map(|(_, given)| given);
            let (scalar, of_each) = scalars(element);
            let salt = u64::from(*index);
            let contents = match given {
                Some(Given::Nothing) => continue,
                Some(Given::Numbers(numbers)) => {
                    numbers.iter().map(|number| encode(scalar, *number)).collect::<Option<Vec<_>>>().map(|all| all.concat())
                }
                Some(Given::Bytes(bytes)) => Some(bytes.clone()),
                Some(Given::Range(elements, from, below)) => {
                    let value = |unit: f64| (f64::from(*from) + unit * f64::from(below - from)).floor();
                    units(salt).take(*elements).map(|unit| encode(scalar, value(unit))).collect::<Option<Vec<_>>>().map(|all| all.concat())
                }
                Some(Given::Bits(elements)) => {
                    encode(scalar, 0.0).map(|size| units(salt).take(size.len() * of_each * elements).map(|unit| (unit * 256.0) as u8).collect())
                }
                None if *space == elinvar_msl::AddressSpace::Constant => return Err(unknown()),
                Some(Given::Elements(_)) | None => {
                    let elements = if let Some(Given::Elements(elements)) = given { *elements } else { launch.elements };
                    if *written {
                        encode(scalar, 0.0).map(|size| vec![0; size.len() * of_each * elements])
                    } else {
                        filled(element, elements, salt, parameter.name == "b")
                    }
                }
            };
            let contents = contents.ok_or_else(unknown)?;
            if *space == elinvar_msl::AddressSpace::Constant && contents.len() <= 4096 {
                bytes.push((*index, contents));
            } else {
                buffers.push(Argument { index: *index, name: parameter.name.clone(), element: element.clone(), contents, written: *written });
            }
        }
        let mut constants = Vec::new();
        for constant in library.kernels().constants(name).map_err(|error| error.to_string())? {
            let given = launch.constants.iter().find(|(known, _)| *known == constant.name).map(|(_, value)| *value);
            let usual = if constant.type_name == "bool" { ConstantValue::Bool(true) } else { ConstantValue::Int(0) };
            constants.push((constant.index, given.unwrap_or(usual)));
        }
        Ok(Self { launch, buffers, bytes, constants })
    }

    /// The same with buffers twice as long.
    pub(crate) fn with_room(&self) -> Self {
        let mut roomy = self.clone();
        for buffer in &mut roomy.buffers {
            buffer.contents.extend_from_within(..);
        }
        roomy
    }
}
