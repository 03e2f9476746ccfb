//! What operators take beside their inputs: each declares its attributes once, by `attributes!`. From the declaration follow the operator's value, the
//! attributes that the registry shows, and how they are read from text.

use std::{collections::BTreeMap, fmt};

use elinvar_core::{DType, Error, Result};

use crate::Scalar;

/// What an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeKind {
    /// A whole number.
    Int,
    /// A whole number that is not negative.
    Count,
    /// A real number (`inf`, `-inf` included).
    Float,
    /// `true` or `false` (also 1 or 0).
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Whole numbers separated by commas; none in `[]`.
    Ints,
    /// Whole numbers that are not negative, separated by commas; none in `[]`.
    Counts,
}

impl AttributeKind {
    /// Its values in words: `a whole number`.
    pub fn values(self) -> String {
        match self {
            AttributeKind::Int => "a whole number".to_owned(),
            AttributeKind::Count => "a whole number from 0 on".to_owned(),
            AttributeKind::Float => "a number".to_owned(),
            AttributeKind::Bool => "true or false".to_owned(),
            AttributeKind::Word(words) => choice(words.iter().copied()),
            AttributeKind::Ints => "whole numbers separated by commas".to_owned(),
            AttributeKind::Counts => "whole numbers from 0 on, separated by commas".to_owned(),
        }
    }
}

impl fmt::Display for AttributeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttributeKind::Int => "int",
            AttributeKind::Count => "count",
            AttributeKind::Float => "float",
            AttributeKind::Bool => "bool",
            AttributeKind::Word(_) => "word",
            AttributeKind::Ints => "ints",
            AttributeKind::Counts => "counts",
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

impl AttributeInfo {
    pub(crate) const fn new<T: Attribute>(name: &'static str, default: Option<&'static str>, doc: &'static str) -> Self {
        let default = if default.is_some() { default } else { T::DEFAULT };
        Self { name, kind: T::KIND, default, doc: doc.trim_ascii() }
    }
}

/// A type that attributes have.
pub(crate) trait Attribute: Sized {
    const KIND: AttributeKind;
    /// The text of its value where none is given and none declared.
    const DEFAULT: Option<&'static str> = None;

    /// The value that a text without spaces around it says.
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! parsed {
    ($($type:ty: $kind:ident,)*) => {
        $(impl Attribute for $type {
            const KIND: AttributeKind = AttributeKind::$kind;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        })*
    };
}

parsed! {
    isize: Int,
    i64: Int,
    usize: Count,
    u64: Count,
    f32: Float,
    Scalar: Float,
}

impl Attribute for bool {
    const KIND: AttributeKind = AttributeKind::Bool;

    fn parse(text: &str) -> Option<Self> {
        match text {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }
}

impl Attribute for DType {
    const KIND: AttributeKind = AttributeKind::Word(&{
        let (mut names, mut index) = ([""; DType::ALL.len()], 0);
        while index < names.len() {
            names[index] = DType::ALL[index].name();
            index += 1;
        }
        names
    });

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// May be absent, which the empty text says too.
impl<T: Attribute> Attribute for Option<T> {
    const KIND: AttributeKind = T::KIND;
    const DEFAULT: Option<&'static str> = Some("");

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { T::parse(text).map(Some) }
    }
}

impl<T: Attribute> Attribute for Vec<T> {
    const KIND: AttributeKind = if matches!(T::KIND, AttributeKind::Count) { AttributeKind::Counts } else { AttributeKind::Ints };

    fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).trim();
        if inner.is_empty() { Some(Vec::new()) } else { inner.split(',').map(|part| T::parse(part.trim())).collect() }
    }
}

/// `f32, f16 or bf16`.
pub(crate) fn choice<'a>(names: impl Iterator<Item = &'a str>) -> String {
    match names.collect::<Vec<_>>().split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "nothing".to_owned(),
    }
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
    /// An attribute that is not declared, or given twice.
    pub fn new<K: Into<String>, V: Into<String>>(
        operator: &'static str,
        declared: &'static [AttributeInfo],
        given: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let mut values = BTreeMap::new();
        for (name, value) in given {
            let name = name.into();
            if !declared.iter().any(|a| a.name == name) {
                let known = if declared.is_empty() { "none".to_owned() } else { choice(declared.iter().map(|a| a.name)) };
                return Err(Error::invalid_argument(format!("unknown attribute '{name}': expected {known}")));
            }
            if values.insert(name.clone(), value.into()).is_some() {
                return Err(Error::invalid_argument(format!("attribute '{name}' is given twice")));
            }
        }
        Ok(Self { operator, declared, values })
    }

    /// The name of the operator that they are of.
    pub const fn operator(&self) -> &'static str {
        self.operator
    }

    /// The value of a declared attribute.
    ///
    /// # Errors
    /// It must be given and is not, or its text is no such value.
    pub(crate) fn read<T: Attribute>(&self, name: &str) -> Result<T> {
        let undeclared = || Error::internal(format!("attribute '{name}' is not declared"));
        let AttributeInfo { kind, default, doc, .. } = self.declared.iter().find(|a| a.name == name).ok_or_else(undeclared)?;
        let expected = |found: String| Error::invalid_argument(format!("attribute '{name}' {found}: expected {} ({doc})", kind.values()));
        let text = self.values.get(name).map(String::as_str).or(*default).ok_or_else(|| expected("is missing".to_owned()))?;
        T::parse(text.trim()).ok_or_else(|| expected(format!("is '{text}'")))
    }
}

/// All of two operators' parts, in order.
pub(crate) const fn joined<const N: usize>(first: &[AttributeInfo], second: &[AttributeInfo]) -> [AttributeInfo; N] {
    let (mut all, mut index) = ([first[0]; N], 0);
    while index < N {
        all[index] = if index < first.len() { first[index] } else { second[index - first.len()] };
        index += 1;
    }
    all
}

/// Declares an operator's value and its attributes once: a struct whose fields are attributes, of a type that is an [`Attribute`], with their default as
/// text behind `=` if they need not be given. Their documentation is that of the registry. Fields after `and` are no attributes: the operator's name, or other
/// attributes, say what they are.
///
/// Makes the struct, with
/// * `ATTRIBUTES`, as a description has them;
/// * `read`, which gives it from texts and the values of the fields that are no attributes.
macro_rules! attributes {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $doc:literal])+ $field_vis:vis $field:ident: $type:ty $(= $default:expr)?,)*
        } $(and {
            $($(#[$given_meta:meta])* $given_vis:vis $given:ident: $given_type:ty,)*
        })?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[doc = $doc])+ $field_vis $field: $type,)*
            $($($(#[$given_meta])* $given_vis $given: $given_type,)*)?
        }

        impl $name {
            pub(crate) const ATTRIBUTES: &'static [$crate::AttributeInfo] = &[$(
                $crate::AttributeInfo::new::<$type>(
                    stringify!($field),
                    $crate::attributes::attributes!(@default $($default)?),
                    concat!($($doc),+),
                ),
            )*];

            pub(crate) fn read(attributes: &$crate::Attributes $($(, $given: $given_type)*)?) -> elinvar_core::Result<Self> {
                Ok(Self { $($field: attributes.read(stringify!($field))?,)* $($($given,)*)? })
            }
        }
    };
    (@default) => { None };
    (@default $default:expr) => { Some(stringify!($default)) };
}

pub(crate) use attributes;
