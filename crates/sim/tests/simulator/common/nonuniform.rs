//! What threads learn of each other where threadgroups do not divide them, by a plain model: the kernels of `kernels/nonuniform.metal`, which read `x` and
//! write `out`, some numbers a thread.

/// A launch over `threads` threads, what it reads and what it must write.
pub(crate) struct Case {
    pub(crate) kernel: &'static str,
    pub(crate) threads: [u32; 3],
    pub(crate) threadgroup: [u32; 3],
    pub(crate) x: Vec<u32>,
    pub(crate) out: Vec<u32>,
}

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

/// Each kernel in each shape.
pub(crate) fn cases() -> Vec<Case> {
    let of = |(threads, threadgroup)| {
        let count = product(threads);
        let integers: Vec<u32> = (0..count).map(|i| i * i % 1009 + 1).collect();
        let floats: Vec<u32> = (0..count).map(|i| (1.0 / (i * i % 101 + 1) as f32).to_bits()).collect();
        let case = |kernel, x: &[u32], row: &dyn Fn(&Thread, &[u32]) -> Vec<u32>| {
            let mut rows = vec![Vec::new(); x.len()];
            for group in threadgroups(threads, threadgroup) {
                let at = |t: &Thread| ((t.in_grid[2] * threads[1] + t.in_grid[1]) * threads[0] + t.in_grid[0]) as usize;
                let held: Vec<u32> = group.iter().map(|t| x[at(t)]).collect();
                group.iter().for_each(|t| rows[at(t)] = row(t, &held));
            }
            Case { kernel, threads, threadgroup, x: x.to_vec(), out: rows.concat() }
        };
        let attributes = |t: &Thread, held: &[u32]| attributes(t, held, threads, threadgroup);
        [case("attributes", &integers, &attributes), case("exchange", &integers, &exchange), case("sums", &floats, &sums)]
    };
    SHAPES.into_iter().flat_map(of).collect()
}

/// A thread, as Metal numbers it.
struct Thread {
    in_grid: [u32; 3],
    in_group: [u32; 3],
    group: [u32; 3],
    size: [u32; 3],
    index: u32,
}

fn product(extents: [u32; 3]) -> u32 {
    extents.iter().product()
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

fn attributes(t: &Thread, held: &[u32], threads: [u32; 3], full: [u32; 3]) -> Vec<u32> {
    let groups = [0, 1, 2].map(|axis| threads[axis].div_ceil(full[axis]));
    let positions = [t.in_grid, t.in_group, t.group, t.size, threads, groups, full];
    let [simdgroups, quadgroups] = [32, 4].map(|width| [t.size, full].map(|size| product(size).div_ceil(width)));
    let [of_simdgroup, of_quadgroup] = [[t.index % 32, t.index / 32, 32], [t.index / 4, t.index % 4, quadgroups[0]]];
    [positions.concat(), vec![t.index], of_simdgroup.into(), simdgroups.into(), of_quadgroup.into(), vec![quadgroups[1], held[t.index as usize]]]
        .concat()
}

/// The values of a thread's simdgroup and of its quadgroup, and where it is in them.
fn around(t: &Thread, held: &[u32]) -> (Vec<u32>, usize, Vec<u32>, usize) {
    let (index, part) = (t.index as usize, |first: usize, width: usize| held[first..held.len().min(first + width)].to_vec());
    (part(index / 32 * 32, 32), index % 32, part(index / 4 * 4, 4), index % 4)
}

fn exchange(t: &Thread, held: &[u32]) -> Vec<u32> {
    let (simdgroup, lane, quadgroup, quad) = around(t, held);
    let lanes = simdgroup.len();
    let sum = |x: &[u32]| x.iter().sum::<u32>();
    let odd = |x: &[u32]| x.iter().enumerate().map(|(i, x)| (x & 1) << i).sum::<u32>();
    let of = |lane: Option<usize>| lane.and_then(|lane| simdgroup.get(lane)).copied().unwrap_or(0);
    let [most, least] = [&simdgroup, &quadgroup].map(|x| [*x.iter().max().unwrap(), *x.iter().min().unwrap()]);
    vec![
        lanes as u32,
        sum(&simdgroup),
        most[0],
        most[1],
        simdgroup.iter().fold(0, |all, x| all ^ x),
        sum(&simdgroup[..=lane]),
        sum(&simdgroup[..lane]),
        simdgroup[lanes - 1 - lane],
        simdgroup[lanes - 1] + simdgroup[0],
        of(lane.checked_sub(1)),
        of(Some(lane + 1)),
        of(Some(lane ^ 5)),
        of(lane.checked_sub(2)),
        of(Some(lane + 3)),
        odd(&simdgroup),
        3 + if lane == 0 { 4 } else { 0 },
        u32::MAX >> (32 - lanes),
        sum(&quadgroup),
        least[0] - least[1],
        sum(&quadgroup[..=quad]) + quadgroup[quadgroup.len() - 1],
        quadgroup.get(quad ^ 1).copied().unwrap_or(0),
        odd(&quadgroup) + 16 + if quadgroup.len() == 4 { 32 } else { 0 },
        held[held.len() - 1 - t.index as usize],
        sum(held),
    ]
}

fn sums(t: &Thread, held: &[u32]) -> Vec<u32> {
    let (simdgroup, lane, quadgroup, _) = around(t, held);
    let floats = |x: &[u32]| x.iter().map(|bits| f32::from_bits(*bits)).collect::<Vec<_>>();
    let prefix = running(&floats(&simdgroup))[lane];
    vec![folded(floats(&simdgroup), 32).to_bits(), (folded(floats(&quadgroup), 4) + prefix).to_bits()]
}

/// A sum by a tree of halved distance, in which lanes that do not exist are left out.
fn folded(mut x: Vec<f32>, width: usize) -> f32 {
    let mut distance = width / 2;
    while distance > 0 {
        (0..distance).for_each(|lane| {
            if lane + distance < x.len() {
                x[lane] += x[lane + distance];
            }
        });
        distance /= 2;
    }
    x[0]
}

/// Running sums in steps of doubled distance.
fn running(x: &[f32]) -> Vec<f32> {
    let (mut x, mut distance) = (x.to_vec(), 1);
    while distance < 32 {
        (distance..x.len()).rev().for_each(|lane| x[lane] += x[lane - distance]);
        distance *= 2;
    }
    x
}
