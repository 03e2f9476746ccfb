mod quantised;
pub(crate) mod references;

use std::sync::Arc;

use elinvar::{DType, Executor};

use super::{Model, Session};
use crate::{
    Config, ModelFiles, Weights,
    gguf::tests::{parse, tiny, writer::Writer},
};

/// A Llama of two layers with every tensor.
fn whole(writer: Writer) -> Writer {
    let layer = [
        ("attn_norm", &[8][..]),
        ("ffn_norm", &[8]),
        ("attn_q", &[16, 8]),
        ("attn_k", &[8, 8]),
        ("attn_v", &[8, 8]),
        ("attn_output", &[8, 16]),
        ("ffn_gate", &[32, 8]),
        ("ffn_up", &[32, 8]),
        ("ffn_down", &[8, 32]),
    ];
    let layers = (0..2).flat_map(|index| layer.map(|(part, dims)| (format!("blk.{index}.{part}.weight"), dims)));
    let others = [("token_embd.weight".to_owned(), &[16, 8][..]), ("output_norm.weight".to_owned(), &[8])];
    layers.chain(others).fold(writer, |writer, (name, dims)| {
        let values: Vec<f32> = (0..dims.iter().product()).map(|i| ((i * 7 + name.len() as u64 * 3) as f32).sin()).collect();
        writer.f32s(&name, dims, &values)
    })
}

fn logits(writer: &Writer) -> Vec<f32> {
    let files = ModelFiles::Gguf(Arc::new(parse(writer).unwrap()));
    let executor = Executor::new_cpu(1.try_into().unwrap()).unwrap();
    let model = Model::new(&executor, Config::read(&files).unwrap(), &Weights::open(&files).unwrap()).unwrap();
    Session::new(Arc::new(model), 8, DType::F32).unwrap().feed_all(&[1, 5, 2, 9]).unwrap()
}

#[test]
fn frequencies_are_divided_by_the_tensor() {
    let plain = logits(&whole(tiny("llama")));
    let divided = |divisors: &[f32]| logits(&whole(tiny("llama")).f32s("rope_freqs.weight", &[2], divisors));
    assert!(plain.iter().all(|x| x.is_finite()));
    assert_eq!(divided(&[1.0, 1.0]), plain);
    let linear = tiny("llama").text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4.0);
    assert_eq!(divided(&[4.0, 4.0]), logits(&whole(linear)));
    assert_ne!(divided(&[4.0, 4.0]), plain);
}

/// A model of one layer with heads of eight, in blocks of Q8_0: projections of one input each by itself, or stored as one.
pub(crate) fn quantised(fused: bool) -> Writer {
    let architecture = if fused { "phi3" } else { "qwen2" };
    let key = |name: &str| format!("{architecture}.{name}");
    let sizes = [("block_count", 1), ("context_length", 64), ("embedding_length", 32), ("feed_forward_length", 64), ("vocab_size", 16)];
    let writer = sizes.iter().fold(Writer::new().text("general.architecture", architecture), |writer, (name, n)| writer.u32(&key(name), *n));
    let writer =
        writer.u32(&key("attention.head_count"), 4).u32(&key("attention.head_count_kv"), 2).f32(&key("attention.layer_norm_rms_epsilon"), 1e-5);
    let ones = |writer: Writer, name: &str| writer.f32s(&format!("{name}.weight"), &[32], &[1.0; 32]);
    let writer = ["output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"].iter().fold(writer, |writer, name| ones(writer, name));
    // Rows of blocks, the same for a part whether it stands alone or not.
    let rows = |part: usize, rows: usize, columns: usize| -> Vec<u8> {
        let block = |i: usize| 0x2400u16.to_le_bytes().into_iter().chain((0..32).map(move |j| (((i * 32 + j) * 37 + part * 11) % 255) as u8));
        (0..rows * columns / 32).flat_map(block).collect()
    };
    let matrix = |writer: Writer, name: &str, dims: [u64; 2], data: Vec<u8>| writer.tensor(&format!("{name}.weight"), 8, &dims, &data);
    let writer = matrix(writer, "token_embd", [16, 32], rows(0, 16, 32));
    let writer = matrix(writer, "blk.0.attn_output", [32, 32], rows(1, 32, 32));
    let writer = matrix(writer, "blk.0.ffn_down", [32, 64], rows(2, 32, 64));
    let (q, k, v, gate, up) = (rows(3, 32, 32), rows(4, 16, 32), rows(5, 16, 32), rows(6, 64, 32), rows(7, 64, 32));
    if fused {
        let writer = matrix(writer, "blk.0.attn_qkv", [64, 32], [q, k, v].concat());
        return matrix(writer, "blk.0.ffn_up", [128, 32], [gate, up].concat());
    }
    let writer = matrix(matrix(writer, "blk.0.attn_q", [32, 32], q), "blk.0.attn_k", [16, 32], k);
    let writer = matrix(matrix(writer, "blk.0.attn_v", [16, 32], v), "blk.0.ffn_gate", [64, 32], gate);
    matrix(writer, "blk.0.ffn_up", [64, 32], up)
}

#[test]
fn projections_stored_as_one_are_its_rows_also_in_blocks() {
    let apart = logits(&quantised(false));
    assert!(apart.iter().all(|x| x.is_finite()) && apart.iter().any(|&x| x != apart[0]));
    assert_eq!(logits(&quantised(true)), apart);
}

#[test]
fn a_tensor_without_a_place_is_rejected() {
    let files = ModelFiles::Gguf(Arc::new(parse(&whole(tiny("llama")).f32s("blk.0.attn_sinks.weight", &[4], &[0.0; 4])).unwrap()));
    let executor = Executor::new_cpu(1.try_into().unwrap()).unwrap();
    let model = Model::new(&executor, Config::read(&files).unwrap(), &Weights::open(&files).unwrap());
    assert!(model.map(|_| ()).unwrap_err().to_string().contains("tensor 'blk.0.attn_sinks.weight' has no place in the configuration"));
}
