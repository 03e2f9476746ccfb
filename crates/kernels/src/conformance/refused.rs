use super::{Bound, Case, HostTensor};
use crate::{
    Operator,
    attention::decode::DecodeAttention,
    gather::{Gather, GatherElements, GatherNd},
    kv_append::KvAppend,
    rope::RotaryEmbedding,
    rope_append::RopeAppend,
    scatter::{Reduction, ScatterElements, ScatterNd},
};

/// Inputs that every device must refuse: index or position number 1 names the entry after the last, or one long before the first.
pub fn refused() -> Vec<Case> {
    [1i32, i32::MIN].iter().flat_map(|&beyond| with(beyond)).collect()
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
fn with(beyond: i32) -> Vec<Case> {
    fn case(operator: impl Operator + 'static, inputs: impl Into<Vec<Option<HostTensor>>>) -> Case {
        Case::new(operator, inputs, Bound::EXACT, |_| Vec::new())
    }
    let (x, at, reduction) = (|| values(&[2, 4, 3]), 3i32.saturating_add(beyond), Reduction::Add);
    let (cache, rows, token) = (|| values(&[2, 4, 8]), || values(&[2, 2, 8]), || indices(&[2], at));
    vec![
        case(Gather { axis: 1 }, [x(), token()]),
        case(GatherElements { axis: 1 }, [x(), indices(&[2, 2, 3], at)]),
        case(GatherNd { batch_dims: 0 }, [x(), indices(&[2, 2], at)]),
        case(ScatterElements { axis: 1, reduction }, [x(), indices(&[2, 2, 3], at), values(&[2, 2, 3])]),
        case(ScatterNd { reduction }, [x(), indices(&[2, 2], at), values(&[2, 3])]),
        case(KvAppend, [cache(), rows(), token()]).updating(0),
        case(RopeAppend { interleaved: false }, [cache(), rows(), token(), values(&[4])]).updating(0),
        case(
            DecodeAttention::default(),
            [cache(), values(&[1, 2, 8]), Some(HostTensor::new(&[1], &[at])), values(&[4]), cache(), values(&[1, 2, 8]), values(&[1, 4, 8])],
        ),
        case(RotaryEmbedding::default(), [values(&[1, 3, 2, 8]), values(&[4, 4]), values(&[4, 4]), token()]),
    ]
}
