mod references;

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

#[test]
fn a_tensor_without_a_place_is_rejected() {
    let files = ModelFiles::Gguf(Arc::new(parse(&whole(tiny("llama")).f32s("blk.0.attn_sinks.weight", &[4], &[0.0; 4])).unwrap()));
    let executor = Executor::new_cpu(1.try_into().unwrap()).unwrap();
    let model = Model::new(&executor, Config::read(&files).unwrap(), &Weights::open(&files).unwrap());
    assert!(model.map(|_| ()).unwrap_err().to_string().contains("tensor 'blk.0.attn_sinks.weight' has no place in the configuration"));
}
