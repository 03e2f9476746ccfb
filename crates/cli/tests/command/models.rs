//! The `elinvar` command as a user runs it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

fn elinvar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elinvar")).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = elinvar(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The one-line error of a command that must fail.
fn rejection(arguments: &[&str]) -> String {
    let output = elinvar(arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    assert!(output.stdout.is_empty(), "{arguments:?} printed a result");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("error: ") && text.trim_end().lines().count() == 1 && !text.contains("panicked"), "{arguments:?}: {text}");
    text
}

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare/reference").join(name)
}

/// A folder of its own for each test.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn save(file: &Path, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) {
    let views = tensors.iter().map(|(name, dtype, dims, bytes)| (*name, TensorView::new(*dtype, dims.to_vec(), bytes).unwrap()));
    safetensors::serialize_to_file(views, None, file).unwrap();
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn the_embedded_model_speaks_the_words_of_transformers() {
    for (prompt, file) in [(None, "greedy.txt"), (Some("ROMEO:"), "greedy_prompt.txt")] {
        let arguments: Vec<_> = ["generate", "--greedy", "-n", "200"].into_iter().chain(prompt).collect();
        assert_eq!(stdout(&arguments), format!("{}\n", fs::read_to_string(reference(file)).unwrap()), "{file}");
    }
}

#[test]
fn the_readme_shows_what_the_embedded_model_says() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let (_, shown) = readme.split_once("$ elinvar generate \"ROMEO:\" -n 60\n").unwrap();
    let (shown, _) = shown.split_once("prompt 3 tokens at ").unwrap();
    assert_eq!(stdout(&["generate", "ROMEO:", "-n", "60"]), shown);
}

#[test]
fn the_same_seed_gives_the_same_text_and_another_seed_another() {
    let say = |seed: &str, threads: &str| stdout(&["generate", "KING", "-n", "40", "--seed", seed, "--threads", threads]);
    assert_eq!(say("3", "1"), say("3", "2"));
    assert_ne!(say("3", "1"), say("4", "1"));
}

#[test]
fn guesses_change_no_text() {
    let model = reference("greedy.txt");
    let model = text(model.parent().unwrap().parent().unwrap());
    for guesses in [&["--lookup"][..], &["--draft-model", model, "--drafts", "4"]] {
        let output = elinvar(&[&["generate", "ROMEO:", "--greedy", "-n", "200"], guesses].concat());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", fs::read_to_string(reference("greedy_prompt.txt")).unwrap()));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(" guesses right · token limit"), "{said}");
        let sampled = ["generate", "KING", "-n", "40", "--seed", "3"];
        assert_eq!(stdout(&[&sampled, guesses].concat()), stdout(&sampled));
    }
}

#[test]
fn a_stop_text_ends_the_answer_and_statistics_stay_off_standard_output() {
    let output = elinvar(&["generate", "ROMEO:", "--greedy", "-n", "100", "--stop", "\n\n"]);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let whole = fs::read_to_string(reference("greedy_prompt.txt")).unwrap();
    assert_eq!(out.trim_end_matches('\n'), whole.split("\n\n").next().unwrap());
    assert!(err.contains("stop text") && err.contains("tokens at"), "{err}");
    assert!(elinvar(&["generate", "A", "-n", "1", "--quiet"]).stderr.is_empty());
}

