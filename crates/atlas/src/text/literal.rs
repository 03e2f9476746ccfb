//! Constants in text.

use elinvar_core::{DType, Result};

use super::lexer::error_at;
use crate::program::{Constant, Location};

/// The constant of a type that `text` says.
pub(super) fn parse(text: &str, dtype: DType, at: Location) -> Result<Constant> {
    let wrong = |what: &str| error_at(at, format_args!("'{text}' is no {dtype}{what}"));
    match dtype {
        DType::Bool => match text {
            "true" => Ok(Constant::bool(true)),
            "false" => Ok(Constant::bool(false)),
            _ => Err(wrong(": true or false is expected")),
        },
        _ if dtype.is_float() => {
            let body = text.trim_start_matches(['-', '+']);
            let value = match body {
                "inf" | "nan" => text.parse::<f32>().ok(),
                _ if body.starts_with(|c: char| c.is_ascii_digit() || c == '.') => text.parse::<f32>().ok().filter(|value| value.is_finite()),
                _ => None,
            };
            let value = value.ok_or_else(|| wrong(", or too large for one"))?;
            let constant = Constant::float(dtype, value);
            if value.is_finite() && !constant.as_f32().is_finite() {
                return Err(wrong(": too large"));
            }
            Ok(constant)
        }
        _ => {
            let (negative, body) = text.strip_prefix('-').map_or((false, text), |body| (true, body));
            let digits = body.strip_prefix("0x").map_or_else(|| body.parse::<u64>().ok(), |hex| u64::from_str_radix(hex, 16).ok());
            let value = digits.filter(|_| body.starts_with(|c: char| c.is_ascii_digit())).map(i128::from);
            let value = value.map(|value| if negative { -value } else { value });
            value.and_then(|value| Constant::integer(dtype, value)).ok_or_else(|| wrong(", or out of its range"))
        }
    }
}

/// The text of a constant: parsed as its type it is the constant again.
pub(crate) fn format(constant: Constant) -> String {
    match constant.dtype {
        DType::Bool => (constant.bits != 0).to_string(),
        d if d.is_float() => match constant.as_f32() {
            value if value.is_nan() => "nan".to_owned(),
            value if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
            value => format!("{value:?}"),
        },
        _ => constant.as_integer().to_string(),
    }
}

/// Whether a word is a constant.
pub(super) fn is_literal(word: &str) -> bool {
    matches!(word, "true" | "false" | "inf" | "nan")
}
