//! The CPU kernel: attention's, which finds keys and values by the tables.

use elinvar_core::{HostArguments, Result};

use super::{PagedParams, operands::AT};
use crate::attention::cpu::{compute, pages::Pages, tile::Scorer};

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let PagedParams { attention, page, entries, pages } = arguments.params()?;
    let table = arguments.input(AT.table)?;
    let pages = Pages { table, page: page as usize, entries: entries as usize, pages: pages as usize };
    let scorer = Scorer::paged(arguments, attention.score, pages, AT.positions)?;
    compute(arguments, attention, scorer, AT.y)
}
