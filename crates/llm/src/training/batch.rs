//! Samples side by side, or packed.

use elinvar::{Error, Result};

use super::data::{Dataset, Sample};
use crate::model::{IGNORED, Model};

/// Samples of one length, filled up at their ends; or packed, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Samples.
    pub(super) texts: usize,
    /// Tokens of each, or at most.
    pub(super) length: usize,
    /// `[texts, length]`, or `[rows]`.
    pub(super) tokens: Vec<i32>,
    /// What follows each token, where that counts.
    pub(super) targets: Vec<i32>,
    /// Where they are, if they are packed.
    pub(super) packed: Option<Packed>,
}

/// Of tokens that are packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed {
    /// Of each in its sample.
    pub(super) positions: Vec<i32>,
    /// Of each among samples that are filled up.
    pub(super) places: Vec<i32>,
    /// The token of each such place.
    pub(super) rows: Vec<i32>,
}

/// What a recording of a step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) texts: usize,
    pub(super) length: usize,
    /// Tokens of all.
    pub(super) rows: usize,
    pub(super) is_packed: bool,
}

/// Lengths are multiples of this, so that few shapes are recorded.
const STEP: usize = 32;

/// Tokens of packed samples are multiples of at least this part of a power of two: few shapes again, and little that is filled up.
const ROW_STEPS: usize = 16;

/// The length that a sample has in a batch by itself.
pub(super) fn padded(sample: &Sample) -> usize {
    (sample.tokens.len() - 1).next_multiple_of(STEP)
}

/// Tokens of samples in a row.
fn tokens(samples: &[&Sample]) -> usize {
    samples.iter().map(|sample| sample.tokens.len() - 1).sum()
}

impl Batch {
    /// Of these samples.
    ///
    /// # Errors
    /// No sample.
    pub fn new(samples: &[&Sample]) -> Result<Self> {
        Self::of_step(samples, samples.len(), false).pop().ok_or_else(|| Error::invalid_argument("a batch of no samples"))
    }

    /// Of these samples, one after the other: only attention sees them filled up.
    ///
    /// # Errors
    /// No sample.
    pub fn packed(samples: &[&Sample]) -> Result<Self> {
        Self::of_step(samples, samples.len(), true).pop().ok_or_else(|| Error::invalid_argument("a batch of no samples"))
    }

    /// Batches of so many samples each, packed or not. They have one shape, so that several devices compute them side by side.
    pub fn of_step(samples: &[&Sample], count: usize, pack: bool) -> Vec<Self> {
        let batches = samples.chunks(count.max(1));
        if pack {
            // One place more than tokens, which counts for nothing, and one row more, for the places without a token.
            let length = samples.iter().map(|sample| sample.tokens.len()).max().unwrap_or(0).next_multiple_of(STEP);
            let rows = batches.clone().map(tokens).max().unwrap_or(0) + 1;
            let rows = rows.next_multiple_of((rows.next_power_of_two() / ROW_STEPS).max(STEP));
            batches.map(|samples| Self::laid(samples, length, rows)).collect()
        } else {
            let length = samples.iter().map(|sample| padded(sample)).max().unwrap_or(0);
            batches.map(|samples| Self::filled(samples, length)).collect()
        }
    }

    /// Filled up to a length.
    fn filled(samples: &[&Sample], length: usize) -> Self {
        let mut batch = Self { texts: samples.len(), length, tokens: Vec::new(), targets: Vec::new(), packed: None };
        for sample in samples {
            batch.add(sample, length);
        }
        batch
    }

    /// One after the other, filled up to so many rows, and for attention to a length.
    fn laid(samples: &[&Sample], length: usize, rows: usize) -> Self {
        let mut batch = Self { texts: samples.len(), length, tokens: Vec::new(), targets: Vec::new(), packed: None };
        let mut packed = Packed { positions: Vec::new(), places: Vec::new(), rows: Vec::new() };
        let total = tokens(samples);
        for (text, sample) in samples.iter().enumerate() {
            let (first, count) = (batch.tokens.len() as i32, sample.tokens.len() as i32 - 1);
            batch.add(sample, sample.tokens.len() - 1);
            packed.positions.extend(0..count);
            packed.places.extend((0..count).map(|position| (text * length) as i32 + position));
            packed.rows.extend((first..first + count).chain(std::iter::repeat_n(total as i32, length - count as usize)));
        }
        let free = samples.first().map_or(0, |sample| sample.tokens.len() as i32 - 1);
        batch.tokens.resize(rows, 0);
        batch.targets.resize(rows, IGNORED);
        packed.positions.resize(rows, 0);
        packed.places.resize(rows, free);
        batch.packed = Some(packed);
        batch
    }

    /// Adds a sample, filled up to a length.
    fn add(&mut self, sample: &Sample, length: usize) {
        let tokens = || sample.tokens.iter().map(|token| token.cast_signed());
        let count = sample.tokens.len() - 1;
        let target = |(place, token): (usize, i32)| if place + 1 < sample.prompt { IGNORED } else { token };
        let rest = length - count;
        self.tokens.extend(tokens().take(count).chain(std::iter::repeat_n(0, rest)));
        self.targets.extend(tokens().skip(1).enumerate().map(target).chain(std::iter::repeat_n(IGNORED, rest)));
    }

    pub(super) fn shape(&self) -> Shape {
        Shape { texts: self.texts, length: self.length, rows: self.tokens.len(), is_packed: self.packed.is_some() }
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
