//! Texts that are computed together: their tokens lie one after the other, without padding.

use std::{cmp::Reverse, ops::Range};

use elinvar::{Result, Tensor};

/// Texts of one length that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first token's row.
    pub(super) first: usize,
    /// How many texts.
    pub(super) texts: usize,
    /// Tokens of each.
    pub(super) length: usize,
}

impl Run {
    /// The rows of its tokens.
    pub(super) fn rows_of(&self, x: &Tensor) -> Result<Tensor> {
        x.slice(0, self.first, self.texts * self.length, 1)
    }
}

/// The order in which texts of these lengths are computed, the longest first, so that texts of one length follow each other; and which of that order are computed
/// together: as many as have `most` tokens, and at least one.
pub(super) fn batches(lengths: &[usize], most: usize) -> (Vec<usize>, Vec<Range<usize>>) {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&text| Reverse(lengths[text]));
    let (mut batches, mut first, mut tokens) = (Vec::new(), 0, 0);
    for (place, &text) in order.iter().enumerate() {
        if place > first && tokens + lengths[text] > most {
            batches.push(first..place);
            (first, tokens) = (place, 0);
        }
        tokens += lengths[text];
    }
    if first < order.len() {
        batches.push(first..order.len());
    }
    (order, batches)
}

/// The runs of texts of these lengths.
pub(super) fn runs(lengths: impl Iterator<Item = usize>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for length in lengths {
        match runs.last_mut() {
            Some(run) if run.length == length => run.texts += 1,
            last => {
                let first = last.map_or(0, |run| run.first + run.texts * run.length);
                runs.push(Run { first, texts: 1, length });
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_one_length_are_one_run_and_no_text_is_cut() {
        let (order, parts) = batches(&[3, 9, 3, 20, 1, 9], 18);
        assert_eq!((order, parts), (vec![3, 1, 5, 0, 2, 4], vec![0..1, 1..3, 3..6]));
        let run = |first, texts, length| Run { first, texts, length };
        assert_eq!(runs([9, 9, 3, 3, 1].into_iter()), [run(0, 2, 9), run(18, 2, 3), run(24, 1, 1)]);
        assert_eq!((batches(&[], 18), runs([].into_iter())), ((vec![], vec![]), vec![]));
    }
}
