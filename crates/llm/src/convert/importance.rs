//! How much the columns of each matrix matter: the mean squares of what they are multiplied by, as llama.cpp's `imatrix` measures them.

use std::{collections::BTreeMap, path::Path};

use elinvar::{Error, Result};

use crate::gguf::Gguf;

/// The importance of the columns of matrices, by the matrices' names in GGUF files.
#[derive(Clone, Debug, Default)]
pub struct Importance {
    columns: BTreeMap<String, Vec<f32>>,
    label: String,
}

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Importance {
    /// Nothing known: all columns count alike.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads a GGUF file of `general.type` `imatrix`, which has sums of squares and how many were added.
    ///
    /// # Errors
    /// A file of another kind, a damaged one, or sums that are negative or not finite.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = Gguf::open(path)?;
        let mut columns = BTreeMap::new();
        for (name, info) in file.tensors() {
            let Some(matrix) = name.strip_suffix(SUMS) else { continue };
            let read = |name: &str| -> Result<Vec<f32>> {
                let info = file.tensor(name).ok_or_else(|| file.reject(format!("tensor '{name}' is missing")))?;
                let mut values = vec![0.0; info.dims.iter().product()];
                info.kind.decode(file.data(info)?.bytes(), &mut values).map_err(|e| file.reject(format!("tensor '{name}': {e}")))?;
                Ok(values)
            };
            let (sums, counts) = (read(name)?, read(&format!("{matrix}{COUNTS}"))?);
            let [count] = counts[..] else {
                return Err(Error::unsupported(format!(
                    "{}: tensor '{name}' has the sums of {} experts: one is supported",
                    file.label(),
                    counts.len()
                )));
            };
            if info.dims.iter().rev().skip(1).any(|&extent| extent != 1) || !sums.iter().all(|sum| sum.is_finite() && *sum >= 0.0) || count < 0.0 {
                return Err(file.reject(format!("tensor '{name}' has no sums of squares of one matrix's columns")));
            }
            if count > 0.0 {
                columns.insert(matrix.to_owned(), sums.iter().map(|sum| sum / count).collect());
            }
        }
        if columns.is_empty() {
            return Err(file.reject(format!("it has no tensors '*{SUMS}' and '*{COUNTS}': no importance matrix in GGUF's form")));
        }
        Ok(Self { columns, label: file.label().to_owned() })
    }

    /// Of the columns of a matrix, if it is known.
    pub(super) fn of(&self, name: &str) -> Option<&[f32]> {
        self.columns.get(name).map(Vec::as_slice)
    }

    /// Rejects an importance of other tensors.
    pub(super) fn check<'a>(&self, tensors: impl Iterator<Item = (&'a str, &'a [usize])>) -> Result<()> {
        let mut found = self.columns.is_empty();
        for (name, dims) in tensors {
            let (Some(known), Some(columns)) = (self.of(name), dims.last()) else { continue };
            if known.len() != *columns {
                return Err(Error::invalid_data(format!("{}: tensor '{name}' has {columns} columns, {} are known", self.label, known.len())));
            }
            found = true;
        }
        if found { Ok(()) } else { Err(Error::invalid_data(format!("{}: it knows none of the model's tensors", self.label))) }
    }
}
