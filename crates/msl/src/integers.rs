//! Integer constant expressions, as attributes use them: `[[function_constant(BASE + 1)]]`, `[[buffer(IndexWeights)]]`.

use std::collections::HashMap;

use crate::{
    structure::{Scope, Structure},
    tokens::{TokenKind, Tokens},
};

/// The named integers of a text: enumerators and initialised constants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Integers {
    values: HashMap<String, i64>,
}

impl Integers {
    pub(crate) fn new(tokens: &Tokens, structure: &Structure) -> Self {
        let mut integers = Self::default();
        for index in 0..tokens.len() {
            match tokens.text(index) {
                "enum" if structure.scope(index) != Scope::Values => integers.enumeration(tokens, index),
                "=" if structure.scope(index) == Scope::Namespace && structure.is_outer(index) => {
                    let end = tokens.find(index, tokens.len(), &[";", ","]);
                    if let Some(value) = integers.evaluate(tokens, (index + 1, end)) {
                        integers.values.insert(tokens.before(index).to_owned(), value);
                    }
                }
                _ => {}
            }
        }
        integers
    }

    fn enumeration(&mut self, tokens: &Tokens, index: usize) {
        let open = tokens.find(index, tokens.len(), &["{", ";"]);
        if tokens.text(open) != "{" {
            return;
        }
        let mut next = Some(0);
        for (start, end) in tokens.split(open + 1, tokens.partner(open)) {
            if tokens.text(start + 1) == "=" {
                next = self.evaluate(tokens, (start + 2, end));
            }
            if let Some(value) = next {
                self.values.insert(tokens.text(start).to_owned(), value);
                next = value.checked_add(1);
            }
        }
    }

    /// The value of the expression in `start..end`, if it is made of integers, known names and operators.
    pub(crate) fn evaluate(&self, tokens: &Tokens, (start, end): (usize, usize)) -> Option<i64> {
        if start >= end || end - start > 64 {
            return None;
        }
        let mut reader = Expression { integers: self, tokens, at: start, end };
        let value = reader.binary(0)?;
        (reader.at == end).then_some(value)
    }
}

struct Expression<'a> {
    integers: &'a Integers,
    tokens: &'a Tokens,
    at: usize,
    end: usize,
}

impl<'a> Expression<'a> {
    fn peek(&self) -> &'a str {
        if self.at < self.end { self.tokens.text(self.at) } else { "" }
    }

    /// The operator at hand, its precedence and its length in tokens.
    fn operator(&self) -> Option<(&'a str, u32, usize)> {
        let doubled = self.at + 1 < self.end && self.tokens.text(self.at + 1) == self.peek();
        Some(match self.peek() {
            text @ "|" => (text, 1, 1),
            text @ "^" => (text, 2, 1),
            text @ "&" => (text, 3, 1),
            text @ ("<" | ">") if doubled => (text, 4, 2),
            text @ ("+" | "-") => (text, 5, 1),
            text @ ("*" | "/" | "%") => (text, 6, 1),
            _ => return None,
        })
    }

    fn binary(&mut self, lowest: u32) -> Option<i64> {
        let mut left = self.operand()?;
        while let Some((operator, precedence, length)) = self.operator().filter(|&(_, precedence, _)| precedence > lowest) {
            self.at += length;
            let right = self.binary(precedence)?;
            left = match operator {
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "<" => left.checked_shl(u32::try_from(right).ok()?)?,
                ">" => left.checked_shr(u32::try_from(right).ok()?)?,
                "+" => left.checked_add(right)?,
                "-" => left.checked_sub(right)?,
                "*" => left.checked_mul(right)?,
                "/" => left.checked_div(right)?,
                _ => left.checked_rem(right)?,
            };
        }
        Some(left)
    }

    fn operand(&mut self) -> Option<i64> {
        let text = self.peek();
        self.at += 1;
        match text {
            "-" => self.operand()?.checked_neg(),
            "+" => self.operand(),
            "(" => {
                let value = self.binary(0)?;
                self.at += 1;
                (self.tokens.text(self.at - 1) == ")").then_some(value)
            }
            _ => {
                while self.peek() == "::" {
                    self.at += 2;
                }
                let last = self.at - 1;
                match self.tokens.kind(last) {
                    TokenKind::Number => integer(self.tokens.text(last)),
                    TokenKind::Identifier => self.integers.values.get(self.tokens.text(last)).copied(),
                    TokenKind::Literal | TokenKind::Punctuation | TokenKind::End => None,
                }
            }
        }
    }
}

/// An integer literal's value.
fn integer(text: &str) -> Option<i64> {
    let digits = text.replace('\'', "").to_ascii_lowercase();
    let digits = digits.trim_end_matches(['u', 'l']);
    if let Some(digits) = digits.strip_prefix("0x") {
        i64::from_str_radix(digits, 16).ok()
    } else if let Some(digits) = digits.strip_prefix("0b") {
        i64::from_str_radix(digits, 2).ok()
    } else if digits.len() > 1 && digits.starts_with('0') {
        i64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(declarations: &str, expression: &str) -> Option<i64> {
        let tokens = Tokens::new(&format!("{declarations} {expression}"));
        let integers = Integers::new(&tokens, &Structure::new(&tokens));
        let start = Tokens::new(declarations).len();
        integers.evaluate(&tokens, (start, tokens.len()))
    }

    #[test]
    fn expressions_follow_precedence() {
        assert_eq!(value("", "600 + 2 * (3 - 1) << 1"), Some(1208));
        assert_eq!(value("", "0x10u | -1 + 1"), Some(16));
        assert_eq!(value("", "1 / 0"), None);
        assert_eq!(value("", "unknown + 1"), None);
    }

    #[test]
    fn enumerators_and_constants_have_values() {
        let declarations = "enum Index { A, B = 4, C }; enum class E : uint { D = C + 1 }; constant constexpr int base = 10;";
        assert_eq!(value(declarations, "C + E::D + base"), Some(21));
    }
}
