//! A row's largest logit and the sum of its exponentials, as [`super`] defines it.

use crate::{
    math,
    order::{self, Accumulators, GROUP},
    simd,
};

/// How far a thread's logits may lie above its origin.
const SLACK: f32 = 4.0;

/// Scaled sums below this, 2^-100, count as zero, so that no device meets subnormal numbers.
const NEGLIGIBLE: f32 = f32::from_bits((127 - 100) << 23);

/// The sums of a simdgroup's slots, and the origins of its threads.
#[derive(Clone, Copy)]
pub(super) struct Group {
    sums: Accumulators,
    origins: [f32; 32],
}

impl Group {
    const EMPTY: Self = Self { sums: Accumulators([0.0; GROUP]), origins: [f32::MIN; 32] };

    /// What [`exponentials`] works in, for rows of `n` logits.
    pub(super) fn of_row(n: usize) -> Vec<Self> {
        vec![Self::EMPTY; order::row_groups(n)]
    }

    /// Takes logits; `spread` are the origins of their slots.
    #[inline(always)]
    fn visit(&mut self, spread: &mut [f32; GROUP], logits: &[f32; GROUP]) {
        let mut above = 0;
        for (x, origin) in logits.iter().zip(&*spread) {
            above |= if x - origin > SLACK { u32::MAX } else { 0 };
        }
        if above != 0 {
            let mut to = order::combine_slots(logits, order::larger);
            for (to, origin) in to.iter_mut().zip(self.origins) {
                *to = if *to - origin > SLACK { *to } else { origin };
            }
            self.scale(to);
            *spread = slots(&to);
        }
        for ((sum, origin), x) in self.sums.0.iter_mut().zip(&*spread).zip(logits) {
            *sum += math::exp_nonpositive(x - origin);
        }
    }

    #[inline(always)]
    fn scale(&mut self, to: [f32; 32]) {
        let mut factors = [0.0; 32];
        for ((factor, origin), to) in factors.iter_mut().zip(&self.origins).zip(&to) {
            *factor = math::exp_nonpositive(origin - to);
        }
        for (sum, factor) in self.sums.0.iter_mut().zip(slots(&factors)) {
            let (scaled, least) = (*sum * factor, if factor < 1.0 { NEGLIGIBLE } else { 0.0 });
            *sum = if scaled < least { 0.0 } else { scaled };
        }
        self.origins = to;
    }
}

/// What is a thread's for each of its slots.
#[inline(always)]
fn slots(of_threads: &[f32; 32]) -> [f32; GROUP] {
    let mut all = [0.0; GROUP];
    for (slots, value) in all.as_chunks_mut::<8>().0.iter_mut().zip(of_threads) {
        *slots = [*value; 8];
    }
    all
}

simd! {
    /// The largest logit and the sum of the exponentials, by way of `groups`.
    pub(super) fn exponentials(row: &[f32], groups: &mut [Group]) -> (f32, f32) {
        let (max, stride) = (order::largest(row), GROUP * groups.len());
        if row.len() <= GROUP {
            return (max, order::sum(row, |a, x: f32| a + math::exp_nonpositive(x - max)));
        }
        for (g, group) in groups.iter_mut().enumerate() {
            *group = Group::EMPTY;
            let mut spread = [f32::MIN; GROUP];
            let mut rest = row.get(g * GROUP..).unwrap_or_default();
            while let Some(logits) = rest.first_chunk() {
                group.visit(&mut spread, logits);
                rest = rest.get(stride..).unwrap_or_default();
            }
            if !rest.is_empty() {
                let mut last = [f32::NEG_INFINITY; GROUP];
                last[..rest.len()].copy_from_slice(rest);
                group.visit(&mut spread, &last);
            }
        }
        let mut sum = 0.0;
        for group in groups {
            group.scale([max; 32]);
            sum += order::sum_group(&group.sums);
        }
        (max, sum)
    }
}
