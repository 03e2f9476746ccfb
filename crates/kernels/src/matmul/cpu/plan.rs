//! The order of summation over k, as data for the register tiles.
//!
//! A tile walks the packed panels once, in runs. After a run its sums are merged with earlier ones, kept on a small stack of tiles, so the
//! tree over 256 partial sums needs vertical additions only. Strict order: one run for each partial sum `j` (the elements `k ≡ j (mod 256)`),
//! lanes in bit-reversed order, in which the halving tree 16, 8, 4, 2, 1 is a binary counter. Fast order: runs of 512 consecutive elements,
//! added in order.

use std::ops::Range;

use super::dot::PARTIALS;

/// Levels of the stack; the last holds the result.
pub(crate) const LEVELS: usize = 9;

/// Levels below this one are empty between slabs.
pub(crate) const LOW_LEVELS: usize = 5;

/// Elements of a run in fast order.
const FAST_RUN: usize = 512;

/// Elements of a slab, or somewhat more.
const SLAB: usize = 1024;

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
    /// First level merged.
    pub(crate) from: u8,
    /// Levels merged.
    pub(crate) merges: u8,
    /// Levels at which the other side has no elements: +0.0 is added.
    pub(crate) empty: u8,
    /// Level that receives the result.
    pub(crate) level: u8,
}

/// Steps that a tile does in one go, and the elements they sum, by position: few enough to stay in a cache.
#[derive(Clone, Debug)]
pub(crate) struct Slab {
    pub(crate) steps: Range<usize>,
    pub(crate) positions: Range<usize>,
}

/// The runs over a dimension of `k` elements, in the order in which panels are packed.
pub(crate) struct Plan {
    k: usize,
    steps: Vec<Step>,
    slabs: Vec<Slab>,
    /// Where the elements of each partial sum begin, which stand together; without, elements are in order.
    starts: Option<Box<[u32; PARTIALS]>>,
}

impl Plan {
    pub(crate) fn new(summation: Summation, k: usize) -> Self {
        match summation {
            Summation::Strict => Self::strict(k),
            Summation::Fast => Self::fast(k, false),
        }
    }

    /// The runs in fast order of one more product, whose sums are added to the result of the one before.
    pub(crate) fn after(k: usize) -> Self {
        Self::fast(k, true)
    }

    fn strict(k: usize) -> Self {
        let run = |partial: usize| k / PARTIALS + usize::from(partial < k % PARTIALS);
        let mut starts = Box::new([0; PARTIALS]);
        let mut steps = Vec::with_capacity(PARTIALS);
        let mut position = 0;
        for index in (0..PARTIALS).filter(|&i| run(partial_sum(i)) > 0) {
            let partial = partial_sum(index);
            starts[partial] = position as u32;
            position += run(partial);
            let mut step = Step { run: run(partial) as u32, from: 0, merges: 0, empty: 0, level: 0 };
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
        // Steps of a power of two that is at least 32 leave nothing on the low levels.
        let slabs = (k / SLAB).next_power_of_two().min(PARTIALS >> LOW_LEVELS);
        Self { k, slabs: slabs_of(&steps, PARTIALS / slabs), steps, starts: Some(starts) }
    }

    fn fast(k: usize, is_added: bool) -> Self {
        let mut steps: Vec<_> = (0..k)
            .step_by(FAST_RUN)
            .map(|first| Step { run: FAST_RUN.min(k - first) as u32, from: LOW_LEVELS as u8, merges: 1, empty: 0, level: LOW_LEVELS as u8 })
            .collect();
        if let Some(step) = steps.first_mut() {
            (step.from, step.merges) = if is_added { ((LEVELS - 1) as u8, 1) } else { (0, 0) };
        }
        if let Some(step) = steps.last_mut() {
            step.level = (LEVELS - 1) as u8;
        }
        Self { k, slabs: slabs_of(&steps, SLAB / FAST_RUN), steps, starts: None }
    }

    pub(crate) fn k(&self) -> usize {
        self.k
    }

    pub(crate) fn slabs(&self) -> &[Slab] {
        &self.slabs
    }

    pub(crate) fn steps(&self, slab: &Slab) -> &[Step] {
        &self.steps[slab.steps.clone()]
    }

    /// Where element `k` stands in a packed panel.
    #[inline(always)]
    pub(crate) fn position(&self, k: usize) -> usize {
        match &self.starts {
            Some(starts) => starts[k % PARTIALS] as usize + k / PARTIALS,
            None => k,
        }
    }
}

/// Slabs of `count` steps.
fn slabs_of(steps: &[Step], count: usize) -> Vec<Slab> {
    let mut end = 0;
    let slab = |(i, chunk): (usize, &[Step])| {
        let start = end;
        end += chunk.iter().map(|step| step.run as usize).sum::<usize>();
        Slab { steps: i * count..i * count + chunk.len(), positions: start..end }
    };
    steps.chunks(count).enumerate().map(slab).collect()
}

/// The partial sum visited as number `index`: slots in order, lanes bit-reversed.
fn partial_sum(index: usize) -> usize {
    let lane = ((index >> 3) as u8).reverse_bits() >> 3;
    usize::from(lane) << 3 | (index & 7)
}
