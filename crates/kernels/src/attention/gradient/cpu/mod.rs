//! The CPU kernel: tasks of some queries, then of some keys, that share panels of 32 rows, one dot product in each lane.

mod panel;

use std::ops::Range;

use elinvar_core::{HostArguments, Result};

use self::panel::{BLOCK, GROUP, Panel, Products, Rows};
use super::{AT, Params};
use crate::{
    attention::{
        cpu::{
            mask::{Mask, finish},
            target,
        },
        scoring::{NO_MASK, ScoreParams},
    },
    math,
    matmul::{
        self,
        cpu::{
            level::Level,
            operand::{Target, Values},
        },
    },
    order,
    parallel::{Shared, for_each},
    simd,
};

/// Rows of a task where there are few, and where there are enough.
const FEW_ROWS: usize = 16;
const ROWS: usize = 64;

/// Tasks for each thread: enough to balance.
const TASKS: usize = 8;

struct Launch<'a> {
    p: Params,
    level: Level,
    q: Values<'a>,
    k: Values<'a>,
    v: Values<'a>,
    y: Values<'a>,
    dy: Values<'a>,
    mask: Mask<'a>,
    positions: Option<&'a [i32]>,
    lengths: Option<&'a [i32]>,
}

/// What a query's row of scores comes to.
#[derive(Clone, Copy, Default)]
struct Statistics {
    max: f32,
    scale: f32,
    product: f32,
}

/// Rows of a task, of `rows` of each of `heads` heads.
fn rows_of_task(heads: usize, rows: usize) -> usize {
    if heads * rows.div_ceil(ROWS) >= TASKS * rayon::current_num_threads() { ROWS } else { FEW_ROWS }
}

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let p: Params = arguments.params()?;
    let [q, k] = p.score.types;
    let launch = Launch {
        level: Level::best(),
        q: matmul::values(arguments, AT.q, q)?,
        k: matmul::values(arguments, AT.k, k)?,
        v: matmul::values(arguments, AT.v, k)?,
        y: matmul::values(arguments, AT.y, q)?,
        dy: matmul::values(arguments, AT.dy, q)?,
        mask: Mask::bound(arguments, AT.mask, &p.score)?,
        positions: arguments.optional(AT.positions)?,
        lengths: arguments.optional(AT.lengths)?,
        p,
    };
    let s = &p.score;
    let [heads, kv_heads] = [s.heads, s.kv_heads].map(|heads| (s.batch * heads) as usize);
    let [queries, keys, width, value_width] = [s.queries, s.keys, s.width, p.value_width].map(|extent| extent as usize);
    let dq = target(arguments, AT.dq, q, [heads * queries, width])?;
    let dk = target(arguments, AT.dk, k, [kv_heads * keys, width])?;
    let dv = target(arguments, AT.dv, k, [kv_heads * keys, value_width])?;
    let mut statistics = vec![Statistics::default(); heads * queries];
    let shared = Shared::new(&mut statistics);
    let rows = rows_of_task(heads, queries);
    let tasks = queries.div_ceil(rows);
    for_each(heads * tasks, rows * keys * (width + value_width), |task| {
        let (head, first) = (task / tasks, task % tasks * rows);
        // SAFETY: these rows' statistics belong to this task.
        let own = unsafe { shared.part(head * queries + first, rows.min(queries - first)) };
        launch.queries([head / s.heads as usize, head % s.heads as usize, first], own, &dq);
    });
    let rows = rows_of_task(kv_heads, keys);
    let tasks = keys.div_ceil(rows);
    for_each(kv_heads * tasks, rows * queries * launch.p.score.group() * (width + value_width), |task| {
        let (head, first) = (task / tasks, task % tasks * rows);
        let count = rows.min(keys - first);
        launch.keys([head / s.kv_heads as usize, head % s.kv_heads as usize, first], count, &statistics, [&dk, &dv]);
    });
    Ok(())
}

