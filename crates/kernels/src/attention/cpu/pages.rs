//! Where the keys of sequences lie whose cache is in pages.

use std::ops::Range;

use elinvar_core::{Error, Result};

/// The tables of all sequences.
pub(crate) struct Pages<'a> {
    pub(crate) table: &'a [i32],
    /// Tokens of a page.
    pub(crate) page: usize,
    /// Entries of a sequence's table.
    pub(crate) entries: usize,
    /// Pages of the cache.
    pub(crate) pages: usize,
}

impl Pages<'_> {
    /// Checks the pages of the keys that a sequence attends.
    pub(super) fn check(&self, sequence: usize, attended: Range<usize>) -> Result<()> {
        let first = attended.start / self.page;
        let entries = if attended.is_empty() { &[][..] } else { &self.table[sequence * self.entries..][first..attended.end.div_ceil(self.page)] };
        match entries.iter().position(|&entry| usize::try_from(entry).map_or(true, |entry| entry >= self.pages)) {
            None => Ok(()),
            Some(at) => Err(Error::invalid_argument(format!(
                "page {} of sequence {sequence} is page {} of a cache of {} pages: give every attended key a page of the cache",
                first + at,
                entries[at],
                self.pages
            ))),
        }
    }

    /// Where a key lies. Those that follow it within the 32 that it is among lie behind it.
    #[inline]
    pub(super) fn slot(&self, sequence: usize, key: usize) -> usize {
        self.table[sequence * self.entries + key / self.page] as usize * self.page + key % self.page
    }
}
