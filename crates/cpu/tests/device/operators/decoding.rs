//! Positions and the choice of tokens.

use elinvar_core::DType;
use elinvar_kernels::{
    Operator, TensorInfo,
    rope::{Rope, RotaryEmbedding},
    sample::Sample,
    sample_argmax::SampleArgmax,
};

use super::info;

#[test]
fn rope_rejects_misfits_in_a_line() {
    let op = Rope { interleaved: false };
    let (x, frequencies) = (info(DType::BF16, &[2, 5, 4, 64]), info(DType::F32, &[16]));
    assert!(op.infer(&[x, info(DType::I32, &[5]), frequencies]).is_ok());
    assert!(op.infer(&[x, info(DType::I64, &[2, 5]), frequencies]).is_ok());
    let rejected = |inputs: &[Option<TensorInfo>], word: &str| {
        let message = op.infer(inputs).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    };
    rejected(&[x, info(DType::I32, &[2]), frequencies], "[5] or [2, 5]");
    rejected(&[x, info(DType::F32, &[5]), frequencies], "i32");
    rejected(&[x, info(DType::I32, &[5]), info(DType::F32, &[33])], "1 to 32");
    rejected(&[x, info(DType::I32, &[5]), info(DType::BF16, &[32])], "f32");
    rejected(&[info(DType::F32, &[5, 64]), info(DType::I32, &[5]), frequencies], "heads");
    rejected(&[info(DType::I32, &[5, 4, 64]), info(DType::I32, &[5]), frequencies], "i32");
}

#[test]
fn caches_of_a_rotary_embedding_must_fit() {
    let op = RotaryEmbedding { rotary_embedding_dim: 4, ..Default::default() };
    let x = info(DType::F32, &[2, 4, 3, 8]);
    let (flat, full) = (info(DType::F32, &[50, 2]), info(DType::F32, &[2, 3, 2]));
    assert!(op.infer(&[x, flat, flat, info(DType::I64, &[2, 3])]).is_ok());
    assert!(op.infer(&[x, full, full, None]).is_ok());
    for (cos, positions) in [(full, info(DType::I64, &[2, 3])), (flat, None), (info(DType::F32, &[50, 4]), info(DType::I64, &[2, 3]))] {
        assert!(op.infer(&[x, cos, cos, positions]).unwrap_err().to_string().contains("caches"));
    }
    assert!(op.infer(&[x, flat, full, None]).is_err());
    let three = info(DType::F32, &[2, 3, 32]);
    assert!(op.infer(&[three, full, full, None]).unwrap_err().to_string().contains("num_heads"));
    assert!(RotaryEmbedding { num_heads: 4, ..op }.infer(&[three, full, full, None]).is_ok());
}

#[test]
fn argmax_sampling_rejects_misfits() {
    let (state, logits) = (info(DType::I32, &[2]), info(DType::F32, &[1, 5]));
    assert!(SampleArgmax.infer(&[state, logits]).unwrap().is_empty());
    assert!(SampleArgmax.infer(&[info(DType::I32, &[3]), logits]).unwrap_err().to_string().contains("state has shape [3]: expected [2]"));
    assert!(SampleArgmax.infer(&[state, info(DType::F32, &[2, 5])]).unwrap_err().to_string().contains("one row"));
    assert!(SampleArgmax.infer(&[state, info(DType::F32, &[0])]).unwrap_err().to_string().contains("not empty"));
    assert!(SampleArgmax.infer(&[state, info(DType::I32, &[5])]).unwrap_err().to_string().contains("i32"));
}

#[test]
fn sampling_rejects_misfits() {
    let fitting = [info(DType::I32, &[2]), info(DType::BF16, &[1, 5]), info(DType::F32, &[3]), info(DType::U32, &[3])];
    assert!(Sample.infer(&fitting).unwrap().is_empty());
    for (index, wrong, expected) in [
        (0, info(DType::I32, &[3]), "[2]"),
        (1, info(DType::F32, &[0]), "not empty"),
        (2, info(DType::F32, &[2]), "factors has shape [2]: expected [3]"),
        (3, info(DType::I32, &[3]), "numbers is i32"),
        (3, None, "'numbers' is missing"),
    ] {
        let mut inputs = fitting;
        inputs[index] = wrong;
        let message = Sample.infer(&inputs).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
