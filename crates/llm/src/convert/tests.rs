use std::{fs, path::PathBuf};

use super::*;
use crate::{Groups, Tokenizer, weights::WeightType};

fn shakespeare() -> ModelFiles {
    ModelFiles::open(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare")).unwrap()
}

fn convert(files: &ModelFiles, target: Target, path: &Path) -> ModelFiles {
    GgufOutput::plan(files, target, Importance::none()).unwrap().write(files, path, &mut |_| ()).unwrap();
    ModelFiles::open(path).unwrap()
}

/// The values of a tensor of floats.
fn values(weights: &Weights, name: &str) -> Vec<f32> {
    let (dims, _) = weights.info(name).unwrap();
    let weight = weights.get(name, &dims).unwrap();
    let WeightType::Plain(dtype) = weight.kind else { panic!("{name} is in blocks") };
    let mut values = vec![0.0; dims.iter().product()];
    TensorType::of_dtype(dtype).unwrap().decode(weight.memory.bytes(), &mut values).unwrap();
    values
}

fn assert_same(a: &ModelFiles, b: &ModelFiles) {
    let config = |files: &ModelFiles| Config { eos: Vec::new(), ..Config::read(files).unwrap() };
    assert_eq!(config(a), config(b));
    let (wa, wb) = (Weights::open(a).unwrap(), Weights::open(b).unwrap());
    assert_eq!(wa.names().collect::<Vec<_>>(), wb.names().collect::<Vec<_>>());
    for name in wa.names() {
        assert!(wa.info(name).unwrap().0 == wb.info(name).unwrap().0 && values(&wa, name) == values(&wb, name), "{name}");
    }
    let (ta, tb) = (Tokenizer::open(a).unwrap(), Tokenizer::open(b).unwrap());
    for text in ["", "ROMEO: What, ho!\n\nThou  art 12 — é", "x<|endoftext|>"] {
        assert_eq!(ta.encode(text).unwrap(), tb.encode(text).unwrap(), "{text}");
    }
}

#[test]
fn a_folder_becomes_a_file_and_a_folder_again() {
    let folder = tempfile::tempdir().unwrap();
    let (original, there, back) = (shakespeare(), folder.path().join("m.gguf"), folder.path().join("back"));
    let file = convert(&original, Target::Stored, &there);
    assert_same(&original, &file);
    let ModelFiles::Gguf(gguf) = &file else { panic!("no file") };
    assert_eq!((gguf.text("general.architecture").unwrap(), gguf.text("tokenizer.ggml.pre").unwrap()), (Some("llama"), Some("gpt-2")));
    let mut calls = 0;
    write_checkpoint(&file, DType::BF16, &back, &mut |_, _| calls += 1).unwrap();
    assert_eq!(calls, gguf.tensors().count());
    assert_same(&original, &ModelFiles::open(&back).unwrap());
    // A folder that exists is left alone.
    let message = write_checkpoint(&file, DType::BF16, &back, &mut |_, _| ()).unwrap_err().to_string();
    assert!(message.contains("exists: give the name of a new folder"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// The mean square error of a file's weights over the mean square of the weights.
fn relative_error(a: &ModelFiles, b: &ModelFiles) -> f64 {
    let (wa, wb) = (Weights::open_decoded(a, DType::F32).unwrap(), Weights::open_decoded(b, DType::F32).unwrap());
    let (mut error, mut square) = (0.0, 0.0);
    for name in wa.names() {
        for (x, y) in values(&wa, name).into_iter().zip(values(&wb, name)) {
            error += f64::from(x - y).powi(2);
            square += f64::from(x).powi(2);
        }
    }
    (error / square).sqrt()
}

#[test]
fn formats_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let original = shakespeare();
    let bound = [("q8_0", 0.01), ("q6_k", 0.02), ("q4_k_m", 0.08), ("q3_k_m", 0.13), ("mxfp4", 0.12)];
    let mut sizes = Vec::new();
    for (name, bound) in bound {
        let path = folder.path().join(name);
        let output = GgufOutput::plan(&original, name.parse().unwrap(), Importance::none()).unwrap();
        output.write(&original, &path, &mut |_| ()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), output.bytes());
        sizes.push(output.bytes());
        let error = relative_error(&original, &ModelFiles::open(&path).unwrap());
        assert!((bound / 10.0..bound).contains(&error), "{name}: {error}");
        // The folder has none that is quantised.
        assert_eq!(output.requantized(), 0);
    }
    assert!(sizes[..4].is_sorted_by(|a, b| a > b), "{sizes:?}");
    for name in ["q4", "Q4_K_L", ""] {
        let message = name.parse::<Target>().unwrap_err().to_string();
        assert!(message.contains("is unknown: expected f32, f16, bf16, q4_0"), "{message}");
    }
    assert_eq!("Q4_K_M".parse::<Target>().unwrap().to_string(), "q4_k_m");
}

#[test]
fn groups_are_written_as_mlx_has_them_and_converted_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (original, groups) = (shakespeare(), Groups::new(64, 4).unwrap());
    let output = GroupedOutput::plan(&original, groups).unwrap();
    let mut last = (0, 0);
    output.write(&path("mlx"), &mut |done, total| last = (done, total)).unwrap();
    assert_eq!((output.requantized(), last), (0, (output.bytes(), output.bytes())));
    let message = output.write(&path("mlx"), &mut |_, _| ()).unwrap_err().to_string();
    assert!(message.contains("exists: give the name of a new folder"), "{message}");
    let files = ModelFiles::open(path("mlx")).unwrap();
    let weights = Weights::open(&files).unwrap();
    let quantised = weights.names().filter(|name| matches!(weights.info(name), Some((_, Some(WeightType::Block(_)))))).count();
    assert!(weights.info("model.embed_tokens.weight").is_some_and(|(_, kind)| matches!(kind, Some(WeightType::Block(_)))));
    assert_eq!(GroupedOutput::plan(&files, groups).unwrap().requantized(), quantised);
    assert_eq!(Config::read(&files).unwrap(), Config::read(&original).unwrap());
    // Decoded, they are the same in both forms.
    write_checkpoint(&files, DType::BF16, &path("back"), &mut |_, _| ()).unwrap();
    let back = ModelFiles::open(path("back")).unwrap();
    assert!(!is_grouped(&back).unwrap());
    assert_same(&back, &convert(&files, Target::Stored, &path("back.gguf")));
    let error = relative_error(&original, &back);
    assert!((0.03..0.1).contains(&error), "{error}");
    // From a GGUF file.
    let output = GroupedOutput::plan(&ModelFiles::open(path("back.gguf")).unwrap(), groups).unwrap();
    assert_eq!((output.requantized(), output.bytes() > last.1), (0, true));
    for (size, bits, expected) in [(48, 4, "the size of groups is 48"), (64, 7, "the number of bits is 7")] {
        assert!(Groups::new(size, bits).unwrap_err().to_string().contains(expected));
    }
}

#[test]
fn widths_and_roles_decide_on_the_format() {
    let f32 = TensorType::of_dtype(DType::F32).unwrap();
    let chosen = |target: &str, name: &str, dims: &[usize], tied| target.parse::<Target>().unwrap().choose(name, dims, f32, tied, 32).unwrap().name;
    assert_eq!(chosen("q4_k_m", "blk.5.attn_q.weight", &[8, 256], false), "Q4_K");
    assert_eq!(
        ["0", "4", "5", "6", "28"].map(|l| chosen("q4_k_m", &format!("blk.{l}.ffn_down.weight"), &[8, 256], false)),
        ["Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q6_K"]
    );
    assert_eq!(["1", "2"].map(|l| chosen("q3_k_m", &format!("blk.{l}.attn_v.weight"), &[8, 256], false)), ["Q5_K", "Q4_K"]);
    assert_eq!(chosen("q3_k_m", "blk.9.attn_output.weight", &[8, 256], false), "Q4_K");
    assert_eq!([true, false].map(|tied| chosen("q4_0", "token_embd.weight", &[8, 256], tied)), ["Q6_K", "Q4_0"]);
    assert_eq!([32, 48].map(|width| chosen("q6_k", "output.weight", &[8, width], false)), ["Q8_0", "F16"]);
    assert_eq!(
        ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"].map(|t| chosen(t, "blk.1.attn_q.weight", &[8, 576], false)),
        ["IQ4_NL", "IQ4_NL", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL"]
    );
    assert_eq!(chosen("q4_0", "blk.1.attn_norm.weight", &[256], false), "F32");
    assert_eq!(["blk.1.odd", "blk.1.ffn_gate_inp.weight"].map(|name| chosen("q4_0", name, &[8, 256], false)), ["F32", "F32"]);
}

/// A file of importances of `blk.0.ffn_down`, whose sums are `sums`.
fn importance(folder: &Path, sums: &[f32], count: f32) -> PathBuf {
    let path = folder.join("imatrix.gguf");
    let f32 = TensorType::of_dtype(DType::F32).unwrap();
    let mut writer = Writer::new();
    writer.set("general.type", Kind::Text, Value::Text("imatrix")).unwrap();
    writer.tensor("blk.0.ffn_down.weight.in_sum2", f32, &[1, sums.len()]).unwrap();
    writer.tensor("blk.0.ffn_down.weight.counts", f32, &[1, 1]).unwrap();
    let data = [sums.to_vec(), vec![count]].map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    writer.write(&path, |number, put| put(&data[number])).unwrap();
    path
}

#[test]
fn importance_moves_errors_to_columns_that_matter_less() {
    let folder = tempfile::tempdir().unwrap();
    let (original, target) = (shakespeare(), Target::from_format("q4_0"));
    let sums: Vec<f32> = (0..704).map(|i| if i % 4 == 0 { 300.0 } else { 3.0 }).collect();
    let known = Importance::open(importance(folder.path(), &sums, 3.0)).unwrap();
    assert_eq!(known.of("blk.0.ffn_down.weight").unwrap()[..2], [100.0, 1.0]);
    let error = |importance: Importance, name: &str| {
        let path = folder.path().join(name);
        GgufOutput::plan(&original, target, importance).unwrap().write(&original, &path, &mut |_| ()).unwrap();
        let ours = "model.layers.0.mlp.down_proj.weight";
        let values = |files: &ModelFiles| values(&Weights::open_decoded(files, DType::F32).unwrap(), ours);
        let pairs = values(&original).into_iter().zip(values(&ModelFiles::open(&path).unwrap()));
        pairs.enumerate().map(|(i, (x, y))| sums[i % 704] * (x - y) * (x - y)).sum::<f32>()
    };
    let (with, without) = (error(known, "with"), error(Importance::none(), "without"));
    assert!(with < 0.9 * without, "{with} {without}");

    let rejected = |sums: &[f32], count: f32| {
        let path = importance(folder.path(), sums, count);
        Importance::open(&path).and_then(|known| GgufOutput::plan(&original, target, known)).map(|_| ()).unwrap_err().to_string()
    };
    assert!(rejected(&[1.0; 8], 1.0).contains("'blk.0.ffn_down.weight' has 704 columns, 8 are known"));
    assert!(rejected(&[f32::NAN; 704], 1.0).contains("no sums of squares"));
    assert!(rejected(&[1.0; 704], 0.0).contains("no importance matrix"));
}

#[test]
fn a_file_that_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let file = convert(&shakespeare(), Target::Stored, &path);
    let before = fs::read(&path).unwrap();
    let output = GgufOutput::plan(&file, Target::from_format("q8_0"), Importance::none()).unwrap();
    let message = output.write(&file, &folder.path().join("../").join(folder.path().file_name().unwrap()).join("m.gguf"), &mut |_| ()).unwrap_err();
    assert!(message.to_string().contains("is read and cannot be written: give another name"), "{message}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn what_the_format_cannot_hold_is_rejected_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    let ModelFiles::Folder(original) = shakespeare() else { panic!("no folder") };
    fs::create_dir(&source).unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        fs::copy(original.join(name), source.join(name)).unwrap();
    }
    let path = folder.path().join("m.gguf");
    let rejected = |target: Target| {
        let files = ModelFiles::open(&source).unwrap();
        let result = GgufOutput::plan(&files, target, Importance::none()).and_then(|output| output.write(&files, &path, &mut |_| ()));
        assert!(!path.exists() && fs::read_dir(folder.path()).unwrap().count() == 1);
        let message = result.unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    };
    // The first weight of the file becomes infinite.
    let weights = fs::read(source.join("model.safetensors")).unwrap();
    let mut damaged = weights.clone();
    let at = 8 + u64::from_le_bytes(*weights.first_chunk().unwrap()) as usize;
    damaged[at..at + 2].copy_from_slice(&half::bf16::INFINITY.to_le_bytes());
    fs::write(source.join("model.safetensors"), damaged).unwrap();
    let message = rejected(Target::from_format("q4_0"));
    assert!(message.contains("tensor 'token_embd.weight': row 0: value 0 is inf: Q6_K has finite numbers only"), "{message}");
    fs::write(source.join("model.safetensors"), weights).unwrap();

    let tokenizer = fs::read_to_string(source.join("tokenizer.json")).unwrap();
    fs::write(source.join("tokenizer.json"), tokenizer.replacen("\"use_regex\": true", "\"use_regex\": false", 1)).unwrap();
    assert!(rejected(Target::Stored).contains("texts are cut in a way that has no name here"));
    fs::write(source.join("tokenizer.json"), tokenizer).unwrap();
    let config = fs::read_to_string(source.join("config.json")).unwrap();
    fs::write(source.join("config.json"), config.replace("\"vocab_size\": 2048", "\"vocab_size\": 2047")).unwrap();
    assert!(rejected(Target::Stored).contains("token 2047 is outside the model's vocabulary of 2047"));
}

impl Target {
    fn from_format(name: &str) -> Self {
        name.parse().unwrap()
    }
}
