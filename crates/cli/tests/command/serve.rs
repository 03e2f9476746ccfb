//! The server, as a user starts it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_elinvar"))
}

fn serve() -> Command {
    let mut command = command();
    command.args(["serve", "--device", "cpu", "--port", "0"]);
    command
}

fn output(arguments: &[&str]) -> Output {
    serve().args(arguments).output().unwrap()
}

/// Ends with the test, also when it fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The status line of an answer.
fn status(address: &str, path: &str, key: Option<&str>) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let key = key.map_or_else(String::new, |key| format!("Authorization: Bearer {key}\r\n"));
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{key}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn keys_come_from_a_file() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keys");
    let name = file.to_str().unwrap();
    fs::write(&file, "\n first-key \nsecond-key\n").unwrap();
    let mut server = Running(serve().args(["--api-key-file", name]).stderr(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines.filter_map(|line| line.split_once("on http://").map(|(_, address)| address.to_owned())).next().unwrap();
    for (key, expected) in
        [(None, "401"), (Some("first-key"), "200"), (Some("second-key"), "200"), (Some("first-key "), "200"), (Some("third"), "401")]
    {
        assert!(status(&address, "/v1/models", key).starts_with(&format!("HTTP/1.1 {expected}")), "{key:?}");
    }
    assert!(status(&address, "/", None).starts_with("HTTP/1.1 200"));

    fs::write(&file, "\n").unwrap();
    for (file, expected) in [(name, "keys has no API key: write one on each line"), ("no/such/file", "cannot read API keys from no/such/file")] {
        let text = String::from_utf8(output(&["--api-key-file", file]).stderr).unwrap();
        assert!(text.starts_with("error: ") && text.contains(expected), "{text}");
    }
}

#[test]
fn a_plan_is_printed_for_a_device_that_is_not_there() {
    let text = String::from_utf8(output(&["--plan", "--memory", "1GiB", "--cache-tokens", "4096"]).stdout).unwrap();
    assert!(text.starts_with("shakespeare, context of 512 tokens\n  weights   9.4 MiB\n"), "{text}");
    assert!(text.contains("  cache     12.0 MiB, 128 pages of 32 tokens in 96.0 KiB\n  requests  8 of 512 tokens; 64"), "{text}");
    assert!(text.trim_end().ends_with(" of 1.0 GiB"), "{text}");
    assert_eq!(output(&["--memory", "1GiB"]).status.code(), Some(2));
    // A draft model takes as much again, and has its part of each page.
    let draft = ["--draft-model", concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/shakespeare")];
    let text = String::from_utf8(output(&[&["--plan", "--memory", "1GiB", "--cache-tokens", "4096"], &draft[..]].concat()).stdout).unwrap();
    assert!(text.starts_with("shakespeare, context of 512 tokens\n  weights   18.9 MiB\n"), "{text}");
    assert!(text.contains("  cache     24.0 MiB, 128 pages of 32 tokens in 192.0 KiB\n"), "{text}");
    // What does not fit is rejected by the same figures, of each rank of a group: 12 TiB are more than a machine has.
    let large = ["--step-tokens", "160000000"];
    let figures = |text: &str| text.split(" do not fit into ").next().unwrap().trim_start_matches("error: ").to_owned();
    let mut all = Vec::new();
    for device in ["cpu", "cpu,cpu"] {
        for more in [&[][..], &draft] {
            let arguments = [&["--device", device], &large[..], more].concat();
            let run = |last: &[&str]| command().arg("serve").args(&arguments).args(last).output().unwrap();
            let (plan, rejected) = (String::from_utf8(run(&["--plan"]).stdout).unwrap(), run(&["--port", "0"]));
            let (text, plan) = (String::from_utf8(rejected.stderr).unwrap(), plan.lines().last().unwrap().to_owned());
            assert!(rejected.status.code() == Some(2) && text.contains(" do not fit into ") && figures(&text) == figures(&plan), "{text} {plan}");
            all.push(figures(&text).trim_end_matches(" TiB").parse::<f64>().unwrap());
        }
    }
    let [one, drafted, of_rank, drafted_of_rank] = all[..] else { panic!("{all:?}") };
    let is_twice = |more: f64, less: f64| (more / less - 2.0).abs() < 0.02;
    assert!(of_rank < one && is_twice(drafted, one) && is_twice(drafted_of_rank, of_rank), "{all:?}");
}
