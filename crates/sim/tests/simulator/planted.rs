//! Planted bugs: each is reported, at its line, under every seed; nothing else is, and nothing of sound kernels.

use elinvar_msl::ParameterKind;
use elinvar_sim::{Binding, Dispatch, FindingKind, Grid, Output, Pipeline, Report};

use crate::common::{buffer, library, queue, run, simulator};

const SEEDS: [u64; 5] = [0, 1, 2, 3, 4];

/// A kernel of the file.
#[derive(Debug, Default)]
struct Planted {
    name: String,
    groups: u32,
    threads: u32,
    n: u32,
    unchecked: bool,
    /// Lines and kinds that may be reported; at least one must.
    expected: Vec<(u32, String)>,
}

fn planted(text: &str) -> Vec<Planted> {
    let mut all: Vec<Planted> = Vec::new();
    let mut shared: Vec<(u32, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(launch) = line.strip_prefix("// launch: ") {
            all.push(launch_of(launch));
        } else if let Some(rest) = line.strip_prefix("kernel void ") {
            all.last_mut().unwrap().name = rest.split('(').next().unwrap().to_owned();
        }
        if let Some((_, kind)) = line.split_once("// expect: ") {
            let kinds = kind.split(',').next().unwrap().split(" | ").map(|kind| (at as u32 + 1, kind.to_owned()));
            // A helper's line stands for every kernel that calls it.
            if kind == "stack-overflow" { shared.extend(kinds) } else { all.last_mut().unwrap().expected.extend(kinds) }
        }
    }
    all.iter_mut().filter(|planted| planted.name.starts_with("recurses")).for_each(|planted| planted.expected = shared.clone());
    all
}

fn launch_of(text: &str) -> Planted {
    let mut parts = text.split(", ");
    let (groups, threads) = parts.next().unwrap().split_once(" x ").unwrap();
    let mut planted = Planted { groups: groups.parse().unwrap(), threads: threads.parse().unwrap(), ..Planted::default() };
    for part in parts {
        match part.strip_prefix("n = ") {
            Some(n) => planted.n = n.parse().unwrap(),
            None => planted.unchecked = part == "unchecked",
        }
    }
    planted
}

fn dispatch(planted: &Planted, pipeline: &Pipeline) -> Dispatch {
    let numbers = [1f32; 256];
    let mut dispatch = Dispatch::new(pipeline, Grid::Threadgroups([planted.groups, 1, 1]), [planted.threads, 1, 1]);
    for parameter in &pipeline.kernel().parameters {
        let name = parameter.name.as_str();
        dispatch = match (&parameter.kind, name) {
            (ParameterKind::Buffer { index, .. }, "n") => dispatch.with_bytes(*index, planted.n.to_le_bytes()),
            (ParameterKind::Buffer { index, .. }, "fresh") => dispatch.with(Binding::new(*index, &simulator().buffer(name, 1024).unwrap())),
            (ParameterKind::Buffer { index, .. }, "out") => {
                dispatch.with(Binding::new(*index, &simulator().buffer(name, 1024).unwrap()).output(Output::Whole))
            }
            (ParameterKind::Buffer { index, .. }, _) => dispatch.with(Binding::new(*index, &buffer(name, &numbers))),
            (ParameterKind::Threadgroup { index, .. }, _) => dispatch.with_threadgroup_memory(*index, 128),
            _ => dispatch,
        };
    }
    dispatch
}

fn reported(report: &Report) -> Vec<(u32, String)> {
    report.findings.iter().map(|finding| (finding.at.as_ref().map_or(0, |at| at.line), finding.kind.to_string())).collect()
}

/// What is reported of the kernels of `file` against what is expected.
fn wrong(file: &'static str, text: &str) -> Vec<String> {
    let queue = queue();
    let mut wrong = Vec::new();
    let planted = planted(text);
    for unchecked in [false, true] {
        let names: Vec<&str> = planted.iter().filter(|planted| planted.unchecked == unchecked).map(|planted| planted.name.as_str()).collect();
        library(file, !unchecked).pipelines(&names).unwrap();
    }
    for planted in planted {
        let pipeline = library(file, !planted.unchecked).pipeline(&planted.name, &[]).unwrap();
        for seed in SEEDS {
            let report = run(&queue, dispatch(&planted, &pipeline), seed);
            let reported = reported(&report);
            let right = reported.iter().all(|finding| planted.expected.contains(finding)) && reported.is_empty() == planted.expected.is_empty();
            if !right {
                let shown: Vec<String> = report.findings.iter().map(|finding| format!("\n    {finding}")).collect();
                wrong.push(format!("{} (seed {seed}): expected {:?}, reported{}", planted.name, planted.expected, shown.concat()));
            }
        }
    }
    wrong
}

#[test]
fn every_planted_bug_is_reported_at_its_line_and_nothing_else() {
    let wrong = wrong("planted.metal", include_str!("../kernels/planted.metal"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sound_kernels_have_no_finding() {
    let wrong = wrong("sound.metal", include_str!("../kernels/sound.metal"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_file_plants_every_kind() {
    let planted = planted(include_str!("../kernels/planted.metal"));
    for kind in FindingKind::ALL {
        assert!(planted.iter().flat_map(|planted| &planted.expected).any(|(_, expected)| expected == kind.name()), "{kind}");
    }
}
