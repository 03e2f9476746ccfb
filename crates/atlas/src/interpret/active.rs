//! Which lanes run.

use super::ops;

/// The lanes of a strip that run.
#[derive(Clone)]
pub(super) enum Active {
    /// Every lane.
    All,
    /// None.
    None,
    /// Those that are 1, some but not all.
    Some(Vec<u8>),
}

impl Active {
    fn of(mask: Vec<u8>) -> Self {
        match ops::all_equal(&mask) {
            Some(true) => Active::All,
            Some(false) => Active::None,
            None => Active::Some(mask),
        }
    }

    /// The mask, where some lanes but not all run.
    pub(super) fn mask(&self) -> Option<&[u8]> {
        if let Active::Some(mask) = self { Some(mask) } else { None }
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Active::None)
    }

    /// Those for which the condition holds, and those for which it does not.
    pub(super) fn split(&self, condition: &[u8]) -> (Active, Active) {
        match self {
            Active::None => (Active::None, Active::None),
            Active::All => match ops::all_equal(condition) {
                Some(true) => (Active::All, Active::None),
                Some(false) => (Active::None, Active::All),
                None => {
                    let mut rest = vec![1; condition.len()];
                    ops::and_not(&rest.clone(), condition, &mut rest);
                    (Active::Some(condition.to_vec()), Active::Some(rest))
                }
            },
            Active::Some(mask) => {
                let (mut yes, mut no) = (vec![0; mask.len()], vec![0; mask.len()]);
                ops::and(mask, condition, &mut yes);
                ops::and_not(mask, condition, &mut no);
                (Active::of(yes), Active::of(no))
            }
        }
    }

    /// Those for which the condition holds.
    pub(super) fn retain(&mut self, condition: &[u8]) {
        match self {
            Active::None => {}
            Active::All => *self = Active::of(condition.to_vec()),
            Active::Some(mask) => {
                let before = std::mem::take(mask);
                let mut kept = vec![0; before.len()];
                ops::and(&before, condition, &mut kept);
                *self = Active::of(kept);
            }
        }
    }

    /// These and the others.
    pub(super) fn join(self, other: Active) -> Active {
        match (self, other) {
            (Active::All, _) | (_, Active::All) => Active::All,
            (Active::None, some) | (some, Active::None) => some,
            (Active::Some(mut a), Active::Some(b)) => {
                ops::or(&mut a, &b);
                Active::of(a)
            }
        }
    }

    /// These without the others.
    pub(super) fn without(self, others: &Active, lanes: usize) -> Active {
        match (self, others) {
            (_, Active::All) | (Active::None, _) => Active::None,
            (active, Active::None) => active,
            (active, Active::Some(others)) => {
                let mask = if let Active::Some(mask) = active { mask } else { vec![1; lanes] };
                let mut kept = vec![0; lanes];
                ops::and_not(&mask, others, &mut kept);
                Active::of(kept)
            }
        }
    }
}
