//! The integer expressions of `#if`.

use super::token::{Kind, Names, Token};

/// How deep an expression may nest.
const NESTING: usize = 256;

/// By what they bind: tighter is more. Alternative spellings are C++'s.
const OPERATORS: &[(&[&str], u8)] = &[
    (&["*", "/", "%"], 10),
    (&["+", "-"], 9),
    (&["<<", ">>"], 8),
    (&["<", ">", "<=", ">="], 7),
    (&["==", "!=", "not_eq"], 6),
    (&["&", "bitand"], 5),
    (&["^", "xor"], 4),
    (&["|", "bitor"], 3),
    (&["&&", "and"], 2),
    (&["||", "or"], 1),
];

#[derive(Clone, Copy, Debug)]
struct Value {
    bits: i64,
    unsigned: bool,
}

impl Value {
    fn signed(bits: i64) -> Self {
        Self { bits, unsigned: false }
    }
}

struct Evaluation<'a> {
    words: Vec<(Kind, &'a str)>,
    at: usize,
    nesting: usize,
}

/// Whether the expression, whose macros were replaced, is other than zero.
pub(super) fn evaluate(tokens: &[Token], names: &Names) -> Result<bool, String> {
    let words = tokens.iter().map(|token| (token.kind, names.text(token.text))).collect();
    let mut evaluation = Evaluation { words, at: 0, nesting: 0 };
    let value = evaluation.conditional(true)?;
    match evaluation.words.get(evaluation.at) {
        Some((_, word)) => Err(format!("`{word}` stands where an operator is expected")),
        None => Ok(value.bits != 0),
    }
}

impl Evaluation<'_> {
    fn word(&self) -> &str {
        self.words.get(self.at).map_or("", |(_, word)| word)
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.word() == word;
        self.at += usize::from(found);
        found
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.nesting == NESTING {
            return Err(format!("it nests deeper than {NESTING}"));
        }
        self.nesting += 1;
        let found = inner(self);
        self.nesting -= 1;
        found
    }

    /// `counts`: the value is needed, so that a division by zero is an error.
    fn conditional(&mut self, counts: bool) -> Result<Value, String> {
        self.nested(|this| {
            let condition = this.binary(1, counts)?;
            if !this.eat("?") {
                return Ok(condition);
            }
            let holds = condition.bits != 0;
            let first = this.conditional(counts && holds)?;
            if !this.eat(":") {
                return Err("`?` without `:`".to_owned());
            }
            let second = this.conditional(counts && !holds)?;
            Ok(Value { bits: if holds { first.bits } else { second.bits }, unsigned: first.unsigned || second.unsigned })
        })
    }

    fn binary(&mut self, least: u8, counts: bool) -> Result<Value, String> {
        let mut left = self.unary(counts)?;
        loop {
            let word = self.word();
            let found =
                OPERATORS.iter().find_map(|(words, tightness)| words.iter().find(|operator| **operator == word).map(|word| (*word, *tightness)));
            let Some((operator, tightness)) = found.filter(|(_, tightness)| *tightness >= least) else { return Ok(left) };
            self.at += 1;
            let decided = match operator {
                "&&" | "and" => left.bits == 0,
                "||" | "or" => left.bits != 0,
                _ => false,
            };
            let right = self.nested(|this| this.binary(tightness + 1, counts && !decided))?;
            left = apply(operator, left, right, counts)?;
        }
    }

    fn unary(&mut self, counts: bool) -> Result<Value, String> {
        let Some(&(kind, word)) = self.words.get(self.at) else { return Err("it ends where a value is expected".to_owned()) };
        self.at += 1;
        match word {
            "(" => {
                let value = self.conditional(counts)?;
                if self.eat(")") { Ok(value) } else { Err("a `)` is missing".to_owned()) }
            }
            "!" | "not" => self.nested(|this| this.unary(counts)).map(|value| Value::signed(i64::from(value.bits == 0))),
            "-" => self.nested(|this| this.unary(counts)).map(|value| Value { bits: value.bits.wrapping_neg(), ..value }),
            "~" | "compl" => self.nested(|this| this.unary(counts)).map(|value| Value { bits: !value.bits, ..value }),
            "+" => self.nested(|this| this.unary(counts)),
            "true" => Ok(Value::signed(1)),
            _ if kind == Kind::Identifier && self.word() == "(" => Err(format!("`{word}` is no macro with arguments")),
            _ if kind == Kind::Identifier => Ok(Value::signed(0)),
            _ if kind == Kind::Number => number(word),
            _ if kind == Kind::Literal && word.ends_with('\'') => character(word),
            _ => Err(format!("`{word}` stands where a value is expected")),
        }
    }
}

