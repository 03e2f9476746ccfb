//! Which kernel of a text is meant, and what its function constants are.

use elinvar_core::{ConstantValue, Error, Result};
use elinvar_msl::FunctionConstant;

/// Names that a message shows.
const SHOWN: usize = 12;

/// The kernel of that name, or the only one of a file that has `kernels`.
///
/// # Errors
/// No name, and none or several kernels.
pub fn choose<'a>(kernels: &[&'a str], name: Option<&'a str>, file: &str) -> Result<&'a str> {
    match (name, kernels) {
        (Some(name), _) => Ok(name),
        (None, [only]) => Ok(only),
        (None, []) => Err(Error::invalid_argument(format!("{file} has no kernel"))),
        (None, kernels) => {
            let names = kernels[..kernels.len().min(SHOWN)].join(", ");
            let more = if kernels.len() > SHOWN { format!(" and {} more", kernels.len() - SHOWN) } else { String::new() };
            Err(Error::invalid_argument(format!("{file} has {} kernels: choose one: {names}{more}", kernels.len())))
        }
    }
}

/// Function constants, given by name or index, their values read by their types: names, indices and values.
///
/// # Errors
/// No such constant, or no such value of its type.
pub fn constants<'a>(known: &'a [FunctionConstant], given: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Vec<(&'a str, u32, ConstantValue)>> {
    let value = |(name, text): (&'a str, &'a str)| {
        let found = known.iter().find(|c| c.name == name || name.parse() == Ok(c.index));
        let constant = found.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|c| format!("{} ({})", c.name, c.index)).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Error::invalid_argument(format!("no function constant '{name}': the file has {names}"))
        })?;
        let value = match constant.type_name.as_str() {
            "bool" => text.parse().ok().map(ConstantValue::Bool),
            "float" | "half" | "bfloat" => text.parse().ok().map(ConstantValue::Float),
            unsigned if unsigned.starts_with('u') => text.parse().ok().map(ConstantValue::Uint),
            _ => text.parse().ok().map(ConstantValue::Int),
        };
        let value = value.ok_or_else(|| Error::invalid_argument(format!("'{text}' is no {} for '{}'", constant.type_name, constant.name)))?;
        Ok((constant.name.as_str(), constant.index, value))
    };
    given.map(value).collect()
}
