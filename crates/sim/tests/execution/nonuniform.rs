//! Launches over threads that threadgroups do not divide: those at the end are smaller, and behave as Metal says. A plain model says what each thread learns.

use elinvar_sim::{Binding, Dispatch, Finding, FindingKind, Grid, Output};

use super::{both, buffer, library, queue, run, simulator, values};

/// Threads, and threads of a threadgroup: cut off along one, two and three axes, in the middle of quadgroups and simdgroups; whole ones; one that is larger
/// than the grid.
const SHAPES: [([u32; 3], [u32; 3]); 8] = [
    ([100, 1, 1], [64, 1, 1]),
    ([70, 1, 1], [32, 1, 1]),
    ([7, 1, 1], [256, 1, 1]),
    ([96, 2, 1], [48, 2, 1]),
    ([13, 7, 1], [8, 4, 1]),
    ([9, 19, 1], [16, 16, 1]),
    ([5, 6, 7], [4, 4, 4]),
    ([3, 5, 9], [4, 3, 8]),
];

fn product(extents: [u32; 3]) -> u32 {
    extents.iter().product()
}

/// A thread, as Metal numbers it.
struct Thread {
    in_grid: [u32; 3],
    in_group: [u32; 3],
    group: [u32; 3],
    size: [u32; 3],
    index: u32,
}

/// The threads of a launch, threadgroup by threadgroup, each in the order of their indices.
fn threadgroups(threads: [u32; 3], full: [u32; 3]) -> Vec<Vec<Thread>> {
    let groups = [0, 1, 2].map(|axis| threads[axis].div_ceil(full[axis]));
    let at = |i: u32, extents: [u32; 3]| [i % extents[0], i / extents[0] % extents[1], i / extents[0] / extents[1]];
    let threadgroup = |number| {
        let group = at(number, groups);
        let size = [0, 1, 2].map(|axis| full[axis].min(threads[axis] - group[axis] * full[axis]));
        let thread = |index| {
            let in_group = at(index, size);
            Thread { in_grid: [0, 1, 2].map(|axis| group[axis] * full[axis] + in_group[axis]), in_group, group, size, index }
        };
        (0..product(size)).map(thread).collect()
    };
    (0..product(groups)).map(threadgroup).collect()
}

/// The rows that threads write, in the order of the grid.
fn rows(threads: [u32; 3], width: usize, written: impl Iterator<Item = ([u32; 3], Vec<u32>)>) -> Vec<u32> {
    let mut all = vec![u32::MAX; product(threads) as usize * width];
    for ([x, y, z], row) in written {
        let at = ((z * threads[1] + y) * threads[0] + x) as usize * width;
        all[at..at + width].copy_from_slice(&row);
    }
    all
}

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
fn attributes_tell_the_threadgroup_s_own_size_from_the_dispatched_one() {
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("nonuniform.metal", checked).pipeline("attributes", &[]).unwrap();
        for (threads, full) in SHAPES {
            let out = simulator().buffer("out", 4 * 31 * product(threads) as usize).unwrap();
            let dispatch = Dispatch::new(&pipeline, Grid::Threads(threads), full).with(Binding::new(0, &out).output(Output::Whole));
            assert_eq!(run(&queue, dispatch, seed).findings, [], "{threads:?} by {full:?}");
            let groups = [0, 1, 2].map(|axis| threads[axis].div_ceil(full[axis]));
            let row = |t: Thread| {
                let positions = [t.in_grid, t.in_group, t.group, t.size, threads, groups, full].concat();
                let [simdgroups, quadgroups] = [32, 4].map(|width| [t.size, full].map(|size| product(size).div_ceil(width)));
                let numbers =
                    [t.index, t.index % 32, t.index / 32, 32, simdgroups[0], simdgroups[1], t.index / 4, t.index % 4, quadgroups[0], quadgroups[1]];
                (t.in_grid, [positions, numbers.to_vec()].concat())
            };
            let expected = rows(threads, 31, threadgroups(threads, full).into_iter().flatten().map(row));
            assert_eq!(values::<u32>(&out), expected, "{threads:?} by {full:?}");
        }
    });
}

