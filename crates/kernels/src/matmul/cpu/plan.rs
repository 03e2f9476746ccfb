//! The order of summation over k, as data for the register tiles.
//!
//! A tile walks the packed panels once, in runs. After a run its sums are merged with earlier ones, kept on a small stack of tiles, so the
//! tree over 256 partial sums needs vertical additions only. Strict order: one run for each partial sum `j` (the elements `k ≡ j (mod 256)`),
//! lanes in bit-reversed order, in which the halving tree 16, 8, 4, 2, 1 is a binary counter. Fast order: runs of 512 consecutive elements,
//! added in order.

use super::dot::PARTIALS;

/// Levels of the stack; the last holds the result.
pub(crate) const LEVELS: usize = 9;

/// Elements of a run in fast order.
const FAST_RUN: usize = 512;

/// Which sum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summation {
    /// The canonical order: every element has the bits of the strict dot product.
    Strict,
    /// Runs in order: fewer additions.
    Fast,
}

/// One run and what is done with its sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Elements.
    pub(crate) run: u32,
    /// Levels merged, from 0 up.
    pub(crate) merges: u8,
    /// Levels at which the other side has no elements: +0.0 is added.
    pub(crate) empty: u8,
    /// Level that receives the result.
    pub(crate) level: u8,
}

/// The runs over a dimension of `k` elements, in the order in which panels are packed.
pub(crate) struct Plan {
    k: usize,
    stride: usize,
    steps: Vec<Step>,
    starts: Vec<u32>,
}

impl Plan {
    pub(crate) fn new(summation: Summation, k: usize) -> Self {
        match summation {
            Summation::Strict => Self::strict(k),
            Summation::Fast => Self::fast(k),
        }
    }

    fn strict(k: usize) -> Self {
        let run = |partial: usize| k / PARTIALS + usize::from(partial < k % PARTIALS);
        let mut starts = vec![0; PARTIALS];
        let mut steps = Vec::with_capacity(PARTIALS);
        let mut position = 0;
        for index in (0..PARTIALS).filter(|&i| run(partial_sum(i)) > 0) {
            let partial = partial_sum(index);
            starts[partial] = position as u32;
            position += run(partial);
            let mut step = Step { run: run(partial) as u32, merges: 0, empty: 0, level: 0 };
            while usize::from(step.merges) < LEVELS - 1 {
                let bit = step.merges;
                let right_is_empty = || run(partial_sum(((index >> bit) + 1) << bit)) == 0;
                if index >> bit & 1 == 0 {
                    if !right_is_empty() {
                        break;
                    }
                    step.empty |= 1 << bit;
                }
                step.merges += 1;
            }
            step.level = step.merges;
            steps.push(step);
        }
        Self { k, stride: PARTIALS, steps, starts }
    }

    fn fast(k: usize) -> Self {
        let last = (LEVELS - 1) as u8;
        let mut steps: Vec<_> =
            (0..k).step_by(FAST_RUN).map(|first| Step { run: FAST_RUN.min(k - first) as u32, merges: 1, empty: 0, level: 0 }).collect();
        if let Some(step) = steps.first_mut() {
            step.merges = 0;
        }
        if let Some(step) = steps.last_mut() {
            step.level = last;
        }
        Self { k, stride: 1, steps, starts: vec![0] }
    }

    pub(crate) fn k(&self) -> usize {
        self.k
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Where element `k` stands in a packed panel.
    #[inline(always)]
    pub(crate) fn position(&self, k: usize) -> usize {
        self.starts[k % self.stride] as usize + k / self.stride
    }
}

/// The partial sum visited as number `index`: slots in order, lanes bit-reversed.
fn partial_sum(index: usize) -> usize {
    let lane = ((index >> 3) as u8).reverse_bits() >> 3;
    usize::from(lane) << 3 | (index & 7)
}
