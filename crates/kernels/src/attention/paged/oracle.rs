//! The naive reference, in f64, and the cases.

use elinvar_core::DType;

use super::{PagedAttention, operands::AT};
use crate::{
    Precision,
    attention::{
        oracle::{Dims, PACKED, PAIRS, bound_of, cache as stored, elements, probabilities, scores, tokens_first, weighted_sum},
        scoring::Scoring,
    },
    conformance::case::{Case, HostTensor},
};

/// Sequences with these positions of their queries, over a cache of more pages than they have.
fn case(operator: PagedAttention, d: Dims, [q, kv]: [DType; 2], positions: &[i32]) -> Case {
    let page = operator.page as usize;
    let (entries, spare) = (d.keys / page, 3);
    let pages = d.batch * entries + spare;
    let places = |b: usize| (0..d.queries).map(move |t| positions[if positions.len() == d.queries { t } else { b * d.queries + t }]);
    let used = |b: usize| places(b).map(|position| position + 1).max().unwrap_or(0) as usize;
    let gone = |b: usize| places(b).map(|p| operator.left_window.map_or(0, |left| (i64::from(p) - left as i64).max(0))).min().unwrap_or(0) as usize;
    // Sequences have their first page in common, and the others here and there. What is beyond the last key, or before the first, has no page.
    let place = |b: usize, entry: usize| if entry == 0 { 1 } else { (spare + (b * entries + entry) * 7 % (d.batch * entries)) % pages };
    let unknown = |b: usize, entry: usize| if (b + entry).is_multiple_of(2) { -1 } else { pages as i32 };
    let is_used = |b: usize, entry: usize| entry * page < used(b) && gone(b) < (entry + 1) * page;
    let entry = |b: usize, entry: usize| if is_used(b, entry) { place(b, entry) as i32 } else { unknown(b, entry) };
    let table: Vec<i32> = (0..d.batch).flat_map(|b| (0..entries).map(move |at| (b, at))).map(|(b, at)| entry(b, at)).collect();
    let cache = |width: usize, seed: u64| stored(kv, &[d.kv_heads, pages * page, width], seed);
    let (k, v) = (cache(d.width, 91), cache(d.value_width, 92));
    let dims = [&k, &v].map(|tensor| tensor.dims().to_vec());
    let positions = match positions.len() == d.queries {
        true => HostTensor::new(&[d.queries], positions),
        false => HostTensor::new(&[d.batch, d.queries], positions),
    };
    let inputs = [
        Some(HostTensor::random(q, &[d.batch, d.heads, d.queries, d.width], -1.0, 1.0, 93)),
        Some(k),
        Some(v),
        Some(HostTensor::new(&[d.batch, entries], &table)),
        Some(positions),
    ];
    let PagedAttention { scale, softcap, left_window, .. } = operator;
    let scoring = Scoring { scale, softcap, left_window, causal: true, ..Scoring::default() };
    let coarsest = if operator.output == Some(DType::BF16) { DType::BF16 } else { kv };
    Case::new(operator, inputs, bound_of(operator.precision, Some(coarsest), d, &scoring), move |inputs| {
        // The keys of each sequence in one piece; zeros where there is no page.
        let gathered = |index: usize, width: usize| -> Vec<f64> {
            let all = elements(kv, &dims[index - AT.k], &inputs[index]);
            let mut gathered = Vec::new();
            for (b, h) in (0..d.batch).flat_map(|b| (0..d.kv_heads).map(move |h| (b, h))) {
                for &entry in &inputs[AT.table][b * entries..][..entries] {
                    let page_of = |entry: f64| &all[(h * pages + entry as usize) * page * width..][..page * width];
                    match (0.0..pages as f64).contains(&entry) {
                        true => gathered.extend_from_slice(page_of(entry)),
                        false => gathered.extend(vec![0.0; page * width]),
                    }
                }
            }
            gathered
        };
        let (keys, values) = (gathered(AT.k, d.width), gathered(AT.v, d.value_width));
        let rest = [vec![], inputs[AT.positions].clone(), vec![]];
        let scores = scores(&scoring, d, &[], &inputs[AT.q], &keys, &rest);
        vec![tokens_first(d, &weighted_sum(d, &probabilities(&scores, d.keys), &values))]
    })
    .with_packed_caches()
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = PagedAttention::default();
    let mut cases = Vec::new();
    for (i, types) in PAIRS.into_iter().chain([PACKED]).enumerate() {
        cases.push(case(plain, Dims { batch: 2, ..Dims::new(2, 1, 2, 64, 32) }, types, &[33, 34, 5, 6]));
        // One token of several sequences: the first, the last of a page and of a block, one that attends nothing, the last of the table.
        let d = Dims { batch: 6, ..Dims::new(8, 2, 1, 320, 64) };
        cases.push(case(plain, d, types, &[0, 31, 255, -1, 256, 319]));
        // Parts of prompts.
        let d = Dims { batch: 2, ..Dims::new(4, 2, 33, 288, 32 << (i % 3)) };
        let positions: Vec<i32> = (200..233).chain((0..33).map(|t| if t < 20 { t } else { -1 })).collect();
        cases.push(case(plain, d, types, &positions));
    }
    // So many rows that no keys are split, longer pages, and odd widths.
    let wide = PagedAttention { page: 64, ..plain };
    let d = Dims { batch: 3, value_width: 37, ..Dims::new(6, 6, 40, 576, 24) };
    cases.push(case(wide, d, PAIRS[1], &(500..540).collect::<Vec<_>>()));
    cases.push(case(wide, Dims { batch: 5, ..Dims::new(16, 16, 1, 576, 16) }, PAIRS[4], &[575, 0, 64, 300, 511]));
    cases.push(case(plain, Dims { batch: 2, ..Dims::new(4, 1, 1, 96, 300) }, PAIRS[0], &[95, 40]));
    // On tensor cores: a second tile of queries and more blocks of keys than one, longer pages, a window, queries that attend nothing, and sequences side by side.
    let fast = PagedAttention { precision: Precision::Fast, ..plain };
    for types in &PAIRS[1..] {
        cases.push(case(
            fast,
            Dims { batch: 2, ..Dims::new(4, 2, 135, 320, 64) },
            *types,
            &(0..270).map(|i| if i < 135 { 160 + i } else { i - 140 }).collect::<Vec<_>>(),
        ));
        cases.push(case(PagedAttention { page: 64, ..fast }, Dims::new(2, 1, 70, 192, 128), *types, &(80..150).collect::<Vec<_>>()));
        let invariant = PagedAttention { precision: Precision::Invariant, ..plain };
        for operator in [fast, invariant] {
            cases.push(case(operator, Dims { batch: 6, ..Dims::new(8, 2, 1, 320, 64) }, *types, &[0, 31, 255, -1, 256, 319]));
        }
        cases.push(case(PagedAttention { page: 64, ..invariant }, Dims::new(2, 1, 70, 192, 128), *types, &(80..150).collect::<Vec<_>>()));
        // Results of another type.
        for (operator, queries) in [(fast, 70), (invariant, 70), (invariant, 3)] {
            let (operator, positions): (_, Vec<_>) = (PagedAttention { output: Some(DType::BF16), ..operator }, (80..80 + queries).collect());
            cases.push(case(operator, Dims::new(2, 1, queries as usize, 192, 128), *types, &positions));
        }
    }
    let window = PagedAttention { left_window: Some(40), ..fast };
    cases.push(case(window, Dims::new(4, 1, 130, 576, 64), PAIRS[4], &(420..550).collect::<Vec<_>>()));
    // Windows before whose keys there are no pages, one of which begins with a page; and a soft cap.
    let window = PagedAttention { left_window: Some(40), softcap: 0.7, scale: Some(0.5), ..plain };
    cases.push(case(window, Dims { batch: 4, ..Dims::new(4, 2, 1, 320, 32) }, PAIRS[2], &[300, 20, 100, 104]));
    cases
}
