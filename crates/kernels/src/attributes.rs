use std::{collections::BTreeMap, fmt, str::FromStr};

use elinvar_core::{Error, Result};

/// What an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeKind {
    /// A whole number.
    Int,
    /// A real number (`inf`, `-inf` included).
    Float,
    /// `true` or `false` (also 1 or 0).
    Bool,
    /// One of the words in the attribute's documentation.
    Text,
    /// Whole numbers separated by commas.
    Ints,
}

impl fmt::Display for AttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttributeKind::Int => "int",
            AttributeKind::Float => "float",
            AttributeKind::Bool => "bool",
            AttributeKind::Text => "text",
            AttributeKind::Ints => "ints",
        })
    }
}

/// One attribute of an operator, as data.
#[derive(Clone, Copy, Debug)]
pub struct AttributeInfo {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub kind: AttributeKind,
    /// Its value when not given; `None` if it must be given, `Some("")` if its absence has a meaning of its own.
    pub default: Option<&'static str>,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! constructors {
    ($($name:ident $kind:ident,)*) => {
        impl AttributeInfo {
            $(
                #[doc = concat!("An attribute of the kind [`AttributeKind::", stringify!($kind), "`].")]
                pub const fn $name(name: &'static str, default: Option<&'static str>, doc: &'static str) -> Self {
                    Self { name, kind: AttributeKind::$kind, default, doc }
                }
            )*
        }
    };
}

constructors! {
    int Int,
    float Float,
    bool Bool,
    text Text,
    ints Ints,
}

/// Attribute values by name, as text, checked against an operator's declarations.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    operator: &'static str,
    declared: &'static [AttributeInfo],
    values: BTreeMap<String, String>,
}

impl Attributes {
    /// Checks `given` against what `operator` declares.
    ///
    /// # Errors
    /// An attribute that is not declared, given twice, or missing without a default.
    pub fn new<K: Into<String>, V: Into<String>>(
        operator: &'static str,
        declared: &'static [AttributeInfo],
        given: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let mut values = BTreeMap::new();
        for (name, value) in given {
            let name = name.into();
            if !declared.iter().any(|a| a.name == name) {
                let known: Vec<_> = declared.iter().map(|a| a.name).collect();
                let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
                return Err(Error::invalid_argument(format!("unknown attribute '{name}': {known}")));
            }
            if values.insert(name.clone(), value.into()).is_some() {
                return Err(Error::invalid_argument(format!("attribute '{name}' is given twice")));
            }
        }
        if let Some(missing) = declared.iter().find(|a| a.default.is_none() && !values.contains_key(a.name)) {
            return Err(Error::invalid_argument(format!("attribute '{}' ({}) must be given: {}", missing.name, missing.kind, missing.doc)));
        }
        Ok(Self { operator, declared, values })
    }

    /// The name of the operator that they are of.
    pub const fn operator(&self) -> &'static str {
        self.operator
    }

    /// The text of an attribute or of its default; `None` where neither says anything.
    pub fn text(&self, name: &str) -> Option<&str> {
        let default = || self.declared.iter().find(|a| a.name == name).and_then(|a| a.default).filter(|d| !d.is_empty());
        self.values.get(name).map(String::as_str).or_else(default)
    }

    /// A value of any type that parses, if it is given or has a default.
    ///
    /// # Errors
    /// Text that does not parse.
    pub fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|_| self.bad(name, text))
    }

    /// A value of any type that parses.
    ///
    /// # Errors
    /// Text that does not parse, or no value.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<T> {
        self.optional(name)?.ok_or_else(|| Error::invalid_argument(format!("attribute '{name}' must be given")))
    }

    /// A truth value; absent means false.
    ///
    /// # Errors
    /// Text that is not a truth value.
    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(text) => Err(self.bad(name, text)),
        }
    }

    /// A list, if it is given or has a default.
    ///
    /// # Errors
    /// Text that does not parse.
    pub fn list<T: FromStr>(&self, name: &str) -> Result<Option<Vec<T>>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']').trim();
        if inner.is_empty() {
            return Ok(Some(Vec::new()));
        }
        inner.split(',').map(|part| part.trim().parse().map_err(|_| self.bad(name, text))).collect::<Result<Vec<T>>>().map(Some)
    }

    fn bad(&self, name: &str, text: &str) -> Error {
        let declared = self.declared.iter().find(|a| a.name == name);
        let (kind, doc) = declared.map_or((AttributeKind::Text, ""), |a| (a.kind, a.doc));
        Error::invalid_argument(format!("attribute '{name}' is '{text}': {kind} expected ({doc})"))
    }
}