simd! {
    /// Adds to `total` the sum of the rows times these factors, but for those without a weight.
    fn add_row(weights: &[f32], factors: &[f32], rows: &[f32], part: &mut [f32], total: &mut [f32]) {
        part.fill(0.0);
        for ((weight, factor), row) in weights.iter().zip(factors).zip(rows.chunks(total.len())) {
            if *weight != 0.0 {
                for (part, x) in part.iter_mut().zip(row) {
                    *part = factor.mul_add(*x, *part);
                }
            }
        }
        for (total, part) in total.iter_mut().zip(&*part) {
            *total += part;
        }
    }
}

simd! {
    fn exponentials(differences: &mut [f32; BLOCK]) {
        for difference in differences {
            *difference = math::exp_nonpositive(*difference);
        }
    }
}

simd! {
    /// Scores of a query's dot products with the keys from `first` on: see [`finish`].
    fn score(p: &ScoreParams, mask: Mask<'_>, place: [usize; 3], first: usize, attended: Range<usize>, scores: &mut [f32; BLOCK]) {
        finish(p, mask, place, first, attended, scores);
    }
}

simd! {
    /// Scores of a key's dot products with queries, without the mask: all but those that attend it become −∞.
    fn score_key(p: &ScoreParams, key: i64, attended: &[[i64; BLOCK]; 2], scores: &mut [f32; BLOCK]) {
        let [starts, ends] = attended;
        for score in scores.iter_mut() {
            *score *= p.scale;
        }
        if p.softcap > 0.0 {
            for score in scores.iter_mut() {
                *score = p.softcap * math::tanh(*score / p.softcap);
            }
        }
        for ((score, start), end) in scores.iter_mut().zip(starts).zip(ends) {
            *score = if *start <= key && key < *end { *score } else { f32::NEG_INFINITY };
        }
    }
}

simd! {
    /// The derivative of scores by their dot products.
    fn slopes(p: &ScoreParams, dots: &[f32; BLOCK], slopes: &mut [f32; BLOCK]) {
        if p.softcap > 0.0 {
            for (slope, dot) in slopes.iter_mut().zip(dots) {
                let capped = math::tanh((dot * p.scale) / p.softcap);
                *slope = (-capped).mul_add(capped, 1.0) * p.scale;
            }
        } else {
            slopes.fill(p.scale);
        }
    }
}

simd! {
    /// Makes the weights of scores, and of products of gradients and values the gradients of dot products. Scores of −∞ have no weight.
    fn weigh(scores: &mut [f32; BLOCK], products: &mut [f32; BLOCK], slopes: &[f32; BLOCK], max: &[f32; BLOCK], rest: [&[f32; BLOCK]; 2]) {
        let [scale, product] = rest;
        for j in 0..BLOCK {
            let weight = math::exp_nonpositive(scores[j] - max[j]) * scale[j];
            let weight = if scores[j] == f32::NEG_INFINITY { 0.0 } else { weight };
            let gradient = weight * (products[j] - product[j]) * slopes[j];
            scores[j] = weight;
            products[j] = if weight == 0.0 { 0.0 } else { gradient };
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum))
}

/// The numbers of row `index`, one for each row of a panel.
fn lanes(values: &mut [f32], index: usize) -> &mut [f32; BLOCK] {
    &mut values.as_chunks_mut().0[index]
}

/// The part of a range that lies in the panel from `block` on, counted from there.
fn within(range: &Range<usize>, block: usize) -> Range<usize> {
    let place = |at: usize| at.clamp(block, block + BLOCK) - block;
    place(range.start)..place(range.end.max(range.start))
}

