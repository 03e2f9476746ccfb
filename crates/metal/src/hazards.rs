//! Barriers, from what the commands of a list read and write.

use elinvar_core::{Binding, Command};

/// The ranges that commands since the last barrier use, and whether they write them.
#[derive(Default)]
pub(crate) struct Hazards<'a> {
    uses: Vec<(&'a Binding, bool)>,
}

impl<'a> Hazards<'a> {
    /// So many uses are compared with each new one at most; a barrier costs less than a longer search.
    const MOST: usize = 256;

    /// Whether the next command must wait for those since the last barrier; if so, a barrier stands before it from now on.
    pub(crate) fn add(&mut self, command: &'a Command) -> bool {
        let before = self.uses.len();
        match command {
            Command::Dispatch(dispatch) => {
                for (binding, parameter) in dispatch.bindings.iter().zip(&dispatch.pipeline.source().parameters) {
                    self.uses.extend(binding.iter().map(|binding| (binding, parameter.access.writes())));
                }
            }
            Command::Copy(copy) => self.uses.extend([(&copy.source, false), (&copy.destination, true)]),
            Command::Fill(fill) => self.uses.push((&fill.destination, true)),
        }
        let (earlier, now) = self.uses.split_at(before);
        let conflict = |(a, writes): &(&Binding, bool)| earlier.iter().any(|(b, wrote)| (*writes || *wrote) && a.overlaps(b));
        let waits = before > Self::MOST || now.iter().any(conflict);
        if waits {
            self.uses.drain(..before);
        }
        waits
    }
}
