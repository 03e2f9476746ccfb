use elinvar::{HostMemory, kernels::quantized::Format};
use half::{bf16, f16};

use super::*;
use crate::{
    ModelFiles, Weights,
    gguf::tests::{parse, tiny, writer::Writer},
};

fn open(writer: &Writer, dtype: DType) -> Weights {
    Weights::open_decoded(&ModelFiles::Gguf(Arc::new(parse(writer).unwrap())), dtype).unwrap()
}

fn f32s(memory: &HostMemory) -> &[f32] {
    bytemuck::cast_slice(memory.bytes())
}

/// Rows whose numbers are their place in the file.
fn numbered(rows: u64, columns: u64) -> Vec<f32> {
    (0..rows * columns).map(|i| (i / columns) as f32).collect()
}

#[test]
fn rows_of_llama_queries_and_keys_move_back() {
    let with = |architecture: &str, dimensions: Option<u32>| {
        let writer = tiny(architecture).f32s("blk.0.attn_q.weight", &[16, 8], &numbered(16, 8)).f32s("blk.1.attn_k.bias", &[8], &numbered(8, 1));
        let writer = writer.f32s("blk.0.attn_v.weight", &[8, 8], &numbered(8, 8));
        open(&dimensions.into_iter().fold(writer, |w, n| w.u32(&format!("{architecture}.rope.dimension_count"), n)), DType::BF16)
    };
    let rows = |weights: &Weights, name: &str, rows: usize| {
        let weight = weights.get(name, &[rows, 8]).unwrap();
        f32s(&weight.memory).chunks(8).map(|row| row[7] as usize).collect::<Vec<_>>()
    };
    let llama = with("llama", None);
    // Each head of four: the halves of the pairs (0, 1) and (2, 3) of the file are (0, 2) and (1, 3).
    assert_eq!(rows(&llama, "model.layers.0.self_attn.q_proj.weight", 16), [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15]);
    assert_eq!(f32s(&llama.get("model.layers.1.self_attn.k_proj.bias", &[8]).unwrap().memory), [0., 2., 1., 3., 4., 6., 5., 7.]);
    assert_eq!(rows(&llama, "model.layers.0.self_attn.v_proj.weight", 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(rows(&with("llama", Some(2)), "model.layers.0.self_attn.q_proj.weight", 16), (0..16).collect::<Vec<_>>());
    assert_eq!(rows(&with("qwen2", None), "model.layers.0.self_attn.q_proj.weight", 16), (0..16).collect::<Vec<_>>());
}

#[test]
fn blocks_are_decoded_to_the_type_asked_for() {
    // d = 1/3 in f16; the numbers −16 to 15 for each row.
    let d = f16::from_f32(1.0 / 3.0);
    let row: Vec<u8> = d.to_le_bytes().into_iter().chain((-16i8..16).map(|q| q as u8)).collect();
    let writer = tiny("qwen3").tensor("blk.0.ffn_down.weight", 8, &[8, 32], &row.repeat(8)).tensor("output_norm.weight", 1, &[1], &d.to_le_bytes());
    let name = "model.layers.0.mlp.down_proj.weight";
    let exact: Vec<f32> = (-16..16).map(|q| d.to_f32() * q as f32).collect();
    let weight = open(&writer, DType::F32).get(name, &[8, 32]).unwrap();
    assert_eq!((weight.kind, f32s(&weight.memory)), (WeightType::Plain(DType::F32), &exact.repeat(8)[..]));
    let weights = open(&writer, DType::BF16);
    let narrow: Vec<bf16> = exact.iter().map(|&x| bf16::from_f32(x)).collect();
    assert_eq!(bytemuck::cast_slice::<_, bf16>(weights.get(name, &[8, 32]).unwrap().memory.bytes()), narrow.repeat(8));
    assert_eq!(weights.bytes(), 8 * 32 * 2 + 4);
    // Or packed.
    let weights = Weights::open(&ModelFiles::Gguf(Arc::new(parse(&writer).unwrap()))).unwrap();
    let weight = weights.get(name, &[8, 32]).unwrap();
    let mut values = [0.0; 32];
    Format::Q8_0.decode_packed(&weight.memory.bytes()[7 * 48..], &mut values).unwrap();
    assert_eq!((weight.kind, &values[..], weights.bytes()), (WeightType::Block(Format::Q8_0), &exact[..], 8 * 48 + 4));
    // Vectors are f32.
    let norm = weights.get("model.norm.weight", &[1]).unwrap();
    assert_eq!((norm.kind, f32s(&norm.memory)), (WeightType::Plain(DType::F32), &[d.to_f32()][..]));
    assert!(Weights::open_decoded(&ModelFiles::Gguf(Arc::new(parse(&writer).unwrap())), DType::I32).is_err());
}

#[test]
fn plain_matrices_stay_in_the_map() {
    let file = Arc::new(parse(&tiny("qwen2").f32s("output.weight", &[16, 8], &numbered(16, 8))).unwrap());
    let weights = Weights::open(&ModelFiles::Gguf(file.clone())).unwrap();
    let weight = weights.get("lm_head.weight", &[16, 8]).unwrap();
    let stored = file.data(file.tensor("output.weight").unwrap()).unwrap();
    assert_eq!(f32s(&weight.memory), numbered(16, 8));
    let copied = !stored.bytes().as_ptr().addr().is_multiple_of(4);
    assert!(copied || weight.memory.bytes().as_ptr() == stored.bytes().as_ptr());
}

#[test]
fn what_a_device_cannot_have_is_rejected_by_name() {
    let writer = tiny("llama").tensor("blk.0.attn_v.weight", 16, &[8, 256], &[0; 66 * 8]).f32s("rope_freqs.weight", &[2], &[1.0, 2.0]);
    let weights = open(&writer, DType::BF16);
    let error = |name: &str, dims: &[usize]| weights.get(name, dims).map(|_| ()).unwrap_err().to_string();
    let name = "model.layers.0.self_attn.v_proj.weight";
    assert_eq!(error(name, &[8, 256]), "m.gguf: tensor 'blk.0.attn_v.weight' is of type IQ2_XXS, which is not supported");
    assert_eq!(error(name, &[8, 8]), "m.gguf: tensor 'blk.0.attn_v.weight' has shape [8, 256], the configuration asks for [8, 8]");
    assert!(error("model.norm.weight", &[8]).contains("is missing, which the configuration asks for"));
    // Rows of queries move within heads.
    let weights = open(&tiny("llama").f32s("blk.0.attn_q.weight", &[14, 8], &numbered(14, 8)), DType::BF16);
    let message = weights.get("model.layers.0.self_attn.q_proj.weight", &[14, 8]).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("has 14 rows: whole heads of 4 expected"), "{message}");
    let weights = open(&writer, DType::BF16);
    // The divisors are part of the configuration.
    assert_eq!(weights.names().collect::<Vec<_>>(), [name]);
}

/// Large enough to be mapped memory; its pages of the file are given back and read again.
#[test]
fn a_file_s_matrix_may_be_packed_again() {
    const SIDE: u64 = 1024;
    let row: Vec<u8> = [0x34, 0x12].into_iter().chain((0..32).map(|q| q * 7)).collect();
    let blocks: Vec<u8> = (0..SIDE * SIDE / 32).flat_map(|block| row.iter().map(move |byte| byte ^ (block % 3) as u8)).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, tiny("qwen3").tensor("blk.0.ffn_down.weight", 8, &[SIDE, SIDE], &blocks).bytes()).unwrap();
    let weights = Weights::open(&ModelFiles::open(&path).unwrap()).unwrap();
    let get = || weights.get("model.layers.0.mlp.down_proj.weight", &[SIDE as usize; 2]).unwrap().memory;
    let (first, again) = (get(), get());
    assert!(first.bytes() == again.bytes() && first.bytes().as_ptr().addr().is_multiple_of(64));
    let [mut packed, mut decoded] = [vec![0.0; SIDE as usize], vec![0.0; SIDE as usize]];
    for (index, (row, blocks)) in first.bytes().chunks_exact(first.bytes().len() / SIDE as usize).zip(blocks.chunks_exact(34 * 32)).enumerate() {
        Format::Q8_0.decode_packed(row, &mut packed).unwrap();
        Format::Q8_0.decode(blocks, &mut decoded).unwrap();
        assert_eq!(packed, decoded, "row {index}");
    }
}
