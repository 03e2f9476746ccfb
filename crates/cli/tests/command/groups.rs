//! Commands on two devices as on one.

use std::{fs, path::Path, process::Command};

use super::embed;

/// What a command writes to standard output, and to a file if it writes one to `OUT`.
fn run(arguments: &[&str], devices: &str, name: &str) -> Vec<u8> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{devices}"));
    let _ = fs::remove_file(&out);
    let _ = fs::remove_dir_all(&out);
    let arguments = arguments.iter().map(|argument| if *argument == "OUT" { out.to_str().unwrap() } else { argument });
    let output = Command::new(env!("CARGO_BIN_EXE_elinvar")).args(arguments).args(["--devices", devices]).output().unwrap();
    assert!(output.status.success(), "{name} on {devices}: {}", String::from_utf8_lossy(&output.stderr));
    let file = if out.is_dir() {
        Some(out.join("adapter_model.safetensors")).filter(|file| file.exists()).unwrap_or(out.join("model.safetensors"))
    } else {
        out
    };
    fs::read(file).unwrap_or(output.stdout)
}

#[test]
fn every_command_that_computes_takes_several_devices() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("groups");
    fs::create_dir_all(&folder).unwrap();
    let requests = folder.join("requests.jsonl");
    let request =
        r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "ROMEO:", "max_tokens": 4, "temperature": 0}}"#;
    fs::write(&requests, request).unwrap();
    let (recipes, readme, saxpy) = (path("examples/recipes"), path("README.md"), path("examples/saxpy.atlas"));
    let encoder = embed::model("groups-encoder");
    let strict = |arguments: &str| -> Vec<String> { arguments.split(' ').chain(["--precision", "strict"]).map(str::to_owned).collect() };
    let plain = |arguments: &str| -> Vec<String> { arguments.split(' ').map(str::to_owned).collect() };
    let train = format!("lora train --data {recipes} --adapter-path OUT --iters 2 --num-layers 1 --batch-size 1 --grad-accumulation-steps 2");
    // What `train` wrote on one device.
    let adapter = Path::new(env!("CARGO_TARGET_TMPDIR")).join("groups-train-cpu");
    let commands = [
        ("generate", strict("generate ROMEO: -n 6 --seed 3")),
        ("logits", strict("logits --tokens 1,5,9 --output OUT")),
        ("perplexity", strict(&format!("perplexity --file {readme} --context 64 --windows 4"))),
        ("train", strict(&train)),
        ("test", strict(&format!("lora test --data {recipes} --adapter-path {} --json", adapter.display()))),
        ("fuse", strict(&format!("lora fuse --adapter-path {} --save-path OUT", adapter.display()))),
        ("embed", strict(&format!("embed --model {} w1", encoder.display()))),
        ("op", strict("op arange --attr limit=4 --output OUT")),
        ("run", plain(&format!("run {saxpy} --threads 100 --buffer x=f32:100 --buffer y=f32:100:1 --scalar a=2 --scalar n=100 --save OUT"))),
        ("batch", plain(&format!("batch {} --output OUT", requests.display()))),
    ];
    for (name, arguments) in commands {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let on = |devices: &str| run(&arguments, devices, &format!("groups-{name}"));
        let (one, two) = (on("cpu"), on("cpu,cpu"));
        // Each answer of a batch has an id and a time of its own.
        let text = |answer: &[u8]| serde_json::from_slice::<serde_json::Value>(answer).unwrap()["response"]["body"]["choices"].to_string();
        if name == "batch" { assert_eq!(text(&one), text(&two)) } else { assert!(one == two && !one.is_empty(), "{name}") }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_kernel_is_launched_on_two_simulated_gpus() {
    let on = |devices: &str| run(&[super::LAUNCH, &["--save", "OUT"]].concat(), devices, "groups-launch");
    assert_eq!(on("metal-sim,metal-sim"), on("metal-sim"));
}

#[test]
fn steps_that_devices_cannot_share_are_one_line() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("groups-unshared");
    let recipes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/recipes");
    let arguments = ["lora", "train", "--devices", "cpu,cpu", "--data", recipes.to_str().unwrap(), "--adapter-path", folder.to_str().unwrap()];
    let output = Command::new(env!("CARGO_BIN_EXE_elinvar")).args(arguments).output().unwrap();
    let expected = "error: 1 batch of a step cannot be shared by 2 devices: use 1, or a multiple of 2 batches (--grad-accumulation-steps)\n";
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()), (Some(2), expected));
}
