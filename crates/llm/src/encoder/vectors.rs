//! The vectors of texts.

use std::path::Path;

use elinvar::{Error, ErrorKind, Result};

use crate::whole::write_file;

/// The vectors of texts, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Embeddings {
    pub(super) values: Vec<f32>,
    pub(super) width: usize,
    pub(super) tokens: Vec<usize>,
    pub(super) truncated: Vec<bool>,
}

impl Embeddings {
    /// How many texts.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// All vectors, `[texts, dimensions]`, row-major.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// A text's vector; nothing for a text that there is not.
    pub fn row(&self, text: usize) -> &[f32] {
        self.values.chunks_exact(self.width).nth(text).unwrap_or_default()
    }

    /// Tokens of each text that its vector is made of, those around it included.
    pub fn tokens(&self) -> &[usize] {
        &self.tokens
    }

    /// Whether each text was cut, because it has more tokens than were asked for.
    pub fn truncated(&self) -> &[bool] {
        &self.truncated
    }

    /// Writes the vectors as a file of NumPy, f32 `[texts, dimensions]`, whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_npy(&self, path: &Path) -> Result<()> {
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", self.len(), self.width);
        // Magic, version and length take 10 bytes; the elements begin at a multiple of 64.
        let padding = (10 + header.len() + 1).next_multiple_of(64) - (10 + header.len() + 1);
        header.push_str(&" ".repeat(padding));
        header.push('\n');
        let length = u16::try_from(header.len()).map_err(|_| Error::internal("a header of more than 64 KiB"))?;
        let values: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        write_file(path, |file| {
            let parts = [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], header.as_bytes(), &values];
            let written = parts.iter().try_for_each(|part| file.write_all(part));
            written.map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot write {}", path.display()), e))
        })
    }
}