/// The rows of a panel that any of these ranges has.
fn hull(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    ranges.filter(|range| !range.is_empty()).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

/// Numbers of pairs of a task's rows and a panel's: dot products, which become scores and weights, and products of gradients and values, which become
/// gradients of dot products.
struct Pairs {
    weights: Vec<f32>,
    factors: Vec<f32>,
}

impl Pairs {
    fn new(rows: usize) -> Self {
        let zeros = vec![0.0; rows.next_multiple_of(GROUP) * BLOCK];
        Self { weights: zeros.clone(), factors: zeros }
    }
}

impl Launch<'_> {
    /// The dot products of rows with those of a panel.
    fn dots(&self, rows: &Rows, panel: &Panel, out: &mut [f32]) {
        let (a_stride, terms) = (rows.stride, 0..rows.width);
        self.level.run(Products { a: &rows.values, a_stride, b: &panel.transposed, b_stride: BLOCK, terms, out, columns: BLOCK, added: false });
    }

    /// Adds to `totals` the sums of the panel's rows times these factors, but for those without a weight.
    fn add(&self, [weights, factors]: [&[f32]; 2], panel: &Panel, terms: Range<usize>, totals: &mut Rows) {
        let (b, b_stride, columns) = (&panel.rows.values[..], panel.rows.stride, totals.stride);
        if panel.is_finite() {
            let out = &mut totals.values[..];
            return self.level.run(Products { a: factors, a_stride: BLOCK, b, b_stride, terms, out, columns, added: true });
        }
        let mut part = vec![0.0; columns];
        for ((weights, factors), total) in weights.chunks(BLOCK).zip(factors.chunks(BLOCK)).zip(totals.values.chunks_mut(columns)) {
            add_row(weights, factors, b, &mut part, total);
        }
    }

    fn queries(&self, [b, h, first]: [usize; 3], statistics: &mut [Statistics], dq: &Target<'_>) {
        let (s, count) = (&self.p.score, statistics.len());
        let (width, value_width, kv_head) = (s.width as usize, self.p.value_width as usize, h / s.group());
        let attended: Vec<_> = (first..first + count).map(|t| s.attended(b, t, self.positions, self.lengths)).collect();
        let some = || attended.iter().filter(|keys| keys.start < keys.end);
        let keys = some().map(|keys| keys.start).min().unwrap_or(0) / BLOCK * BLOCK..some().map(|keys| keys.end).max().unwrap_or(0);
        let (mut k, mut v) = (Panel::new(width), Panel::new(value_width));
        let [mut queries, mut totals] = [Rows::new(count, width), Rows::new(count, width)];
        let [mut gradients, mut output] = [Rows::new(count, value_width), Rows::new(1, value_width)];
        (0..count).for_each(|i| queries.load(i, self.q, s.q.at(b, h, first + i)));
        let mut pairs = Pairs::new(count);
        let places = |block: usize| block..(block + BLOCK).min(keys.end);
        for row in &mut *statistics {
            *row = Statistics { max: f32::NEG_INFINITY, scale: 0.0, product: 0.0 };
        }
        for block in keys.clone().step_by(BLOCK) {
            k.load(self.level, self.k, places(block).map(|key| s.k.at(b, kv_head, key)));
            self.dots(&queries, &k, &mut pairs.weights);
            for (i, row) in statistics.iter_mut().enumerate() {
                let within = within(&attended[i], block);
                if within.is_empty() {
                    continue;
                }
                let scores = lanes(&mut pairs.weights, i);
                score(s, self.mask, [b, h, first + i], block, within, scores);
                let max = order::combine_lanes(scores, order::max);
                if max == f32::NEG_INFINITY {
                    continue;
                }
                scores.iter_mut().for_each(|score| *score -= max);
                exponentials(scores);
                let sum = order::combine_lanes(scores, order::add);
                let larger = order::max(row.max, max);
                row.scale = row.scale.mul_add(math::exp_nonpositive(row.max - larger), sum * math::exp_nonpositive(max - larger));
                row.max = larger;
            }
        }
        for (i, row) in statistics.iter_mut().enumerate() {
            let at = self.p.y.at(b, h, first + i);
            gradients.load(i, self.dy, at);
            output.load(0, self.y, at);
            row.scale = if row.max == f32::NEG_INFINITY { 0.0 } else { 1.0 / row.scale };
            row.product = dot(gradients.row(i), output.row(0));
        }
        let mut slope = [s.scale; BLOCK];
        for block in keys.clone().step_by(BLOCK) {
            k.load(self.level, self.k, places(block).map(|key| s.k.at(b, kv_head, key)));
            v.load(self.level, self.v, places(block).map(|key| self.p.v.at(b, kv_head, key)));
            self.dots(&queries, &k, &mut pairs.weights);
            self.dots(&gradients, &v, &mut pairs.factors);
            for (i, row) in statistics.iter().enumerate() {
                let (scores, products) = (lanes(&mut pairs.weights, i), lanes(&mut pairs.factors, i));
                slopes(s, scores, &mut slope);
                score(s, self.mask, [b, h, first + i], block, within(&attended[i], block), scores);
                weigh(scores, products, &slope, &[row.max; BLOCK], [&[row.scale; BLOCK], &[row.product; BLOCK]]);
            }
            let terms = hull(attended.iter().map(|keys| within(keys, block)));
            self.add([&pairs.weights, &pairs.factors], &k, terms, &mut totals);
        }
        for i in 0..count {
            // SAFETY: these rows belong to this task.
            unsafe { dq.store((b * s.heads as usize + h) * s.queries as usize + first + i, 0, totals.row(i)) };
        }
    }

    fn keys(&self, [b, kv_head, first]: [usize; 3], count: usize, statistics: &[Statistics], [dk, dv]: [&Target<'_>; 2]) {
        let s = &self.p.score;
        let (width, value_width, queries) = (s.width as usize, self.p.value_width as usize, s.queries as usize);
        let [mut own, mut keys] = [Rows::new(count, width), Rows::new(count, width)];
        let [mut own_values, mut values] = [Rows::new(count, value_width), Rows::new(count, value_width)];
        for i in 0..count {
            own.load(i, self.k, s.k.at(b, kv_head, first + i));
            own_values.load(i, self.v, self.p.v.at(b, kv_head, first + i));
        }
        let (mut q, mut dy) = (Panel::new(width), Panel::new(value_width));
        let mut pairs = Pairs::new(count);
        let mut slope = [s.scale; BLOCK];
        for h in kv_head * s.group()..(kv_head + 1) * s.group() {
            for block in (0..queries).step_by(BLOCK) {
                let tokens = block..(block + BLOCK).min(queries);
                let mut attended = [[0; BLOCK]; 2];
                let [mut max, mut scale, mut product] = [[0.0; BLOCK]; 3];
                let mut terms = 0..0;
                for (j, t) in tokens.clone().enumerate() {
                    let keys = s.attended(b, t, self.positions, self.lengths);
                    if keys.start < (first + count).min(keys.end) && keys.end > first {
                        [attended[0][j], attended[1][j]] = [keys.start as i64, keys.end as i64];
                        let row = &statistics[(b * s.heads as usize + h) * queries + t];
                        (max[j], scale[j], product[j]) = (row.max, row.scale, row.product);
                        terms = hull([terms, j..j + 1].into_iter());
                    }
                }
                if terms.is_empty() {
                    continue;
                }
                q.load(self.level, self.q, tokens.clone().map(|t| s.q.at(b, h, t)));
                dy.load(self.level, self.dy, tokens.clone().map(|t| self.p.y.at(b, h, t)));
                self.dots(&own, &q, &mut pairs.weights);
                self.dots(&own_values, &dy, &mut pairs.factors);
                for i in 0..count {
                    let (scores, products) = (lanes(&mut pairs.weights, i), lanes(&mut pairs.factors, i));
                    slopes(s, scores, &mut slope);
                    score_key(s, (first + i) as i64, &attended, scores);
                    if s.mask_type != NO_MASK {
                        let key = (first + i) as i64 * s.mask.key;
                        for (score, t) in scores.iter_mut().zip(tokens.clone()).filter(|(score, _)| **score != f32::NEG_INFINITY) {
                            self.mask.apply((s.mask.view.at(b, h, t) as i64 + key) as usize, s.mask.key, std::slice::from_mut(score));
                        }
                    }
                    weigh(scores, products, &slope, &max, [&scale, &product]);
                }
                self.add([&pairs.weights, &pairs.factors], &q, terms.clone(), &mut keys);
                self.add([&pairs.weights, &pairs.weights], &dy, terms, &mut values);
            }
        }
        for i in 0..count {
            let row = (b * s.kv_heads as usize + kv_head) * s.keys as usize + first + i;
            // SAFETY: these rows belong to this task.
            unsafe {
                dk.store(row, 0, keys.row(i));
                dv.store(row, 0, values.row(i));
            }
        }
    }
}
