//! How a kernel is launched, in a few words.

use elinvar_sim::{ConstantValue, Grid};

/// A launch: its threads, and what its kernel is given, by parameter.
#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) grid: Grid,
    pub(crate) threadgroup: [u32; 3],
    /// Elements of buffers of which nothing else is said.
    pub(crate) elements: usize,
    pub(crate) given: Vec<(&'static str, Given)>,
    pub(crate) constants: Vec<(&'static str, ConstantValue)>,
}

/// What a parameter is given.
#[derive(Clone)]
pub(crate) enum Given {
    /// A value for each element.
    Numbers(Vec<f64>),
    /// A structure.
    Bytes(Vec<u8>),
    /// That many elements, filled as is usual for their type.
    Elements(usize),
    /// That many elements, whole numbers of a range.
    Range(usize, u32, u32),
    /// That many elements of any bits.
    Bits(usize),
    /// Nothing: a function constant says that there is none.
    Nothing,
}

impl Launch {
    fn new(grid: Grid, threadgroup: [u32; 3]) -> Self {
        Self { grid, threadgroup, elements: 400, given: Vec::new(), constants: Vec::new() }
    }

    pub(crate) fn threads(threads: [u32; 3], threadgroup: [u32; 3]) -> Self {
        Self::new(Grid::Threads(threads), threadgroup)
    }

    pub(crate) fn groups(groups: [u32; 3], threadgroup: [u32; 3]) -> Self {
        Self::new(Grid::Threadgroups(groups), threadgroup)
    }

    pub(crate) fn elements(mut self, elements: usize) -> Self {
        self.elements = elements;
        self
    }

    /// What is said last of a parameter counts.
    fn given(mut self, parameter: &'static str, given: Given) -> Self {
        self.given.retain(|(known, _)| *known != parameter);
        self.given.push((parameter, given));
        self
    }

    pub(crate) fn number(self, parameter: &'static str, number: impl Into<f64>) -> Self {
        self.given(parameter, Given::Numbers(vec![number.into()]))
    }

    pub(crate) fn list(self, parameter: &'static str, numbers: &[f64]) -> Self {
        self.given(parameter, Given::Numbers(numbers.to_vec()))
    }

    /// Many numbers.
    pub(crate) fn all(self, numbers: &[(&'static str, &[f64])]) -> Self {
        numbers.iter().fold(self, |launch, (parameter, numbers)| launch.list(parameter, numbers))
    }

    pub(crate) fn structure(self, parameter: &'static str, fields: &[Field]) -> Self {
        self.given(parameter, Given::Bytes(layout(fields)))
    }

    pub(crate) fn holds(self, parameter: &'static str, elements: usize) -> Self {
        self.given(parameter, Given::Elements(elements))
    }

    pub(crate) fn range(self, parameter: &'static str, elements: usize, from: u32, below: u32) -> Self {
        self.given(parameter, Given::Range(elements, from, below))
    }

    pub(crate) fn bits(self, parameter: &'static str, elements: usize) -> Self {
        self.given(parameter, Given::Bits(elements))
    }

    pub(crate) fn without(self, parameters: &[&'static str]) -> Self {
        parameters.iter().fold(self, |launch, parameter| launch.given(parameter, Given::Nothing))
    }

    /// The value of a function constant; without, booleans are true and numbers 0.
    pub(crate) fn set(mut self, constant: &'static str, value: ConstantValue) -> Self {
        self.constants.push((constant, value));
        self
    }

    pub(crate) fn off(self, constants: &[&'static str]) -> Self {
        constants.iter().fold(self, |launch, constant| launch.set(constant, ConstantValue::Bool(false)))
    }
}

/// A field of a structure.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Int(i32),
    Long(i64),
    Float(f32),
    Bool(bool),
}

/// The fields one after the other, each at a multiple of its size, as Metal lays them out.
fn layout(fields: &[Field]) -> Vec<u8> {
    let (mut bytes, mut alignment) = (Vec::<u8>::new(), 1);
    for field in fields {
        let field = match field {
            Field::Int(value) => value.to_le_bytes().to_vec(),
            Field::Long(value) => value.to_le_bytes().to_vec(),
            Field::Float(value) => value.to_le_bytes().to_vec(),
            Field::Bool(value) => vec![u8::from(*value)],
        };
        bytes.resize(bytes.len().next_multiple_of(field.len()), 0);
        alignment = alignment.max(field.len());
        bytes.extend(field);
    }
    bytes.resize(bytes.len().next_multiple_of(alignment), 0);
    bytes
}

/// A kernel's name, which says how it is tiled.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a>(pub &'a str);

impl Name<'_> {
    pub(crate) fn begins(self, start: &str) -> bool {
        self.0.starts_with(start)
    }

    pub(crate) fn has(self, part: &str) -> bool {
        self.0.contains(part)
    }

    /// The number after a part: `number("bm")` of `gemv_bm4_bn1` is 4, `number("gs")` of `affine_qmv_gs_64` 64.
    pub(crate) fn number(self, part: &str) -> Option<u32> {
        let found = self.0.match_indices(part).find_map(|(at, _)| {
            let rest = self.0[at + part.len()..].trim_start_matches('_');
            let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
            self.0[..at].ends_with('_').then_some(digits).filter(|digits| !digits.is_empty())
        });
        found?.parse().ok()
    }
}
