//! Samples side by side.

use elinvar::{Error, Result};

use super::data::{Dataset, Sample};
use crate::model::{IGNORED, Model};

/// Samples of one length, filled up at their ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Samples.
    pub(super) texts: usize,
    /// Tokens of each.
    pub(super) length: usize,
    /// `[texts, length]`.
    pub(super) tokens: Vec<i32>,
    /// What follows each token, where that counts.
    pub(super) targets: Vec<i32>,
}

/// Lengths are multiples of this, so that few shapes are recorded.
const STEP: usize = 32;

/// The length that a sample has in a batch by itself.
pub(super) fn padded(sample: &Sample) -> usize {
    (sample.tokens.len() - 1).next_multiple_of(STEP)
}

impl Batch {
    /// Of these samples.
    ///
    /// # Errors
    /// No sample.
    pub fn new(samples: &[&Sample]) -> Result<Self> {
        let length = samples.iter().map(|sample| padded(sample)).max().ok_or_else(|| Error::invalid_argument("a batch of no samples"))?;
        let mut batch = Self { texts: samples.len(), length, tokens: Vec::new(), targets: Vec::new() };
        for sample in samples {
            let tokens = || sample.tokens.iter().map(|token| token.cast_signed());
            let count = sample.tokens.len() - 1;
            let target = |(place, token): (usize, i32)| if place + 1 < sample.prompt { IGNORED } else { token };
            let rest = length - count;
            batch.tokens.extend(tokens().take(count).chain(std::iter::repeat_n(0, rest)));
            batch.targets.extend(tokens().skip(1).enumerate().map(target).chain(std::iter::repeat_n(IGNORED, rest)));
        }
        Ok(batch)
    }

    /// Rejects tokens outside a model's vocabulary.
    pub(super) fn check(&self, model: &Model) -> Result<()> {
        let all = self.tokens.iter().chain(self.targets.iter().filter(|target| **target != IGNORED));
        model.check_tokens(&all.map(|token| token.cast_unsigned()).collect::<Vec<_>>())
    }

    /// Tokens that are to be predicted.
    pub fn targets(&self) -> usize {
        self.targets.iter().filter(|target| **target != IGNORED).count()
    }
}

/// In which order a data set is gone through: shuffled again each time, as `seed` says.
pub(super) struct Order {
    seed: u64,
    /// Of the round that was asked for last.
    round: Option<(u64, Vec<usize>)>,
}

impl Order {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, round: None }
    }

    /// The samples, or pairs of them, from the `first`-th on.
    pub(super) fn samples<'a>(&mut self, data: &'a Dataset, first: u64, count: usize) -> Vec<&'a Sample> {
        (first..first + count as u64).flat_map(|place| data.group(self.at(place, data.len()))).collect()
    }

    fn at(&mut self, place: u64, count: usize) -> usize {
        let (round, within) = (place / count as u64, (place % count as u64) as usize);
        match &self.round {
            Some((known, order)) if *known == round => order[within],
            _ => {
                let order = shuffled(count, self.seed, round);
                let found = order[within];
                self.round = Some((round, order));
                found
            }
        }
    }
}

/// The numbers below `count` in an order (Fisher and Yates).
fn shuffled(count: usize, seed: u64, round: u64) -> Vec<usize> {
    let mut order: Vec<_> = (0..count).collect();
    let mut random = elinvar::SplitMix64::new(elinvar::SplitMix64::nth(seed, round));
    for last in (1..count).rev() {
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(tokens: &[u32], prompt: usize) -> Sample {
        Sample { tokens: tokens.to_vec(), prompt }
    }

    #[test]
    fn each_token_has_the_next_as_its_target_but_within_the_prompt() {
        let batch = Batch::new(&[&sample(&[5, 6, 7, 8], 2), &sample(&[9, 3], 0)]).unwrap();
        assert_eq!((batch.texts, batch.length, batch.targets()), (2, 32, 3));
        assert_eq!((&batch.tokens[..4], &batch.targets[..4]), (&[5, 6, 7, 0][..], &[IGNORED, 7, 8, IGNORED][..]));
        assert_eq!((&batch.tokens[32..34], &batch.targets[32..34]), (&[9, 0][..], &[3, IGNORED][..]));
        assert!(Batch::new(&[]).is_err());
    }

    #[test]
    fn each_round_has_every_sample_once_in_an_order_of_its_own() {
        let data = Dataset::new((0..7).map(|i| sample(&[i, i], 0)).collect()).unwrap();
        let round = |seed: u64, first: u64| Order::new(seed).samples(&data, first, 7).iter().map(|s| s.tokens[0]).collect::<Vec<_>>();
        let sorted = |mut order: Vec<u32>| {
            order.sort_unstable();
            order
        };
        assert_eq!((sorted(round(1, 0)), sorted(round(1, 7))), ((0..7).collect(), (0..7).collect()));
        assert!(round(1, 0) != round(1, 7) && round(1, 0) != round(2, 0));
        // From any place on, without what was asked for before.
        assert_eq!(round(1, 3)[..4], round(1, 0)[3..]);
    }
}