/// What the kernel `exchange` writes for a threadgroup whose threads hold `x`.
fn exchanged(x: &[u32], thread: usize) -> Vec<u32> {
    let (first, lane) = (thread / 32 * 32, thread % 32);
    let simdgroup = &x[first..x.len().min(first + 32)];
    let (lanes, quad) = (simdgroup.len(), lane % 4);
    let quadgroup = &simdgroup[lane - quad..lanes.min(lane - quad + 4)];
    let sum = |x: &[u32]| x.iter().sum::<u32>();
    let odd = |x: &[u32]| x.iter().enumerate().map(|(i, x)| (x & 1) << i).sum::<u32>();
    let (of, in_quad) = (|at: usize| simdgroup.get(at).copied().unwrap_or(0), |at: usize| quadgroup.get(at).copied().unwrap_or(0));
    let [most, least] = [simdgroup.iter().max().unwrap(), simdgroup.iter().min().unwrap()];
    vec![
        lanes as u32,
        sum(simdgroup),
        *most,
        *least,
        simdgroup.iter().fold(0, |all, x| all ^ x),
        sum(&simdgroup[..=lane]),
        sum(&simdgroup[..lane]),
        simdgroup[lanes - 1 - lane],
        simdgroup[lanes - 1] + simdgroup[0],
        if lane > 0 { simdgroup[lane - 1] } else { 0 },
        of(lane + 1),
        of(lane ^ 5),
        if lane >= 2 { simdgroup[lane - 2] } else { 0 },
        of(lane + 3),
        odd(simdgroup),
        3 + if lane == 0 { 4 } else { 0 },
        u32::MAX >> (32 - lanes),
        sum(quadgroup),
        quadgroup.iter().max().unwrap() - quadgroup.iter().min().unwrap(),
        sum(&quadgroup[..=quad]) + quadgroup[quadgroup.len() - 1],
        in_quad(quad ^ 1),
        odd(quadgroup) + 16 + if quadgroup.len() == 4 { 32 } else { 0 },
        x[x.len() - 1 - thread],
        sum(x),
    ]
}

#[test]
fn threads_that_do_not_exist_take_no_part() {
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("nonuniform.metal", checked).pipeline("exchange", &[]).unwrap();
        for (threads, full) in SHAPES {
            let x: Vec<u32> = (0..product(threads)).map(|i| i * i % 1009 + 1).collect();
            let out = simulator().buffer("out", 4 * 24 * x.len()).unwrap();
            let dispatch = Dispatch::new(&pipeline, Grid::Threads(threads), full).with(Binding::new(0, &buffer("x", &x)));
            assert_eq!(run(&queue, dispatch.with(Binding::new(1, &out).output(Output::Whole)), seed).findings, [], "{threads:?} by {full:?}");
            let written = threadgroups(threads, full).into_iter().flat_map(|group| {
                let at = |t: &Thread| ((t.in_grid[2] * threads[1] + t.in_grid[1]) * threads[0] + t.in_grid[0]) as usize;
                let held: Vec<u32> = group.iter().map(|t| x[at(t)]).collect();
                group.into_iter().map(move |t| (t.in_grid, exchanged(&held, t.index as usize)))
            });
            let (found, expected) = (values::<u32>(&out), rows(threads, 24, written));
            let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            let told = first.map(|at| (at / 24, at % 24, found[at], expected[at]));
            assert_eq!(told, None, "{threads:?} by {full:?}: thread, number, found, expected");
        }
    });
}

#[test]
fn a_smaller_threadgroup_has_its_races_and_its_divergence() {
    let queue = queue();
    let findings = |kernel, threads: u32| {
        let pipeline = library("nonuniform.metal", true).pipeline(kernel, &[]).unwrap();
        let out = simulator().buffer("out", 4 * threads as usize).unwrap();
        run(&queue, Dispatch::new(&pipeline, Grid::Threads([threads, 1, 1]), [64, 1, 1]).with(Binding::new(0, &out)), 0).findings
    };
    assert!(findings("races", 5).iter().any(|finding| finding.kind == FindingKind::DataRace));
    assert_eq!(findings("races", 1), [], "one thread has nobody to race with");
    let divergent = findings("diverges", 64 + 8);
    let expected = |f: &Finding| f.kind == FindingKind::DivergentBarrier && f.threadgroup == [1, 0, 0] && f.message.starts_with("7 threads wait");
    assert!(divergent.iter().any(expected), "{divergent:?}");
}
