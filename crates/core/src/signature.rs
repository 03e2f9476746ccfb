use std::borrow::Cow;

use crate::dtype::DType;

/// What a kernel does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes all of it, reads nothing.
    Write,
    /// Reads it, or writes only a part.
    ReadWrite,
}

impl Access {
    /// Write or read-write.
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read)
    }
}

/// One buffer of a kernel's signature, in binding order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as the documentation and error messages use it.
    pub name: Cow<'static, str>,
    /// What the kernel does with it.
    pub access: Access,
    /// Type of its elements.
    pub dtype: DType,
    /// May be left unbound.
    pub optional: bool,
    /// Where launches overlap, the kernel reads it before those ahead have ended: it then begins early only if none of them writes it.
    pub prefetched: bool,
}

impl Parameter {
    /// A buffer that is read.
    pub const fn read(name: &'static str, dtype: DType) -> Self {
        Self { name: Cow::Borrowed(name), access: Access::Read, dtype, optional: false, prefetched: false }
    }

    /// A buffer that is written in full.
    pub const fn write(name: &'static str, dtype: DType) -> Self {
        Self { name: Cow::Borrowed(name), access: Access::Write, dtype, optional: false, prefetched: false }
    }

    /// A buffer that is updated in place.
    pub const fn update(name: &'static str, dtype: DType) -> Self {
        Self { name: Cow::Borrowed(name), access: Access::ReadWrite, dtype, optional: false, prefetched: false }
    }

    /// The same, but it may be left unbound.
    pub fn or_absent(self) -> Self {
        Self { optional: true, ..self }
    }

    /// The same, read early.
    pub fn prefetched(self) -> Self {
        Self { prefetched: true, ..self }
    }
}