#[test]
fn logits_are_those_of_transformers_and_do_not_depend_on_chunks_or_threads() {
    let folder = scratch("logits");
    let file = fs::read(reference("reference.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&file).unwrap();
    let tokens: Vec<_> =
        expected.tensor("tokens").unwrap().data().chunks_exact(8).map(|c| i64::from_le_bytes(c.try_into().unwrap()).to_string()).collect();
    let tokens = tokens.join(",");
    let mut bits: Option<Vec<u8>> = None;
    for (chunk, threads) in [("1", "1"), ("3", "2"), ("64", "7")] {
        let out = folder.join(format!("{chunk}.safetensors"));
        stdout(&["logits", "--tokens", &tokens, "--output", text(&out), "--chunk", chunk, "--threads", threads]);
        let found = fs::read(&out).unwrap();
        let found = SafeTensors::deserialize(&found).unwrap().tensor("logits").unwrap().data().to_vec();
        let pairs = floats(&found).into_iter().zip(floats(expected.tensor("logits").unwrap().data()));
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "differs by {worst}");
        assert!(bits.get_or_insert_with(|| found.clone()) == &found, "chunks of {chunk} on {threads} threads give other bits");
    }
}

#[test]
fn an_operator_runs_on_tensors_from_a_file() {
    let folder = scratch("op");
    let (input, output) = (folder.join("in.safetensors"), folder.join("out.safetensors"));
    let bytes: Vec<u8> = [1.0f32, 2.0, 3.0, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    save(&input, &[("x", Dtype::F32, &[2, 2], bytes)]);
    stdout(&["op", "softmax", "--input", text(&input), "--output", text(&output), "--attr", "axis=0"]);
    let file = fs::read(&output).unwrap();
    let result = SafeTensors::deserialize(&file).unwrap();
    let y = floats(result.tensor("y").unwrap().data());
    let exact = [0.119_202_92, 0.880_797_1, 0.880_797_1, 0.119_202_92];
    assert!(y.iter().zip(exact).all(|(a, b)| (a - b).abs() < 1e-6), "{y:?}");
}

#[test]
fn the_operator_list_is_json_with_inputs_attributes_and_types() {
    let list: serde_json::Value = serde_json::from_str(&stdout(&["op", "--list", "--json"])).unwrap();
    let operators = list.as_array().unwrap();
    assert!(operators.len() > 60, "{}", operators.len());
    let softmax = operators.iter().find(|o| o["name"] == "softmax").unwrap();
    assert_eq!((&softmax["inputs"][0]["name"], &softmax["attributes"][0]["default"]), (&"x".into(), &"-1".into()));
    assert_eq!((&softmax["attributes"][0]["kind"], &softmax["attributes"][0]["values"]), (&"int".into(), &"a whole number".into()));
    assert!(softmax["inputs"][0]["dtypes"].as_array().unwrap().contains(&"bf16".into()));
}

#[test]
fn devices_are_listed() {
    let list: serde_json::Value = serde_json::from_str(&stdout(&["devices", "--json"])).unwrap();
    let state = |name: &str| list.as_array().unwrap().iter().find(|device| device["device"] == name).unwrap();
    assert_eq!(state("cpu")["available"], true);
    // Where there is no GPU, the list says why.
    assert!(state("cuda")["available"] == true || state("cuda")["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
}

#[test]
fn bad_input_is_rejected_in_one_line_and_leaves_nothing_half_written() {
    let folder = scratch("bad");
    let output = folder.join("out.safetensors");
    let out = text(&output);
    let cases: &[(&[&str], &str)] = &[
        (&["generate", ""], "the prompt is empty"),
        (&["generate", "A", "--model", "/nowhere"], "/nowhere"),
        (&["generate", "A", "--device", "abacus"], "device 'abacus' is not available: this build has metal, cuda, cpu"),
        (&["generate", "A", "--device", "cuda:99"], "CUDA"),
        (&["generate", "A", "--context", "100000"], "1 to 512"),
        (&["generate", "To be or not to be, that is the question", "--context", "4"], "leaves no room in a context of 4"),
        (&["generate", "A", "--temperature", "nan"], "temperature"),
        (&["generate", "A", "--lookup", "--drafts", "0"], "0 drafts in steps of 256 tokens"),
        (&["generate", "A", "--draft-model", "/nowhere"], "/nowhere"),
        (&["generate", "A", "--lookup", "--chunk", "2000000000"], "the model needs"),
        (&["chat"], "no chat template"),
        (&["logits", "--tokens", "1,5000", "--output", out], "token id 5000 is outside the vocabulary of 2048"),
        (&["op", "sofmax", "--output", out], "unknown operator 'sofmax'"),
        (&["op", "softmax", "--output", out, "--attr", "axs=1"], "unknown attribute 'axs'"),
        (&["op", "softmax", "--output", out, "--attr", "axis=one"], "softmax: attribute 'axis' is 'one': expected a whole number"),
        (&["op", "softmax", "--output", out], "input 'x' is missing"),
        (&["op", "softmax", "--input", "/nowhere.safetensors", "--output", out], "cannot read /nowhere.safetensors"),
    ];
    for (arguments, expected) in cases {
        let message = rejection(arguments);
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(!output.exists());
    }
    let damaged = folder.join("damaged.safetensors");
    fs::write(&damaged, [200, 0, 0, 0, 0, 0, 0, 0, b'{']).unwrap();
    assert!(rejection(&["op", "softmax", "--input", text(&damaged), "--output", out]).contains("damaged.safetensors"));
    let mismatched = folder.join("mismatched.safetensors");
    save(&mismatched, &[("a", Dtype::F32, &[2], vec![0; 8]), ("b", Dtype::F32, &[3], vec![0; 12])]);
    assert!(rejection(&["op", "add", "--input", text(&mismatched), "--output", out]).contains("expected shapes that broadcast"));
    assert!(!output.exists());
}

#[test]
fn a_damaged_model_folder_is_rejected_with_the_file_and_the_tensor() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare");
    let copy = |name: &str| {
        let folder = scratch(name);
        for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
            fs::copy(source.join(file), folder.join(file)).unwrap();
        }
        folder
    };
    let truncated = copy("truncated");
    let weights = fs::read(truncated.join("model.safetensors")).unwrap();
    fs::write(truncated.join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    assert!(rejection(&["generate", "A", "--model", text(&truncated)]).contains("model.safetensors"));
    let contradictory = copy("contradictory");
    let config = fs::read_to_string(contradictory.join("config.json")).unwrap();
    fs::write(contradictory.join("config.json"), config.replace("\"hidden_size\": 256", "\"hidden_size\": 512")).unwrap();
    let message = rejection(&["generate", "A", "--model", text(&contradictory)]);
    assert!(message.contains("tensor 'model.") && message.contains("[2048, 512]"), "{message}");
    let huge = copy("huge");
    fs::write(huge.join("config.json"), config.replace("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 200000000")).unwrap();
    let message = rejection(&["generate", "A", "--model", text(&huge), "--context", "200000000"]);
    assert!(message.contains("the model needs") && message.contains("free"), "{message}");
}

#[test]
fn a_gguf_file_is_inspected_and_what_is_not_supported_is_named() {
    let text_of = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = [&b"GGUF\x03\0\0\0"[..], &1u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    file.extend([text_of("general.architecture"), 8u32.to_le_bytes().to_vec(), text_of("gemma4")].concat());
    file.extend([text_of("x"), 1u32.to_le_bytes().to_vec(), 256u64.to_le_bytes().to_vec()].concat());
    file.extend([&16u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat());
    file.resize(file.len().next_multiple_of(32) + 66, 0);
    let path = scratch("inspect").join("model.gguf");
    fs::write(&path, &file).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&stdout(&["inspect", text(&path), "--json"])).unwrap();
    assert_eq!((&shown["version"], &shown["metadata"]["general.architecture"]["value"]), (&3.into(), &"gemma4".into()));
    assert_eq!(shown["tensors"][0], serde_json::json!({ "name": "x", "type": "IQ2_XXS", "shape": [256], "bytes": 66 }));
    let reasons = shown["unsupported"].to_string();
    assert!(reasons.contains("tensor 'x': type IQ2_XXS is not supported") && reasons.contains("architecture 'gemma4'"), "{reasons}");
    let lines = stdout(&["inspect", text(&path)]);
    assert!(lines.contains("general.architecture = \"gemma4\"") && lines.contains("unsupported: tensor 'x'"), "{lines}");
    assert!(rejection(&["generate", "A", "--model", text(&path)]).contains("model.gguf"));
    fs::write(&path, &file[..file.len() - 1]).unwrap();
    assert!(rejection(&["inspect", text(&path)]).contains("tensor 'x': its 66 bytes at byte 0 of the data exceed the file"));
}

#[test]
fn a_model_is_converted_quantised_and_measured() {
    let folder = scratch("convert");
    let path = |name: &str| text(&folder.join(name)).to_owned();
    let (plain, small, back) = (path("plain.gguf"), path("q8.gguf"), path("back"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare");
    stdout(&["convert", text(&source), &plain]);
    let output = elinvar(&["quantize", &plain, &small, "--format", "Q8_0"]);
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && shown.contains("43 Q8_0"), "{shown}");
    assert!(shown.contains(&format!("{small} written in")), "{shown}");
    stdout(&["convert", &plain, &back]);
    let say = |model: &str| stdout(&["generate", "ROMEO:", "--greedy", "-n", "40", "--model", model]);
    let original = say(text(&source));
    assert_eq!([say(&plain), say(&back)], [original.clone(), original.clone()]);
    assert_eq!(say(&small)[..40], original[..40]);
    let wide = stdout(&["generate", "ROMEO:", "--greedy", "-n", "8", "--model", &small, "--activations", "wide"]);
    assert!(original.starts_with(wide.trim_end()), "{wide}");

    let spoken = text(&reference("greedy.txt")).to_owned();
    let measured = |model: &str| {
        let shown = stdout(&["perplexity", "--model", model, "--file", &spoken, "--context", "32", "--json"]);
        serde_json::from_str::<serde_json::Value>(&shown).unwrap()
    };
    let (exact, rounded) = (measured(&plain), measured(&small));
    assert_eq!(exact["tokens"].as_u64(), exact["windows"].as_u64().map(|windows| windows * 15));
    let perplexity = |found: &serde_json::Value| found["perplexity"].as_f64().unwrap();
    // What the model says by itself, it predicts well.
    assert!((1.0..20.0).contains(&perplexity(&exact)) && (perplexity(&rounded) / perplexity(&exact) - 1.0).abs() < 0.02, "{exact} {rounded}");
    assert!(exact["standard_error"].as_f64().unwrap() > 0.0);

    let before = fs::read(&plain).unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["quantize", &plain, &plain, "--format", "q4_0"], "is read and cannot be written"),
        (&["quantize", &plain, &back, "--format", "mlx-4bit"], "exists: give the name of a new folder"),
        (&["quantize", &plain, &small, "--format", "q4_0", "--group-size", "32"], "--group-size is for MLX's formats"),
        (&["convert", &plain, &back], "exists: give the name of a new folder"),
        (&["convert", "/nowhere", &plain], "/nowhere does not exist"),
        (&["quantize", &plain, "/nowhere/m.gguf", "--format", "q4_0"], "cannot write /nowhere/m.gguf"),
        (&["quantize", &plain, &small, "--format", "q4_0", "--importance", &plain], "no importance matrix"),
        (&["perplexity", "--model", &plain, "--file", &spoken, "--context", "512"], "give a longer text or a smaller --context"),
        (&["perplexity", "--model", &plain, "--file", "/nowhere.txt"], "cannot read /nowhere.txt"),
    ];
    for (arguments, expected) in cases {
        let output = elinvar(arguments);
        let shown = String::from_utf8(output.stderr).unwrap();
        let last = shown.lines().last().unwrap_or_default();
        assert!(!output.status.success() && last.starts_with("error: ") && last.contains(expected), "{arguments:?}: {shown}");
    }
    assert_eq!((fs::read(&plain).unwrap() == before, fs::read_dir(&folder).unwrap().count()), (true, 3));
    let unknown = String::from_utf8(elinvar(&["quantize", &plain, &small, "--format", "q4"]).stderr).unwrap();
    assert!(unknown.contains("format 'q4' is unknown") && unknown.contains(", mlx-4bit"), "{unknown}");
}

#[test]
fn benchmarks_print_json() {
    let rows: serde_json::Value =
        serde_json::from_str(&stdout(&["bench", "decode", "--shape", "tiny", "--prompt", "8", "--generate", "4", "--rounds", "1", "--json"]))
            .unwrap();
    assert_eq!((&rows[0]["test"], &rows[1]["test"]), (&"pp8".into(), &"tg4".into()));
    assert!(rows[1]["tokens_per_second"].as_f64().unwrap() > 0.0);
    let train = ["bench", "train", "--shape", "tiny", "--device", "cpu", "--steps", "1", "--length", "16"];
    let row: serde_json::Value = serde_json::from_str(&stdout(&[&train, &["--json"][..]].concat())).unwrap();
    assert!(row["tokens_per_second"].as_f64().is_some_and(|rate| rate > 0.0) && row["loss"].as_f64().is_some_and(|loss| loss > 1.0), "{row}");
    let again = ["--grad-checkpoint", "--grad-checkpoint=feed-forward"].map(|again| stdout(&[&train, &["--json", again][..]].concat()));
    let [again, feed_forward] = again.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
    assert_eq!([&again["loss"], &feed_forward["loss"]], [&row["loss"]; 2]);
    let output = elinvar(&[&train, &["--grad-checkpoint=attention"][..]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("'attention' cannot be computed again: none, layers and feed-forward can"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let profiled = elinvar(&[&train, &["--profile", folder.path().to_str().unwrap()][..]].concat());
    assert!(String::from_utf8(profiled.stderr).unwrap().contains("swiglu_gradient"));
    assert!(folder.path().join("trace.json").metadata().unwrap().len() > 1000);
    for option in ["--batch-size", "--grad-accumulation-steps", "--rank"] {
        let output = elinvar(&[&train, &[option, "0"][..]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(option) && error.contains("zero"), "{error}");
    }
}

#[test]
fn sequences_are_measured_while_all_decode() {
    // The first would have ended long before the last begins.
    let many = ["--prompt", "300", "--generate", "1,3", "--sequences", "12", "--rounds", "1", "--json"];
    let rows: serde_json::Value = serde_json::from_str(&stdout(&[&["bench", "decode", "--shape", "tiny"], &many[..]].concat())).unwrap();
    assert!(rows[3]["test"] == "12 x pp300" && rows[3]["tokens_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{rows}");
    for (index, name) in [(4, "12 x tg1"), (5, "12 x tg3")] {
        assert_eq!(rows[index]["test"], name);
        assert!(rows[index]["tokens_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{rows}");
        assert!(rows[index]["fraction_of_bandwidth"].as_f64().is_some_and(|fraction| fraction > 0.0), "{rows}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_metal_kernels_give_the_embedded_model_the_bits_of_the_cpu() {
    let folder = scratch("metal-sim");
    let logits = |device: &str| {
        let file = folder.join(format!("{device}.safetensors"));
        stdout(&["logits", "--tokens", "1,5,9,100,7,33,4,8,77,12", "--precision", "strict", "--device", device, "--output", text(&file)]);
        fs::read(file).unwrap()
    };
    assert!(logits("cpu") == logits("metal-sim"));
    let spoken = |device: &str| stdout(&["generate", "ROMEO:", "--greedy", "--max-tokens", "8", "--precision", "strict", "--device", device]);
    assert_eq!(spoken("cpu"), spoken("metal-sim"));
}
