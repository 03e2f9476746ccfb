//! Launches over threads that threadgroups do not divide: those at the end are smaller, and behave as Metal says.

use elinvar_sim::{Binding, Dispatch, Finding, FindingKind, Grid, Output};

use crate::{
    common::{
        buffer, library,
        nonuniform::{Case, cases},
        queue, run, simulator, values,
    },
    execution::both,
};

#[test]
fn an_unguarded_kernel_is_in_bounds_over_threads_and_out_of_bounds_over_threadgroups() {
    const N: usize = 10_000;
    let (a, b): (Vec<f32>, Vec<f32>) = (0..N).map(|i| (i as f32, 0.5 * i as f32)).unzip();
    let queue = queue();
    let sums = |checked, seed, grid| {
        let pipeline = library("nonuniform.metal", checked).pipeline("vector_add", &[]).unwrap();
        let c = simulator().buffer("c", 4 * N).unwrap();
        let dispatch = Dispatch::new(&pipeline, grid, [256, 1, 1]);
        let dispatch = dispatch.with(Binding::new(0, &buffer("a", &a))).with(Binding::new(1, &buffer("b", &b)));
        (run(&queue, dispatch.with(Binding::new(2, &c).output(Output::Whole)), seed), values::<f32>(&c))
    };
    both(|checked, seed| {
        let (report, c) = sums(checked, seed, Grid::Threads([N as u32, 1, 1]));
        assert_eq!((report.findings.as_slice(), report.threads), (&[][..], N as u64));
        assert!(c.iter().enumerate().all(|(i, c)| *c == 1.5 * i as f32));
    });
    let (report, _) = sums(true, 0, Grid::Threadgroups([40, 1, 1]));
    assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::OutOfBoundsRead && finding.count == 240), "{:?}", report.findings);
}

#[test]
fn threads_that_do_not_exist_take_no_part() {
    let (queue, cases) = (queue(), cases());
    both(|checked, seed| {
        for Case { kernel, threads, threadgroup, x, out } in &cases {
            let pipeline = library("nonuniform.metal", checked).pipeline(kernel, &[]).unwrap();
            let written = simulator().buffer("out", 4 * out.len()).unwrap();
            let dispatch = Dispatch::new(&pipeline, Grid::Threads(*threads), *threadgroup).with(Binding::new(0, &buffer("x", x)));
            let launch = format!("{kernel} over {threads:?} by {threadgroup:?}");
            assert_eq!(run(&queue, dispatch.with(Binding::new(1, &written).output(Output::Whole)), seed).findings, [], "{launch}");
            let (width, found) = (out.len() / x.len(), values::<u32>(&written));
            let first = found.iter().zip(out).position(|(found, expected)| found != expected);
            assert_eq!(first.map(|at| (at / width, at % width, found[at], out[at])), None, "{launch}: thread, number, found, expected");
        }
    });
}

#[test]
fn a_smaller_threadgroup_has_its_races_and_its_divergence() {
    let queue = queue();
    let findings = |kernel, threads: u32| {
        let pipeline = library("nonuniform.metal", true).pipeline(kernel, &[]).unwrap();
        let out = simulator().buffer("out", 4 * threads as usize).unwrap();
        run(&queue, Dispatch::new(&pipeline, Grid::Threads([threads, 1, 1]), [64, 1, 1]).with(Binding::new(1, &out)), 0).findings
    };
    assert!(findings("races", 5).iter().any(|finding| finding.kind == FindingKind::DataRace));
    assert_eq!(findings("races", 1), [], "one thread has no other to race with");
    let divergent = findings("diverges", 64 + 8);
    let expected = |f: &Finding| f.kind == FindingKind::DivergentBarrier && f.threadgroup == [1, 0, 0] && f.message.starts_with("7 threads wait");
    assert!(divergent.iter().any(expected), "{divergent:?}");
}
