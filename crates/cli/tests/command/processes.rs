//! Commands in several processes, as `torchrun` starts them.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_elinvar");

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A process of so many, on the CPU in strict precision.
fn start(arguments: &[&str], rank: usize, world_size: usize, port: u16, folder: Option<&Path>) -> Child {
    start_with(arguments, rank, world_size, port, folder, Stdio::null())
}

fn start_with(arguments: &[&str], rank: usize, world_size: usize, port: u16, folder: Option<&Path>, stdin: Stdio) -> Child {
    let mut command = Command::new(BINARY);
    command.args(arguments).args(["--device", "cpu", "--precision", "strict"]);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world_size.to_string()).env("LOCAL_RANK", rank.to_string());
    command.env("LOCAL_WORLD_SIZE", world_size.to_string()).env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
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
fn a_measure_of_a_text_and_its_embedding_are_those_of_one_process() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let encoder = super::embed::model("processes-encoder");
    let perplexity = ["perplexity", "--file", readme.to_str().unwrap(), "--context", "64", "--windows", "2"];
    for arguments in [&perplexity[..], &["embed", "--model", encoder.to_str().unwrap(), "w1"]] {
        let (expected, outputs) = (alone(arguments), run(arguments, 2));
        assert!(outputs.iter().all(|output| output.status.success()), "{:?}", outputs.iter().map(error).collect::<Vec<_>>());
        assert!(!expected.stdout.is_empty() && outputs[0].stdout == expected.stdout && outputs[1].stdout.is_empty(), "{arguments:?}");
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

#[test]
fn requests_are_answered_by_two_processes_as_by_one() {
    let folder = folder("processes-batch");
    let out = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let schema = json!({"type": "object", "properties": {"name": {"enum": ["Romeo", "Juliet"]}}, "required": ["name"]});
    let format = json!({"type": "json_schema", "json_schema": {"name": "who", "schema": schema}});
    let body = |index: usize| match index % 3 {
        0 => json!({"prompt": "ROMEO:", "max_tokens": 3 + index, "seed": index, "temperature": 0.5, "n": 2, "logprobs": 2}),
        1 => json!({"prompt": "JULIET:", "max_tokens": 40, "seed": index, "response_format": format}),
        _ => json!({"prompt": "Who?", "max_tokens": 9, "temperature": 0, "logit_bias": {"300": -1.25}, "presence_penalty": 0.3}),
    };
    let line = |index: usize| {
        let request = json!({"custom_id": index.to_string(), "method": "POST", "url": "/v1/completions", "body": body(index)});
        format!("{request}\n")
    };
    fs::write(folder.join("requests.jsonl"), (0..9).map(line).collect::<String>()).unwrap();
    let arguments = |name: &str| ["batch".to_owned(), out("requests.jsonl"), "--output".into(), out(name)];
    let answers = |name: &str| {
        let lines = fs::read_to_string(folder.join(name)).unwrap();
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["response"]["body"]["choices"].clone();
        lines.lines().map(line).collect::<Vec<_>>()
    };
    let succeed = |name: &str, world_size| {
        let arguments = arguments(name);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        let outputs = if world_size == 1 { vec![alone(&arguments)] } else { run(&arguments, world_size) };
        assert!(outputs.iter().all(|output| output.status.success()), "{:?}", outputs.iter().map(error).collect::<Vec<_>>());
        answers(name)
    };
    let expected = succeed("one", 1);
    assert!(expected.len() == 9 && expected[1].to_string().contains("name"), "{expected:?}");
    assert_eq!(succeed("two", 2), expected);
    // Nothing is left to do.
    assert_eq!(succeed("two", 2), expected);
}

#[test]
fn a_conversation_is_read_by_the_first_process() {
    let (port, text) = (port(), b"Who comes?\n/clear\nWhere?\n");
    let talk = |mut child: Child| {
        child.stdin.as_mut().unwrap().write_all(text).unwrap();
        drop(child.stdin.take());
        child
    };
    let template = folder("processes-chat").join("play.jinja");
    fs::write(&template, "{% for message in messages %}{{ message.content }}\n\n{% endfor %}").unwrap();
    let arguments = ["chat", "--max-tokens", "6", "--quiet", "--seed", "1", "--context", "100", "--template", template.to_str().unwrap()];
    let alone =
        Command::new(BINARY).args(arguments).args(["--device", "cpu", "--precision", "strict"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let alone = talk(alone.unwrap()).wait_with_output().unwrap();
    let other = start(&arguments, 1, 2, port, None);
    let first = talk(start_with(&arguments, 0, 2, port, None, Stdio::piped())).wait_with_output().unwrap();
    let other = other.wait_with_output().unwrap();
    assert!(first.status.success() && other.status.success(), "{} {}", error(&first), error(&other));
    assert_eq!(String::from_utf8_lossy(&first.stdout), String::from_utf8_lossy(&alone.stdout));
    assert!(!alone.stdout.is_empty() && other.stdout.is_empty());
}

/// A server of two processes, and its address.
fn serve() -> ([Child; 2], String) {
    let port = port();
    let mut processes = [0, 1].map(|rank| start(&["serve", "--port", "0"], rank, 2, port, None));
    let lines = BufReader::new(processes[0].stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.filter_map(|line| line.split_once("on http://").map(|(_, address)| address.to_owned())).next().unwrap();
    (processes, address)
}

fn ask(address: &str) -> String {
    let (mut stream, body) = (TcpStream::connect(address).unwrap(), r#"{"prompt": "ROMEO:", "max_tokens": 6, "temperature": 0}"#);
    let length = body.len();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn two_processes_serve_and_end_together() {
    let (processes, address) = serve();
    let answer = ask(&address);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // As `torchrun` ends them: the second waits for the first.
    for process in processes.iter().rev() {
        assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    }
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{:?} {}", output.status, error(&output));
    }
}

#[test]
fn a_server_whose_other_process_is_killed_ends() {
    let ([mut first, mut second], address) = serve();
    let answer = ask(&address);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    second.kill().unwrap();
    second.wait().unwrap();
    let start = Instant::now();
    assert_eq!(first.wait().unwrap().code(), Some(2));
    assert!(start.elapsed() < Duration::from_secs(10));
}
