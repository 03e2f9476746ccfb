//! Batches, as a user runs them.

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};

/// A folder of its own for each test.
fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn command(folder: &Path, output: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.current_dir(folder).args(["batch", "requests.jsonl", "--device", "cpu", "--output", output]);
    command
}

fn run(folder: &Path, output: &str) -> Output {
    command(folder, output).output().unwrap()
}

/// Requests of both kinds; each seventh is one that no server answers.
fn write_requests(folder: &Path, count: usize) {
    let mut text = String::new();
    for index in 0..count {
        let (url, body) = match index % 7 {
            3 => ("/v1/completions", json!({"prompt": "ROMEO:", "max_tokens": -1})),
            5 => ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "Who comes?"}], "max_tokens": 6, "seed": index})),
            _ => ("/v1/completions", json!({"prompt": "ROMEO:", "max_tokens": 1 + index % 8, "seed": index, "logprobs": 1})),
        };
        writeln!(text, "{}", json!({"custom_id": format!("request {index}"), "method": "POST", "url": url, "body": body})).unwrap();
    }
    fs::write(folder.join("requests.jsonl"), text).unwrap();
}

/// Of each line: whose answer it is, its status, and what does not depend on the time.
fn answers(folder: &Path, output: &str) -> Vec<(Value, Value, Value)> {
    let text = fs::read_to_string(folder.join(output)).unwrap();
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let mut response = value["response"].take();
        let body = response["body"].take();
        let part = if body["error"].is_null() { "choices" } else { "error" };
        (value["custom_id"].take(), response["status_code"].take(), body[part].clone())
    };
    text.lines().map(line).collect()
}

#[test]
fn a_batch_that_is_killed_loses_and_repeats_nothing() {
    const COUNT: usize = 42;
    let folder = scratch("killed_batch");
    write_requests(&folder, COUNT);
    let whole = run(&folder, "whole.jsonl");
    let summary = String::from_utf8(whole.stderr).unwrap();
    assert_eq!((whole.status.code(), summary.trim()), (Some(1), "42 requests · 0 were answered before · 6 errors"));
    let expected = answers(&folder, "whole.jsonl");
    assert_eq!(expected.len(), COUNT);
    for (index, (name, status, answer)) in expected.iter().enumerate() {
        assert_eq!((name, status), (&json!(format!("request {index}")), &json!(if index % 7 == 3 { 400 } else { 200 })));
        assert!(index % 7 != 3 || answer["param"] == "max_tokens", "{answer}");
        assert!(index % 7 == 3 || answer[0]["finish_reason"].is_string(), "{answer}");
    }

    let lines = || fs::read(folder.join("killed.jsonl")).map_or(0, |bytes| bytes.iter().filter(|&&byte| byte == b'\n').count());
    let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
    let mut kills = 0;
    for limit in [1, 8, 20, 33] {
        let mut child = command(&folder, "killed.jsonl").args(["--concurrency", "4"]).stderr(Stdio::null()).spawn().unwrap();
        while lines() < limit && !ended(&mut child) {
            sleep(Duration::from_millis(1));
        }
        kills += usize::from(!ended(&mut child));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(kills >= 2, "{kills} of the runs were killed");
    // As if the last had been killed while it wrote.
    let output = folder.join("killed.jsonl");
    let torn = fs::read(&output).unwrap();
    fs::write(&output, &torn[..torn.len() - 9]).unwrap();
    assert_eq!(run(&folder, "killed.jsonl").status.code(), Some(1));
    assert_eq!(answers(&folder, "killed.jsonl"), expected);
}

#[test]
fn what_is_no_batch_is_rejected_before_a_model_is_loaded() {
    let folder = scratch("bad_batch");
    write_requests(&folder, 2);
    let rejection = |expected: &str| {
        let output = run(&folder, "results.jsonl");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && text.starts_with("error: ") && text.trim_end().lines().count() == 1 && text.contains(expected),
            "{text}"
        );
    };
    fs::write(folder.join("results.jsonl"), "{\"id\":\"batch_req_of_others\",\"custom_id\":\"request 0\",\"response\":{\"status_code\":200}}\n")
        .unwrap();
    rejection("results.jsonl, line 1: not the answer to request 1 of the input");
    let requests = fs::read_to_string(folder.join("requests.jsonl")).unwrap();
    fs::write(folder.join("requests.jsonl"), requests.replace("request 1", "request 0")).unwrap();
    rejection("requests.jsonl, line 2: custom_id \"request 0\" is that of line 1, too");
    fs::write(folder.join("requests.jsonl"), format!("{requests}{{")).unwrap();
    rejection("requests.jsonl, line 3: not a request");
}
