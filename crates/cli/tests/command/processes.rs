//! Commands in several processes, as `torchrun` starts them.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

const BINARY: &str = env!("CARGO_BIN_EXE_elinvar");

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process of so many, on the CPU in strict precision.
fn start(arguments: &[&str], rank: usize, world_size: usize, port: u16, folder: Option<&Path>) -> Child {
    let mut command = Command::new(BINARY);
    command.args(arguments).args(["--device", "cpu", "--precision", "strict"]);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world_size.to_string()).env("LOCAL_RANK", rank.to_string());
    command.env("LOCAL_WORLD_SIZE", world_size.to_string()).env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What each of so many processes gives.
fn run(arguments: &[&str], world_size: usize) -> Vec<Output> {
    let port = port();
    let children: Vec<_> = (0..world_size).map(|rank| start(arguments, rank, world_size, port, None)).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn alone(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).args(["--device", "cpu", "--precision", "strict"]).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn several_processes_give_what_one_does_and_the_first_prints_it() {
    let arguments = ["generate", "ROMEO:", "-n", "12", "--seed", "3"];
    let expected = alone(&arguments);
    for world_size in [2, 4] {
        let outputs = run(&arguments, world_size);
        assert!(outputs.iter().all(|output| output.status.success()), "{:?}", outputs.iter().map(error).collect::<Vec<_>>());
        assert_eq!(String::from_utf8_lossy(&outputs[0].stdout), String::from_utf8_lossy(&expected.stdout));
        assert!(outputs[1..].iter().all(|output| output.stdout.is_empty() && output.stderr.is_empty()));
    }
}

#[test]
fn several_processes_write_the_files_that_one_does_and_go_on_with_a_training() {
    let (folder, root) = (folder("processes-files"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let recipes = root.join("examples/recipes");
    let out = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let logits = |name: &str| ["logits".to_owned(), "--tokens".into(), "1,5,9".into(), "--output".into(), out(name)];
    let train = |name: &str, steps: &str| {
        let data = ["lora", "train", "--data", recipes.to_str().unwrap()].map(str::to_owned);
        let rest = ["--num-layers", "1", "--batch-size", "1", "--grad-accumulation-steps", "2", "--iters", steps].map(str::to_owned);
        [&data[..], &rest[..], &["--adapter-path".to_owned(), out(name)]].concat()
    };
    let succeed = |arguments: Vec<String>, world_size: usize| {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let outputs = if world_size == 1 { vec![alone(&arguments)] } else { run(&arguments, world_size) };
        assert!(outputs.iter().all(|output| output.status.success()), "{:?}", outputs.iter().map(error).collect::<Vec<_>>());
    };
    succeed(logits("one").to_vec(), 1);
    succeed(logits("two").to_vec(), 2);
    assert!(fs::read(out("one")).unwrap() == fs::read(out("two")).unwrap());
    succeed(train("trained", "3"), 1);
    succeed(train("together", "2"), 2);
    succeed([train("together", "3"), vec!["--resume".to_owned()]].concat(), 2);
    let adapter = |name: &str| fs::read(folder.join(name).join("adapter_model.safetensors")).unwrap();
    assert!(adapter("trained") == adapter("together"));
}

#[test]
fn processes_that_differ_or_cannot_share_a_command_say_so() {
    let port = port();
    let processes = [0, 1].map(|rank| start(&["generate", "ROMEO:", "--seed", &rank.to_string()], rank, 2, port, None));
    for (rank, process) in processes.into_iter().enumerate() {
        let expected = format!("error: process {rank} of 2: process 1 has another command line than process 0: give all processes the same");
        let output = process.wait_with_output().unwrap();
        assert_eq!((output.status.code(), error(&output)), (Some(2), expected));
    }
    let refused = start(&["op", "arange", "--attr", "limit=4", "--output", "x"], 0, 2, port, None).wait_with_output().unwrap();
    assert!(error(&refused).contains("WORLD_SIZE is 2, and this command runs in one process"), "{}", error(&refused));
}

#[test]
fn processes_with_other_weights_say_so() {
    let root = folder("processes-weights");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare");
    for name in ["first", "second"] {
        let model = root.join(name).join("model");
        fs::create_dir_all(&model).unwrap();
        for file in ["config.json", "tokenizer.json", "model.safetensors"] {
            fs::copy(source.join(file), model.join(file)).unwrap();
        }
    }
    let changed = root.join("second/model/model.safetensors");
    let mut weights = fs::read(&changed).unwrap();
    let header = usize::try_from(u64::from_le_bytes(weights[..8].try_into().unwrap())).unwrap();
    weights[8 + header + 100] ^= 1;
    fs::write(&changed, weights).unwrap();
    let port = port();
    let place = |rank: usize| root.join(["first", "second"][rank]);
    let processes = [0, 1].map(|rank| start(&["logits", "--model", "model", "--tokens", "1", "--output", "x"], rank, 2, port, Some(&place(rank))));
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(error(&output).ends_with("process 1 has another model than process 0: give all processes the same"), "{}", error(&output));
    }
}

#[test]
fn a_process_that_is_killed_ends_the_others() {
    let port = port();
    let mut processes = [0, 1, 2, 3].map(|rank| start(&["generate", "ROMEO:", "-n", "480"], rank, 4, port, None));
    // The first text of many.
    processes[0].stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    let start = Instant::now();
    processes[1].kill().unwrap();
    let [first, killed, third, last] = processes.map(|process| process.wait_with_output().unwrap());
    assert!(start.elapsed() < Duration::from_secs(10) && !killed.status.success());
    for output in [first, third, last] {
        assert_eq!(output.status.code(), Some(2));
        assert!(error(&output).contains("process 1 ended without a word: it was killed"), "{}", error(&output));
    }
}
