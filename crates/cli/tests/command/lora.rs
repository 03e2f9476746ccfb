//! `elinvar lora` as a user runs it, on the embedded model.

use std::{
    ffi::OsStr,
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.args(arguments);
    command
}

fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    command(arguments).output().unwrap()
}

#[track_caller]
fn stdout<S: AsRef<OsStr> + Debug>(arguments: &[S]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn rejection<S: AsRef<OsStr> + Debug>(arguments: &[S]) -> String {
    let output = run(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.starts_with("error: ") && text.trim_end().lines().count() == 1, "{arguments:?}: {text}");
    text
}

struct Scratch(PathBuf);

impl Scratch {
    /// A folder of its own, with a data set of two lines.
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let lines = "{\"text\": \"Take butter, salt and leeks.\"}\n{\"prompt\": \"Stir\", \"completion\": \" the soup for ten minutes.\"}\n";
        fs::write(folder.join("train.jsonl"), lines).unwrap();
        fs::write(folder.join("test.jsonl"), lines).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }
}

#[test]
fn a_training_that_was_killed_goes_on_with_the_same_bits_and_its_adapter_speaks() {
    let scratch = Scratch::new("lora");
    let (data, whole, killed) = (scratch.path(""), scratch.path("whole"), scratch.path("killed"));
    // The options of the one are those of a file to the other.
    let given = ["lora", "train", "--data", &data, "--adapter-path", &whole, "--iters", "5", "--batch-size", "2", "--learning-rate", "1e-2"];
    let profile = scratch.path("profile");
    let more = ["--num-layers", "2", "--save-every", "1", "--lora-dropout", "0.2", "--profile", &profile];
    let file = format!("data: {data:?}\nadapter_path: {killed:?}\niters: 6\nbatch_size: 2\nlearning_rate: 1e-2\nnum_layers: 2\nsave_every: 1\n");
    fs::write(scratch.path("config.yaml"), file + "lora_parameters: {rank: 8, scale: 2.0, dropout: 0.2}\n").unwrap();
    let config = scratch.path("config.yaml");
    let train = |more: &[&str]| {
        ["lora", "train", "--config", &config, "--iters", "5"].iter().chain(more).map(|argument| (*argument).to_owned()).collect::<Vec<_>>()
    };
    let output = run(&given.iter().chain(&more).collect::<Vec<_>>());
    let [said, tables] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{tables}");
    assert!(["\nstep 1 ", "\nsteps 2 to 5 "].iter().all(|part| tables.contains(part)), "{tables}");
    assert!(scratch.file("profile/trace.json").starts_with(b"{"));
    assert!(said.contains("step 5: loss ") && said.ends_with(&format!("use it with `elinvar generate --adapter {whole}`\n")), "{said}");
    let mut child = command(&train(&[])).stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !Path::new(&killed).join("checkpoint.safetensors").exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "no checkpoint is written");
        thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(rejection(&train(&[])).contains("has a training already: --resume goes on with it"));
    stdout(&train(&["--resume"]));
    for file in ["adapter_model.safetensors", "checkpoint.safetensors"] {
        assert!(scratch.file(&format!("whole/{file}")) == scratch.file(&format!("killed/{file}")), "{file}");
    }
    assert!(scratch.file("whole/loss.png").starts_with(b"\x89PNG"));

    let again = ["lora", "train", "--data", &data, "--adapter-path", &scratch.path("again"), "--resume-adapter-file", &whole];
    let again = |more: &[&str]| again.iter().chain(more).map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
    assert!(rejection(&again(&["--rank", "4"])).contains("--rank 4: the adapter has 8, and --resume-adapter-file keeps it"));
    assert!(rejection(&again(&["--scale", "3"])).contains("--scale 3: the adapter has 2"));
    stdout(&again(&["--rank", "8", "--scale", "2", "--iters", "1", "--pack"]));

    let loss = |more: &[&str]| {
        let all = ["lora", "test", "--data", &data, "--json"].iter().chain(more).copied().collect::<Vec<_>>();
        serde_json::from_str::<serde_json::Value>(&stdout(&all)).unwrap()["loss"].as_f64().unwrap()
    };
    let (fused, base) = (scratch.path("fused"), loss(&[]));
    let adapted = loss(&["--adapter-path", &whole]);
    assert!(adapted < 0.8 * base, "{adapted} instead of {base}");
    stdout(&["lora", "fuse", "--adapter-path", &whole, "--save-path", &fused]);
    let found = loss(&["--model", &fused]);
    assert!((found - adapted).abs() < 0.01 * adapted, "{found} instead of {adapted}");
    let speak = |more: &[&str]| stdout(&["generate", "Take", "--greedy", "-n", "8"].iter().chain(more).copied().collect::<Vec<_>>());
    assert_ne!(speak(&["--adapter", &whole]), speak(&[]));
}

