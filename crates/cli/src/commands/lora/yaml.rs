//! YAML with the lines of its keys.

use std::fmt::Display;

use elinvar::{Error, Result};
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

/// A text with one document.
pub(super) fn read(text: &str) -> Result<MarkedYaml<'_>> {
    let documents = MarkedYaml::load_from_str(text).map_err(|e| Error::invalid_data(format!("line {}: no YAML: {}", e.marker().line(), e.info())))?;
    let count = documents.len();
    match <[_; 1]>::try_from(documents) {
        Ok([document]) => Ok(document),
        Err(_) => Err(Error::invalid_data(format!("{count} documents: one with keys and values expected"))),
    }
}

/// A key, and its line.
pub(super) struct Key<'a> {
    pub(super) name: &'a str,
    line: usize,
}

impl Key<'_> {
    pub(super) fn wrong(&self, what: impl Display) -> Error {
        Error::invalid_data(format!("line {}: '{}': {what}", self.line, self.name))
    }

    pub(super) fn unknown<'b>(&self, known: impl Iterator<Item = &'b str>) -> Error {
        let mut known: Vec<_> = known.collect();
        known.sort_unstable();
        self.wrong(format_args!("unknown key: known are {}", known.join(", ")))
    }
}

/// The entries of a mapping.
pub(super) fn entries<'a>(mapping: &'a MarkedYaml<'_>) -> Result<Vec<(Key<'a>, &'a MarkedYaml<'a>)>> {
    let line = mapping.span.start.line();
    let entries = mapping.data.as_mapping().ok_or_else(|| Error::invalid_data(format!("line {line}: keys and values expected")))?;
    let mut found = Vec::new();
    for (key, value) in entries {
        let line = key.span.start.line();
        let name = key.data.as_str().ok_or_else(|| Error::invalid_data(format!("line {line}: a key that is no word")))?;
        found.push((Key { name, line }, value));
    }
    Ok(found)
}

pub(super) fn number(value: &MarkedYaml<'_>) -> Option<f64> {
    value.data.as_floating_point().or_else(|| value.data.as_integer().map(|number| number as f64))
}

/// A value as the command line has it; lists with commas.
pub(super) fn text(value: &MarkedYaml<'_>) -> Option<String> {
    match &value.data {
        YamlData::Value(Scalar::Boolean(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::Integer(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::FloatingPoint(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::String(value)) => Some(value.to_string()),
        YamlData::Sequence(values) => values.iter().map(text).collect::<Option<Vec<_>>>().map(|values| values.join(",")),
        _ => None,
    }
}
