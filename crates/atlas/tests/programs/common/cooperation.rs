//! Threads that work together, on every type: reductions, shuffles, positions, indices of every type, shared arrays, atomics.

use elinvar_atlas::{Atomic, Binary, LaunchConfig, Position, Program, Scope, Shuffle, parse};
use elinvar_core::DType;

use super::{binary, values};

/// Threads of a block, blocks, threads.
pub(crate) const LAUNCH: LaunchConfig = LaunchConfig::new([2, 3, 2], [8, 4, 2]);
const THREADS: usize = 768;

const HEAD: &str = "  li = local_index\n  bx = block.x\n  by = block.y\n  bz = block.z\n  gx = grid_size.x\n  gy = grid_size.y\n  b = mad bz gy by\n  \
    b = mad b gx bx\n  thread = mad b 64 li\n";

/// A program and the contents of its buffers, as bits.
pub(crate) struct Cooperation {
    pub(crate) program: Program,
    pub(crate) buffers: Vec<Vec<u64>>,
}

fn contents(dtype: DType, count: usize) -> Vec<u64> {
    let all = values(dtype);
    (0..count).map(|i| all[(i * 7 + i / 64) % all.len()]).collect()
}

/// Reductions, shuffles, positions and indices.
pub(crate) fn exchange(dtype: DType) -> Cooperation {
    let (mut results, mut places) = (0, 0);
    let mut statements = String::new();
    let mut told = |value: String| {
        statements += &format!("{value}  at = add thread {}\n  store y[at] r\n", results * THREADS);
        results += 1;
    };
    for op in [Binary::Add, Binary::Mul, Binary::Min, Binary::Max, Binary::And, Binary::Or, Binary::Xor] {
        if binary(op, dtype, 0, 0).is_some() {
            Scope::ALL.iter().for_each(|scope| told(format!("  r = {}_{} v\n", scope.name(), op.name())));
        }
    }
    Shuffle::ALL.iter().for_each(|shuffle| told(format!("  q = mad li 7 b\n  r = {} v q\n", shuffle.name())));
    for index in [DType::U32, DType::I32, DType::U64, DType::I64] {
        told(format!("  j_{index}: {index} = convert thread\n  j_{index} = sub j_{index} 3\n  r = load x[j_{index}]\n"));
        // The first elements of the array keep their zeros.
        told(format!(
            "  k_{index}: {index} = convert li\n  l_{index} = sub k_{index} 3\n  barrier\n  store s[l_{index}] v\n  barrier\n  k_{index} = xor k_{index} 5\n  \
             r = load s[k_{index}]\n  w_{index}: {index} = convert thread\n  w_{index} = sub w_{index} 4\n  store z[w_{index}] v\n"
        ));
    }
    for position in Position::ALL {
        statements += &format!("  u = {}\n  at = add thread {}\n  store p[at] u\n", position.name(), places * THREADS);
        places += 1;
    }
    let text = format!(
        "atlas 1\nprogram exchange\nblock 8 4 2\nbuffer x: read {dtype}\nbuffer y: write {dtype}\nbuffer z: write {dtype}\nbuffer p: write u32\n\
         shared s: {dtype}[62]\nkernel\n{HEAD}  v = load x[thread]\n{statements}end\n"
    );
    let buffers = vec![contents(dtype, THREADS), vec![0; results * THREADS], vec![0; THREADS - 9], vec![0; places * THREADS]];
    Cooperation { program: parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), buffers }
}

/// Atomics: on elements that a thread has to itself, whose old values are told, and on elements that all threads want.
pub(crate) fn atomics(dtype: DType) -> Cooperation {
    let mut statements = String::new();
    let mut results = 0;
    let all: Vec<_> = Atomic::ALL.iter().map(|op| op.name()).collect();
    for (memory, index) in [("own", "thread"), ("mine", "li"), ("own", "outside")] {
        for op in &all {
            statements += &format!("  o = {op} {memory}[{index}] v\n  at = add thread {}\n  store old[at] o\n  v = add v 77\n", results * THREADS);
            results += 1;
        }
        // The first exchange finds what it expects, the second does not.
        for expected in ["e", "v"] {
            statements += &format!("  e = sub v 77\n  o = atomic_cas {memory}[{index}] {expected} v\n  at = add thread {}\n", results * THREADS);
            statements += "  store old[at] o\n  v = add v 77\n";
            results += 1;
        }
    }
    for (place, op) in all.iter().filter(|op| **op != "atomic_exchange").enumerate() {
        statements += &format!("  {op} common[{place}] v\n  {op} ours[{place}] v\n");
    }
    statements += "  barrier\n  few = lt li 6\n  if few\n    o = load ours[li]\n    at = mad b 6 li\n    store sums[at] o\n  end\n";
    let text = format!(
        "atlas 1\nprogram atomics\nblock 8 4 2\nbuffer x: read {dtype}\nbuffer own: update {dtype}\nbuffer old: write {dtype}\nbuffer common: update {dtype}\n\
         buffer sums: write {dtype}\nshared mine: {dtype}[64]\nshared ours: {dtype}[6]\nkernel\n{HEAD}  outside = add thread 100000\n  v = load x[thread]\n\
         {statements}end\n"
    );
    let (own, sums) = (contents(dtype, THREADS), vec![0; 12 * 6]);
    let buffers = vec![contents(dtype, THREADS), own, vec![0; results * THREADS], contents(dtype, 6), sums];
    Cooperation { program: parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), buffers }
}

impl Cooperation {
    /// Every program over types that a device has.
    pub(crate) fn all(types: &[DType]) -> Vec<Self> {
        types.iter().map(|&dtype| exchange(dtype)).chain([DType::U32, DType::I32].map(atomics)).collect()
    }

    /// The bytes of a buffer before the launch.
    pub(crate) fn bytes(&self, buffer: usize) -> Vec<u8> {
        let size = self.program.parameters[buffer].dtype.size();
        self.buffers[buffer].iter().flat_map(|bits| bits.to_le_bytes()[..size].to_vec()).collect()
    }

    /// What is wrong with the buffers after the launch.
    pub(crate) fn difference(&self, found: &[Vec<u8>]) -> Option<String> {
        let mut expected = self.buffers.clone();
        super::scalar::run(&self.program, &LAUNCH, &mut expected);
        let differing = |buffer: usize| {
            let parameter = &self.program.parameters[buffer];
            let place = super::random::same(parameter.dtype, &found[buffer], &expected[buffer])?;
            Some(format!("{} over {}: {}[{place}] differs", self.program.name, self.program.parameters[0].dtype, parameter.name))
        };
        (0..found.len()).find_map(differing)
    }
}