fn apply(operator: &str, left: Value, right: Value, counts: bool) -> Result<Value, String> {
    let unsigned = left.unsigned || right.unsigned;
    let (a, b) = (left.bits, right.bits);
    let (ua, ub) = (a as u64, b as u64);
    let truth = |holds: bool| Ok(Value::signed(i64::from(holds)));
    let order = if unsigned { ua.cmp(&ub) } else { a.cmp(&b) };
    let bits = match operator {
        "*" => a.wrapping_mul(b),
        "/" | "%" if b == 0 && counts => return Err("division by zero".to_owned()),
        "/" | "%" if b == 0 => 0,
        "/" if unsigned => (ua / ub) as i64,
        "%" if unsigned => (ua % ub) as i64,
        "/" => a.wrapping_div(b),
        "%" => a.wrapping_rem(b),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "<<" | ">>" => return Ok(Value { bits: shift(operator == "<<", left, right), unsigned: left.unsigned }),
        "<" => return truth(order.is_lt()),
        ">" => return truth(order.is_gt()),
        "<=" => return truth(order.is_le()),
        ">=" => return truth(order.is_ge()),
        "==" => return truth(a == b),
        "!=" | "not_eq" => return truth(a != b),
        "&" | "bitand" => a & b,
        "^" | "xor" => a ^ b,
        "|" | "bitor" => a | b,
        "&&" | "and" => return truth(a != 0 && b != 0),
        _ => return truth(a != 0 || b != 0),
    };
    Ok(Value { bits, unsigned })
}

/// Negative amounts shift the other way; amounts past the width leave the sign alone or nothing.
fn shift(leftwards: bool, value: Value, by: Value) -> i64 {
    let negative = !by.unsigned && by.bits < 0;
    let amount = if negative { by.bits.unsigned_abs() } else { by.bits as u64 };
    match (leftwards != negative, value.unsigned) {
        (true, _) if amount > 63 => 0,
        (true, _) => value.bits << amount,
        (false, true) if amount > 63 => 0,
        (false, true) => (value.bits as u64 >> amount) as i64,
        (false, false) => value.bits >> amount.min(63),
    }
}

fn number(text: &str) -> Result<Value, String> {
    let wrong = || format!("`{text}` is no integer");
    let plain = text.replace('\'', "").to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = plain.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = plain.strip_prefix("0b") {
        (2, rest)
    } else if plain.starts_with('0') && plain.len() > 1 {
        (8, &plain[..])
    } else {
        (10, &plain[..])
    };
    let end = digits.find(|digit: char| !digit.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    if !["", "u", "l", "ul", "lu", "ll", "ull", "llu", "z", "uz", "zu"].contains(&suffix) {
        return Err(wrong());
    }
    let bits = u64::from_str_radix(digits, radix).map_err(|_| wrong())?;
    Ok(Value { bits: bits as i64, unsigned: suffix.contains('u') || bits > i64::MAX as u64 })
}

/// `'x'`, and the escapes.
fn character(text: &str) -> Result<Value, String> {
    let wrong = || format!("{text} is no character");
    let prefixed = !text.starts_with('\'');
    let inner = text.split_once('\'').and_then(|(_, rest)| rest.strip_suffix('\'')).ok_or_else(wrong)?;
    let mut value = 0_i64;
    let mut rest = inner;
    while let Some(first) = rest.chars().next() {
        let (code, length) = if first == '\\' { escape(rest).ok_or_else(wrong)? } else { (first as u32, first.len_utf8()) };
        let code = if prefixed { i64::from(code) } else { i64::from(code as u8 as i8) };
        value = if value == 0 { code } else { i64::from((value << 8 | code & 0xff) as i32) };
        rest = rest.get(length..).ok_or_else(wrong)?;
    }
    if inner.is_empty() { Err(wrong()) } else { Ok(Value::signed(value)) }
}

/// The value of the escape that `text` starts with, and its length.
fn escape(text: &str) -> Option<(u32, usize)> {
    let second = text[1..].chars().next()?;
    let digits = |from: usize, radix: u32, most: usize| {
        let length = text[from..].chars().take(most).take_while(|digit| digit.is_digit(radix)).count();
        u32::from_str_radix(&text[from..from + length], radix).ok().map(|code| (code, from + length))
    };
    let code = match second {
        'x' => return digits(2, 16, 8),
        '0'..='7' => return digits(1, 8, 3),
        'n' => 10,
        't' => 9,
        'r' => 13,
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'v' => 11,
        '\'' | '"' | '\\' | '?' => second as u32,
        _ => return None,
    };
    Some((code, 2))
}
