//! The block of parameters.

use elinvar_core::DType;

use crate::program::{Bounds, Constant, Program};

/// A field of the block of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// How many elements the buffer of that parameter has, a u64.
    Length(usize),
    /// How many elements that shared array has, whose length a launch gives, a u64.
    Shared(usize),
    /// The scalar of that parameter.
    Scalar(usize, DType),
}

impl Field {
    /// Its bytes.
    pub const fn size(self) -> usize {
        match self {
            Field::Length(_) | Field::Shared(_) => 8,
            Field::Scalar(_, dtype) => dtype.size(),
        }
    }
}

/// The block of parameters of a program, the buffer after its own: lengths and scalars, the largest first, so that there are no gaps.
#[derive(Clone, Debug)]
pub struct ParameterBlock {
    fields: Vec<Field>,
}

impl ParameterBlock {
    /// That of a program.
    pub fn of(program: &Program) -> Self {
        let checked = program.bounds != Bounds::Unchecked;
        let lengths = program.parameters.iter().enumerate().filter(|(_, p)| p.access.is_some() && checked).map(|(index, _)| Field::Length(index));
        let scalars = program.parameters.iter().enumerate().filter(|(_, p)| p.access.is_none()).map(|(index, p)| Field::Scalar(index, p.dtype));
        let given = program.shared.iter().enumerate().filter(|(_, s)| s.length == 0).map(|(index, _)| Field::Shared(index));
        let mut fields: Vec<_> = lengths.chain(given).chain(scalars).collect();
        fields.sort_by_key(|field| std::cmp::Reverse(field.size()));
        Self { fields }
    }

    /// Its fields in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Its bytes; zero for none.
    pub fn size(&self) -> usize {
        let bytes: usize = self.fields.iter().map(|field| field.size()).sum();
        bytes.next_multiple_of(self.fields.first().map_or(1, |field| field.size()))
    }

    /// What a launch passes, given the length or the scalar of each parameter, and the length of each shared array.
    pub fn bytes(&self, length: impl Fn(usize) -> u64, scalar: impl Fn(usize) -> Constant, shared: impl Fn(usize) -> u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        for field in &self.fields {
            match *field {
                Field::Length(parameter) => bytes.extend_from_slice(&length(parameter).to_le_bytes()),
                Field::Shared(array) => bytes.extend_from_slice(&shared(array).to_le_bytes()),
                Field::Scalar(parameter, dtype) => bytes.extend_from_slice(&scalar(parameter).bits.to_le_bytes()[..dtype.size()]),
            }
        }
        bytes.resize(self.size(), 0);
        bytes
    }
}
