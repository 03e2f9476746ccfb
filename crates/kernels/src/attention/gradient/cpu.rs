//! The CPU kernel: tasks of a few queries, then of a few keys, that share panels of 32 transposed rows, one dot product in each lane.

use elinvar_core::{HostArguments, Result};

use super::{AT, Params};
use crate::{
    attention::{
        cpu::{mask::Mask, target},
        scoring::View,
    },
    float::Float,
    math,
    matmul::{
        self,
        cpu::operand::{Target, Values, with_values},
    },
    order,
    parallel::{Shared, for_each},
    simd,
};

const BLOCK: usize = 32;

/// Rows of a task.
const ROWS: usize = 16;

struct Launch<'a> {
    p: Params,
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

pub(super) fn run(arguments: &mut HostArguments<'_>) -> Result<()> {
    let p: Params = arguments.params()?;
    let [q, k] = p.score.types;
    let launch = Launch {
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
    let tasks = |rows: usize| rows.div_ceil(ROWS);
    for_each(heads * tasks(queries), ROWS * keys * (width + value_width), |task| {
        let (head, first) = (task / tasks(queries), task % tasks(queries) * ROWS);
        // SAFETY: these rows' statistics belong to this task.
        let own = unsafe { shared.part(head * queries + first, ROWS.min(queries - first)) };
        launch.queries([head / s.heads as usize, head % s.heads as usize, first], own, &dq);
    });
    for_each(kv_heads * tasks(keys), ROWS * queries * launch.p.score.group() * (width + value_width), |task| {
        let (head, first) = (task / tasks(keys), task % tasks(keys) * ROWS);
        launch.keys([head / s.kv_heads as usize, head % s.kv_heads as usize, first], &statistics, [&dk, &dv]);
    });
    Ok(())
}

/// Rows widened, and a panel of them: element `e` of row `i` at `32 e + i`.
struct Panel {
    rows: Vec<f32>,
    transposed: Vec<f32>,
    width: usize,
}

impl Panel {
    fn new(width: usize) -> Self {
        Self { rows: vec![0.0; BLOCK * width], transposed: vec![0.0; BLOCK * width], width }
    }

    fn load(&mut self, values: Values<'_>, view: &View, [batch, head]: [usize; 2], tokens: std::ops::Range<usize>) {
        for (i, token) in tokens.enumerate() {
            let row = &mut self.rows[i * self.width..][..self.width];
            widen(values, view.at(batch, head, token), row);
            row.iter().enumerate().for_each(|(e, x)| self.transposed[BLOCK * e + i] = *x);
        }
    }

    fn row(&self, index: usize) -> &[f32] {
        &self.rows[index * self.width..][..self.width]
    }

    /// The dot products of a row with those of the panel.
    fn dots(&self, row: &[f32]) -> [f32; BLOCK] {
        let mut sums = [0.0; BLOCK];
        dots(row, &self.transposed, &mut sums);
        sums
    }
}

fn widen(values: Values<'_>, start: usize, row: &mut [f32]) {
    if !row.is_empty() {
        with_values!(values, |values| row.iter_mut().zip(&values[start..]).for_each(|(to, from)| *to = from.to_f32()));
    }
}

simd! {
    fn dots(row: &[f32], panel: &[f32], sums: &mut [f32; BLOCK]) {
        let mut lanes = *sums;
        for (x, column) in row.iter().zip(panel.as_chunks::<BLOCK>().0) {
            for (lane, y) in lanes.iter_mut().zip(column) {
                *lane = x.mul_add(*y, *lane);
            }
        }
        *sums = lanes;
    }
}

simd! {
    /// Adds to `total` the sum of the rows times these factors, but for those without a weight.
    fn add_block(weights: &[f32; BLOCK], factors: &[f32; BLOCK], rows: &[f32], part: &mut [f32], total: &mut [f32]) {
        part.fill(0.0);
        for (i, factor) in factors.iter().enumerate() {
            if weights[i] != 0.0 {
                for (part, x) in part.iter_mut().zip(&rows[i * total.len()..]) {
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

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum))
}

impl Launch<'_> {
    /// The score of a dot product with a key that query `t` attends, and its derivative.
    fn score(&self, dot: f32, [b, h, t]: [usize; 3], key: usize) -> (f32, f32) {
        let s = &self.p.score;
        let (mut score, mut slope) = (dot * s.scale, s.scale);
        if s.softcap > 0.0 {
            let capped = math::tanh(score / s.softcap);
            (score, slope) = (s.softcap * capped, (-capped).mul_add(capped, 1.0) * s.scale);
        }
        let mut scores = [score];
        self.mask.apply((s.mask.view.at(b, h, t) as i64 + key as i64 * s.mask.key) as usize, s.mask.key, &mut scores);
        (scores[0], slope)
    }

    fn queries(&self, [b, h, first]: [usize; 3], statistics: &mut [Statistics], dq: &Target<'_>) {
        let s = &self.p.score;
        let (width, value_width, kv_head) = (s.width as usize, self.p.value_width as usize, h / s.group());
        let attended: Vec<_> = (first..first + statistics.len()).map(|t| s.attended(b, t, self.positions, self.lengths)).collect();
        let some = || attended.iter().filter(|keys| keys.start < keys.end);
        let keys = some().map(|keys| keys.start).min().unwrap_or(0) / BLOCK * BLOCK..some().map(|keys| keys.end).max().unwrap_or(0);
        let (mut k, mut v) = (Panel::new(width), Panel::new(value_width));
        let mut queries = vec![0.0; statistics.len() * width];
        queries.chunks_mut(width).enumerate().for_each(|(i, query)| widen(self.q, s.q.at(b, h, first + i), query));
        let block_of = |block: usize| block..(block + BLOCK).min(keys.end);
        for row in &mut *statistics {
            *row = Statistics { max: f32::NEG_INFINITY, scale: 0.0, product: 0.0 };
        }
        for block in keys.clone().step_by(BLOCK) {
            k.load(self.k, &s.k, [b, kv_head], block_of(block));
            for (i, row) in statistics.iter_mut().enumerate().filter(|(i, _)| overlaps(&attended[*i], block)) {
                let dots = k.dots(&queries[i * width..][..width]);
                let scores: [f32; BLOCK] = std::array::from_fn(|j| {
                    let key = block + j;
                    if attended[i].contains(&key) { self.score(dots[j], [b, h, first + i], key).0 } else { f32::NEG_INFINITY }
                });
                let max = order::combine_lanes(&scores, order::max);
                if max == f32::NEG_INFINITY {
                    continue;
                }
                let mut weights = scores.map(|score| score - max);
                exponentials(&mut weights);
                let sum = order::combine_lanes(&weights, order::add);
                let larger = order::max(row.max, max);
                row.scale = row.scale.mul_add(math::exp_nonpositive(row.max - larger), sum * math::exp_nonpositive(max - larger));
                row.max = larger;
            }
        }
        let mut gradients = vec![0.0; statistics.len() * value_width];
        let mut output = vec![0.0; value_width];
        for (i, row) in statistics.iter_mut().enumerate() {
            let gradient = &mut gradients[i * value_width..][..value_width];
            let at = self.p.y.at(b, h, first + i);
            widen(self.dy, at, gradient);
            widen(self.y, at, &mut output);
            row.scale = if row.max == f32::NEG_INFINITY { 0.0 } else { 1.0 / row.scale };
            row.product = dot(gradient, &output);
        }
        let (mut totals, mut part) = (vec![0.0; statistics.len() * width], vec![0.0; width]);
        for block in keys.clone().step_by(BLOCK) {
            k.load(self.k, &s.k, [b, kv_head], block_of(block));
            v.load(self.v, &self.p.v, [b, kv_head], block_of(block));
            for (i, row) in statistics.iter().enumerate().filter(|(i, _)| overlaps(&attended[*i], block)) {
                let (dots, products) = (k.dots(&queries[i * width..][..width]), v.dots(&gradients[i * value_width..][..value_width]));
                let mut pairs = Pairs::default();
                for j in (0..BLOCK).filter(|j| attended[i].contains(&(block + j))) {
                    pairs.add(j, self.score(dots[j], [b, h, first + i], block + j), row, products[j]);
                }
                let [weights, factors] = pairs.parts();
                add_block(&weights, &factors, &k.rows, &mut part, &mut totals[i * width..][..width]);
            }
        }
        for (i, total) in totals.chunks_mut(width).enumerate() {
            // SAFETY: these rows belong to this task.
            unsafe { dq.store((b * s.heads as usize + h) * s.queries as usize + first + i, 0, total) };
        }
    }

    fn keys(&self, [b, kv_head, first]: [usize; 3], statistics: &[Statistics], [dk, dv]: [&Target<'_>; 2]) {
        let s = &self.p.score;
        let (width, value_width, queries) = (s.width as usize, self.p.value_width as usize, s.queries as usize);
        let count = ROWS.min(s.keys as usize - first);
        let (mut own, mut own_values) = (Panel::new(width), Panel::new(value_width));
        own.load(self.k, &s.k, [b, kv_head], first..first + count);
        own_values.load(self.v, &self.p.v, [b, kv_head], first..first + count);
        let (mut q, mut dy) = (Panel::new(width), Panel::new(value_width));
        let [mut keys, mut values] = [vec![0.0; count * width], vec![0.0; count * value_width]];
        let (mut key_part, mut value_part) = (vec![0.0; width], vec![0.0; value_width]);
        for h in kv_head * s.group()..(kv_head + 1) * s.group() {
            for block in (0..queries).step_by(BLOCK) {
                let tokens = block..(block + BLOCK).min(queries);
                let attended: Vec<_> = tokens.clone().map(|t| s.attended(b, t, self.positions, self.lengths)).collect();
                if !attended.iter().any(|keys| keys.start < first + count && keys.end > first) {
                    continue;
                }
                q.load(self.q, &s.q, [b, h], tokens.clone());
                dy.load(self.dy, &self.p.y, [b, h], tokens);
                for i in (0..count).filter(|i| attended.iter().any(|keys| keys.contains(&(first + i)))) {
                    let (dots, products) = (q.dots(own.row(i)), dy.dots(own_values.row(i)));
                    let mut pairs = Pairs::default();
                    for j in (0..attended.len()).filter(|&j| attended[j].contains(&(first + i))) {
                        let row = &statistics[(b * s.heads as usize + h) * queries + block + j];
                        pairs.add(j, self.score(dots[j], [b, h, block + j], first + i), row, products[j]);
                    }
                    let [weights, factors] = pairs.parts();
                    add_block(&weights, &factors, &q.rows, &mut key_part, &mut keys[i * width..][..width]);
                    add_block(&weights, &weights, &dy.rows, &mut value_part, &mut values[i * value_width..][..value_width]);
                }
            }
        }
        for i in 0..count {
            let row = (b * s.kv_heads as usize + kv_head) * s.keys as usize + first + i;
            // SAFETY: these rows belong to this task.
            unsafe {
                dk.store(row, 0, &mut keys[i * width..][..width]);
                dv.store(row, 0, &mut values[i * value_width..][..value_width]);
            }
        }
    }
}

fn overlaps(keys: &std::ops::Range<usize>, block: usize) -> bool {
    keys.start < block + BLOCK && keys.end > block && keys.start < keys.end
}

/// Of a row and the panel: what the pairs' weights and the gradients of their dot products are made of. Those that are not attended have no weight.
struct Pairs {
    /// Scores less the greatest of their query.
    scores: [f32; BLOCK],
    scales: [f32; BLOCK],
    /// Dot products of gradient and value, less those of gradient and output.
    products: [f32; BLOCK],
    slopes: [f32; BLOCK],
}

impl Default for Pairs {
    fn default() -> Self {
        Self { scores: [f32::NEG_INFINITY; BLOCK], scales: [0.0; BLOCK], products: [0.0; BLOCK], slopes: [0.0; BLOCK] }
    }
}

impl Pairs {
    fn add(&mut self, j: usize, (score, slope): (f32, f32), row: &Statistics, product: f32) {
        if score != f32::NEG_INFINITY {
            (self.scores[j], self.scales[j]) = (score - row.max, row.scale);
            (self.products[j], self.slopes[j]) = (product - row.product, slope);
        }
    }

    /// Weights, and gradients of dot products.
    fn parts(mut self) -> [[f32; BLOCK]; 2] {
        exponentials(&mut self.scores);
        let weights: [f32; BLOCK] = std::array::from_fn(|j| self.scores[j] * self.scales[j]);
        let gradient = |j: usize| if weights[j] == 0.0 { 0.0 } else { weights[j] * self.products[j] * self.slopes[j] };
        [weights, std::array::from_fn(gradient)]
    }
}