#[test]
fn preferences_are_learned_from_pairs() {
    let scratch = Scratch::new("lora-pairs");
    let line = "{\"prompt\": \"Stir\", \"chosen\": \" the soup.\", \"rejected\": \" no more, my lord.\"}\n";
    fs::write(scratch.0.join("train.jsonl"), line).unwrap();
    fs::write(scratch.0.join("valid.jsonl"), line).unwrap();
    let (data, folder) = (scratch.path(""), scratch.path("adapter"));
    let fixed = ["lora", "train", "--data", &data, "--adapter-path", &folder, "--loss", "dpo", "--iters", "4", "--batch-size", "1"];
    let said = stdout(&fixed.iter().chain(&["--num-layers", "1", "--learning-rate", "1e-2", "--tensorboard"]).copied().collect::<Vec<_>>());
    assert!(
        said.contains("memory beside the model: about ")
            && said.contains("parameters on 1 pairs")
            && said.contains(" margin ")
            && said.contains("step 4: validation loss 0."),
        "{said}"
    );
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let events: Vec<_> = names.filter(|name| name.starts_with("events.out.tfevents.")).collect();
    let events = scratch.file(&format!("adapter/{}", events[0]));
    assert!(["rewards/margins", "validation_loss"].iter().all(|tag| events.windows(tag.len()).any(|window| window == tag.as_bytes())));
    let log = String::from_utf8(scratch.file("adapter/log.jsonl")).unwrap();
    let step: serde_json::Value = serde_json::from_str(log.lines().nth(3).unwrap()).unwrap();
    assert!(step["rewards/accuracies"] == 1.0 && step["rewards/margins"].as_f64().unwrap() > 0.0 && step["loss"].as_f64().unwrap() < 0.693, "{log}");
}

#[test]
fn what_cannot_be_trained_is_rejected_in_one_line() {
    let scratch = Scratch::new("lora-rejected");
    let (data, folder) = (scratch.path(""), scratch.path("adapter"));
    let train =
        |more: &[&str]| rejection(&["lora", "train", "--data", &data, "--adapter-path", &folder].iter().chain(more).copied().collect::<Vec<_>>());
    assert!(train(&["--target-modules", "q_proj,query"]).contains("'query', which is nothing in the model"));
    assert!(train(&["--max-seq-length", "5"]).contains("train.jsonl, line 1: "));
    assert!(train(&["--max-seq-length", "513"]).contains("the model's context has 512 tokens"));
    assert!(train(&["--resume"]).contains("has no checkpoint to go on from"));
    fs::write(scratch.0.join("config.yaml"), "seed: 1\nlora_rank: 3\n").unwrap();
    assert!(train(&["--config", &scratch.path("config.yaml")]).contains("config.yaml: line 2: 'lora_rank': unknown key: known are adapter_path, "));
    assert!(train(&["--lora-dropout", "1"]).contains("a dropout of 1: from 0 to less than 1 expected"));
    assert!(train(&["--lora-dropout", "0.5", "--fine-tune-type", "full"]).contains("a dropout would have no effect"));
    assert!(train(&["--fine-tune-type", "full", "--rank", "4"]).contains("--rank is of low-rank matrices: with --fine-tune-type full it would"));
    assert!(rejection(&["lora", "train"]).contains("no data: give --data FOLDER"));
    assert!(train(&["--learning-rate", "0"]).contains("would change nothing"));
    assert!(train(&["--beta", "0.2"]).contains("--beta is for --loss dpo"));
    assert!(train(&["--loss", "dpo"]).contains("train.jsonl, line 1: no 'prompt', 'chosen' and 'rejected'"));
    assert!(rejection(&["generate", "--adapter", &data]).contains("an adapter is a folder with adapter_config.json"));
    fs::write(scratch.0.join("train.jsonl"), "{\"text\": \"a b c\"}\n{\"text\"}\n").unwrap();
    assert!(train(&[]).contains("train.jsonl, line 2: no JSON"));
}
