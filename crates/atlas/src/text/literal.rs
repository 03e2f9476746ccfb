//! Constants in text.

use std::fmt;

use elinvar_core::{DType, Error, Result};

use super::lexer::error_at;
use crate::program::{Constant, Location};

/// The constant of a type that `text` says, or what is wrong with it.
pub(crate) fn value(text: &str, dtype: DType) -> Result<Constant, String> {
    let wrong = |what: &str| format!("'{text}' is no {dtype}{what}");
    match dtype {
        DType::Bool => match text {
            "true" => Ok(Constant::bool(true)),
            "false" => Ok(Constant::bool(false)),
            _ => Err(wrong(": true or false is expected")),
        },
        DType::F64 => {
            let body = text.trim_start_matches(['-', '+']);
            let value = text.parse::<f64>().ok().filter(|value| matches!(body, "inf" | "nan") || is_number(body) && value.is_finite());
            value.map(Constant::f64).ok_or_else(|| wrong(", or too large for one"))
        }
        DType::F32 | DType::F16 | DType::BF16 => {
            let body = text.trim_start_matches(['-', '+']);
            let value = match body {
                "inf" | "nan" => text.parse::<f32>().ok(),
                _ if is_number(body) => text.parse::<f32>().ok().filter(|value| value.is_finite()),
                _ => None,
            };
            let value = value.ok_or_else(|| wrong(", or too large for one"))?;
            let constant = Constant::float(dtype, value);
            if value.is_finite() && !constant.as_f32().is_finite() {
                return Err(wrong(": too large"));
            }
            Ok(constant)
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
            let (negative, body) = text.strip_prefix('-').map_or((false, text), |body| (true, body));
            let digits = body.strip_prefix("0x").map_or_else(|| body.parse::<u64>().ok(), |hex| u64::from_str_radix(hex, 16).ok());
            let value = digits.filter(|_| body.starts_with(|c: char| c.is_ascii_digit())).map(i128::from);
            let value = value.map(|value| if negative { -value } else { value });
            value.and_then(|value| Constant::integer(dtype, value)).ok_or_else(|| wrong(", or out of its range"))
        }
    }
}

/// Whether a number without its sign starts as one.
fn is_number(body: &str) -> bool {
    body.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

/// The same with the place of the text in the message.
pub(super) fn parse(text: &str, dtype: DType, at: Location) -> Result<Constant> {
    value(text, dtype).map_err(|message| error_at(at, message))
}

impl Constant {
    /// The constant of a type that `text` says, as in the text form.
    ///
    /// # Errors
    /// A text that says none.
    pub fn parse(dtype: DType, text: &str) -> Result<Self> {
        value(text, dtype).map_err(Error::invalid_argument)
    }
}

/// As in the text form: read as a constant of its type it is the same again.
impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            DType::Bool => write!(f, "{}", self.bits != 0),
            DType::F32 | DType::F16 | DType::BF16 if self.as_f32().is_finite() => write!(f, "{:?}", self.as_f32()),
            DType::F32 | DType::F16 | DType::BF16 | DType::F64 => match self.as_f64() {
                value if value.is_nan() => f.write_str("nan"),
                value if value.is_infinite() => f.write_str(if value > 0.0 { "inf" } else { "-inf" }),
                value => write!(f, "{value:?}"),
            },
            DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                write!(f, "{}", self.as_integer())
            }
        }
    }
}

/// Whether a word is a constant.
pub(super) fn is_literal(word: &str) -> bool {
    matches!(word, "true" | "false" | "inf" | "nan")
}
