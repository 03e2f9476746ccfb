use elinvar_core::DType;

use super::{Bound, Case, HostTensor};
use crate::{
    Operator, Precision,
    attention::{
        decode::DecodeAttention,
        paged::{PagedAttention, decode::PagedDecodeAttention},
    },
    gather::{Gather, GatherElements, GatherNd},
    kv_append::KvAppend,
    rope::RotaryEmbedding,
    rope_append::RopeAppend,
    sample::{Sample, Settings},
    sample_argmax::SampleArgmax,
    scatter::{Reduction, ScatterElements, ScatterNd},
};

/// Inputs that every device must reject: index or position number 1 names the entry after the last, or one long before the first; logits are no numbers.
pub fn rejected() -> Vec<Case> {
    let indices = [1i32, i32::MIN].into_iter().flat_map(with_index);
    let logits = [[1.0, f32::INFINITY], [f32::NAN, 1.0], [f32::NEG_INFINITY; 2]].into_iter().flat_map(with_logits);
    indices.chain(logits).collect()
}

fn case(operator: impl Operator + 'static, inputs: impl Into<Vec<Option<HostTensor>>>) -> Case {
    Case::new(operator, inputs, Bound::EXACT, |_| Vec::new())
}

fn values(dims: &[usize]) -> Option<HostTensor> {
    Some(HostTensor::new(dims, &vec![1.0f32; dims.iter().product()]))
}

/// Zeros, but for number 1.
fn indices(dims: &[usize], first: i32) -> Option<HostTensor> {
    let mut all = vec![0; dims.iter().product()];
    all[1] = first;
    Some(HostTensor::new(dims, &all))
}

/// Cases whose index is `beyond` from the last entry.
fn with_index(beyond: i32) -> Vec<Case> {
    let (x, at, reduction) = (|| values(&[2, 4, 3]), 3i32.saturating_add(beyond), Reduction::Add);
    let (cache, rows, token) = (|| values(&[2, 4, 8]), || values(&[2, 2, 8]), || indices(&[2], at));
    let halves = |dims: &[usize]| Some(HostTensor::from_f64(DType::F16, dims, &vec![1.0; dims.iter().product()]));
    let decode = |precision: Precision, keys: usize, width: usize| {
        let (cache, row, at) = (|| halves(&[2, keys, width]), || halves(&[1, 2, width]), (keys as i32 - 1).saturating_add(beyond));
        let inputs = [cache(), row(), Some(HostTensor::new(&[1], &[at])), values(&[width / 2]), cache(), row(), halves(&[1, 4, width])];
        case(DecodeAttention { precision, ..DecodeAttention::default() }, inputs).updating(0).updating(4)
    };
    let table = |entries: usize| {
        let table: Vec<i32> = (0..entries as i32).map(|entry| if entry == 1 { 2i32.saturating_add(beyond) } else { 0 }).collect();
        Some(HostTensor::new(&[1, entries], &table))
    };
    // Two texts, the second of which goes to `slot` and has a page of `entry` before its own.
    let decode_paged = |slot: i32, entry: i32| {
        let (cache, rows) = (|| halves(&[2, 128, 64]), |heads: usize| halves(&[2, heads, 64]));
        let integers = |dims: &[usize], values: &[i32]| Some(HostTensor::new(dims, values));
        let (positions, slots) = (integers(&[2], &[3, 40]), integers(&[2], &[3, slot]));
        let inputs = [cache(), rows(2), positions, values(&[32]), cache(), rows(2), rows(4), slots, integers(&[2, 2], &[0, 0, entry, 2])];
        let operator = PagedDecodeAttention { precision: Precision::Invariant, ..PagedDecodeAttention::default() };
        case(operator, inputs).updating(0).updating(4)
    };
    let place = |queries: usize| Some(HostTensor::new(&[queries], &vec![40i32; queries]));
    let pages = |entries: usize| {
        let cache = || values(&[2, 96, 8]);
        case(PagedAttention::default(), [values(&[1, 4, 1, 8]), cache(), cache(), table(entries), place(1)])
    };
    let many = {
        let (cache, operator) = (|| halves(&[2, 96, 64]), PagedAttention { precision: Precision::Fast, ..PagedAttention::default() });
        case(operator, [values(&[1, 4, 64, 64]), cache(), cache(), table(2), place(64)])
    };
    vec![
        // In one launch, and with the keys split.
        pages(2),
        pages(16),
        // Of many queries.
        many,
        case(Gather { axis: 1 }, [x(), token()]),
        case(GatherElements { axis: 1 }, [x(), indices(&[2, 2, 3], at)]),
        case(GatherNd { batch_dims: 0 }, [x(), indices(&[2, 2], at)]),
        case(ScatterElements { axis: 1, reduction }, [x(), indices(&[2, 2, 3], at), values(&[2, 2, 3])]),
        case(ScatterNd { reduction }, [x(), indices(&[2, 2], at), values(&[2, 3])]),
        case(KvAppend, [cache(), rows(), token()]).updating(0),
        case(RopeAppend { interleaved: false }, [cache(), rows(), token(), values(&[4])]).updating(0),
        decode(Precision::Strict, 4, 8),
        decode(Precision::Fast, 300, 64),
        decode_paged(127i32.saturating_add(beyond), 1),
        decode_paged(72, 3i32.saturating_add(beyond)),
        case(RotaryEmbedding::default(), [values(&[1, 3, 2, 8]), values(&[4, 4]), values(&[4, 4]), token()]),
    ]
}

/// Cases that choose a token; without a temperature, since a draw would find none in an infinite row.
fn with_logits(logits: [f32; 2]) -> Vec<Case> {
    let settings = Settings { temperature: 0.0, top_p: 1.0, min_p: 0.0, top_k: 0, seed: 1 };
    let (state, logits) = (Some(HostTensor::new(&[2], &[0, 0])), Some(HostTensor::new(&[2], &logits)));
    let (factors, numbers) = (HostTensor::new(&[3], &settings.factors()), HostTensor::new(&[3], &settings.numbers()));
    vec![case(SampleArgmax, [state.clone(), logits.clone()]).updating(0), case(Sample, [state, logits, Some(factors), Some(numbers)]).updating(0)]
}
