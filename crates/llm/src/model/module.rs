//! Linear layers by the names that checkpoints have for them.

use std::ops::Range;

use super::parts::Linear;

/// A linear layer of a checkpoint, and those of the model that are its rows, in order: one, unless projections are stored as one.
pub(super) struct Module<'a> {
    pub(super) name: String,
    pub(super) parts: Vec<&'a mut Linear>,
}

impl<'a> Module<'a> {
    /// Of `path`: each by itself, or all as the one called `fused`.
    pub(super) fn all<const N: usize>(path: &str, fused: Option<&str>, layers: [(&str, &'a mut Linear); N]) -> Vec<Self> {
        match fused {
            Some(name) => vec![Self { name: format!("{path}.{name}"), parts: layers.into_iter().map(|(_, linear)| linear).collect() }],
            None => layers.into_iter().map(|(name, linear)| Self { name: format!("{path}.{name}"), parts: vec![linear] }).collect(),
        }
    }

    /// `[rows, columns]` of the checkpoint's layer.
    pub(super) fn extents(&self) -> [usize; 2] {
        let extents = self.parts.iter().map(|part| part.extents());
        extents.reduce(|[rows, columns], [more, _]| [rows + more, columns]).unwrap_or_default()
    }

    /// Each part, and which of the rows it has.
    pub(super) fn rows(&mut self) -> impl Iterator<Item = (Range<usize>, &mut Linear)> {
        let mut start = 0;
        self.parts.iter_mut().map(move |part| {
            let first = start;
            start += part.extents()[0];
            (first..start, &mut **part)
        })
    }
}
