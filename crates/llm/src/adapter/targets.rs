//! Names of linear layers, as PEFT selects them.

use std::{fmt, sync::Arc};

use elinvar::{Error, Result};
use fancy_regex::Regex;
use serde_json::{Value, json};

use super::config::names;
use crate::model::{Place, PlaceKind};

/// Which linear layers.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// All but the output projection: PEFT's `all-linear`.
    AllLinear,
    /// Those whose whole name a regular expression matches.
    Matching(Pattern),
    /// Those with these names, or whose names end with a dot and one of them.
    Names(Vec<String>),
}

impl Targets {
    pub(super) fn read(key: &str, value: Value) -> Result<Option<Self>> {
        match value {
            Value::String(text) if text == "all-linear" => Ok(Some(Self::AllLinear)),
            Value::String(text) => Pattern::new(&text).map(|pattern| Some(Self::Matching(pattern))),
            other => Ok(names(key, other)?.map(Self::Names)),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::AllLinear => json!("all-linear"),
            Self::Matching(pattern) => json!(pattern.to_string()),
            Self::Names(names) => json!(names),
        }
    }

    /// Whether it names a place.
    pub(crate) fn select(&self, place: &Place) -> Result<bool> {
        match self {
            Self::AllLinear => Ok(place.kind == PlaceKind::Linear),
            Self::Matching(pattern) => pattern.is_all_of(&place.name),
            Self::Names(names) => Ok(names.iter().any(|name| is_named(&place.name, name))),
        }
    }
}

/// Whether a module has this name, or one that ends with it.
pub(super) fn is_named(module: &str, name: &str) -> bool {
    module.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// A regular expression over names.
#[derive(Clone)]
pub struct Pattern(Arc<Compiled>);

struct Compiled {
    text: String,
    all: Regex,
    end: Regex,
}

impl Pattern {
    /// Of Python's syntax.
    ///
    /// # Errors
    /// Not a regular expression.
    pub fn new(text: &str) -> Result<Self> {
        let regex = |whole: String| {
            Regex::new(&whole).map_err(|_| Error::invalid_argument(format!("the adapter's pattern '{text}' is no regular expression")))
        };
        let (all, end) = (regex(format!("^(?:{text})$"))?, regex(format!(r"^(?:.*\.)?(?:{text})$"))?);
        Ok(Self(Arc::new(Compiled { text: text.to_owned(), all, end })))
    }

    fn is_all_of(&self, name: &str) -> Result<bool> {
        self.found(&self.0.all, name)
    }

    /// Whether it matches a name, or what follows one of its dots.
    pub(super) fn ends(&self, name: &str) -> Result<bool> {
        self.found(&self.0.end, name)
    }

    fn found(&self, regex: &Regex, name: &str) -> Result<bool> {
        regex.is_match(name).map_err(|_| Error::invalid_argument(format!("the adapter's pattern '{}' takes too long to match", self.0.text)))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}
