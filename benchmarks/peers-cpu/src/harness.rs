//! What to time, sides of a comparison timed in turn, and checks of their results.

use std::{
    cell::OnceCell,
    error::Error,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use elinvar::{Executor, HostMemory, kernels::math::ceiling};
use memmap2::MmapMut;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of the memory that is read for its bandwidth, and of the weights of matrix-vector products: more than the caches hold.
pub const ARENA: usize = 1 << 30;

/// What the command line asks for.
pub struct Options {
    words: Vec<String>,
    skipped: Vec<String>,
    list: bool,
    rounds: usize,
    seconds: Duration,
    /// Tokens to decode.
    pub tokens: usize,
    /// Tokens to prefill.
    pub prompt: usize,
}

const USAGE: &str = "usage: peers-cpu [WORD…] [--skip=WORD] [--list] [--rounds=15] [--seconds=2] [--tokens=4] [--prompt=64]
times the lines whose titles contain a WORD, each for ROUNDS rounds or SECONDS seconds, whichever is less, but for three rounds at least";

impl Options {
    pub fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let seconds = Duration::from_secs(2);
        let mut options = Self { words: Vec::new(), skipped: Vec::new(), list: false, rounds: 15, seconds, tokens: 4, prompt: 64 };
        for argument in arguments {
            match argument.split_once('=').unwrap_or((&argument, "")) {
                ("--list", _) => options.list = true,
                ("--skip", word) => options.skipped.push(word.to_owned()),
                ("--rounds", value) => options.rounds = value.parse()?,
                ("--seconds", value) => options.seconds = Duration::try_from_secs_f64(value.parse()?)?,
                ("--tokens", value) => options.tokens = value.parse()?,
                ("--prompt", value) => options.prompt = value.parse()?,
                (flag, _) if flag.starts_with("--") => return Err(format!("unknown option {flag}\n{USAGE}").into()),
                _ => options.words.push(argument),
            }
        }
        Ok(options)
    }
}

/// The device under test and what is asked of it.
pub struct Bench {
    pub executor: Executor,
    pub threads: usize,
    pub options: Options,
    arena: OnceCell<HostMemory>,
}

impl Bench {
    pub fn new(options: Options) -> Result<Self> {
        let threads = rayon::current_num_threads();
        let executor = Executor::new_cpu(NonZeroUsize::new(threads).ok_or("no threads")?)?;
        Ok(Self { executor, threads, options, arena: OnceCell::new() })
    }

    /// Whether to time the line of this title.
    pub fn wants(&self, title: &str) -> bool {
        let Options { words, skipped, list, .. } = &self.options;
        let wanted = words.is_empty() || words.iter().any(|w| title.contains(w.as_str()));
        let wanted = wanted && !skipped.iter().any(|w| title.contains(w.as_str()));
        if wanted && *list {
            println!("{title}");
        }
        wanted && !list
    }

    /// [`ARENA`] bytes that are small numbers as f32, bf16 and f16.
    pub fn arena(&self) -> Result<&HostMemory> {
        if self.arena.get().is_none() {
            let mut map = MmapMut::map_anon(ARENA)?;
            #[cfg(target_os = "linux")]
            map.advise(memmap2::Advice::HugePage)?;
            fill(&mut map);
            let _ = self.arena.set(HostMemory::new(Arc::new(map.make_read_only()?)));
        }
        Ok(self.arena.get().ok_or("no memory to read")?)
    }

    /// The side that only reads memory: about `bytes` of the arena, others each time.
    pub fn read<'a>(&'a self, bytes: usize) -> Result<Side<'a>> {
        let bytes = bytes.min(ARENA / 4);
        let (arena, threads, mut place) = (self.arena()?, self.threads, 0);
        Ok(Side::new("read", bytes as f64, move || {
            place = (place + 1) % (ARENA / bytes);
            Ok(ceiling::read(bytemuck::cast_slice(&arena.bytes()[place * bytes..][..bytes]), threads))
        }))
    }

    /// The side that only multiplies and adds f32 in registers.
    pub fn peak<'a>(&self) -> Side<'a> {
        let threads = self.threads;
        Side::new("peak f32", ceiling::operations() * threads as f64, move || Ok(ceiling::multiply_add(threads)))
    }

    /// Times all sides in turn and prints a line for each: median and best rate, and the ratio of the first side's median to this one's.
    pub fn compare(&self, title: &str, unit: &str, mut sides: Vec<Side<'_>>) -> Result<()> {
        const FEWEST: usize = 3;
        let mut rates = vec![Vec::new(); sides.len()];
        let start = Instant::now();
        for round in 0..=self.options.rounds.max(FEWEST) {
            if round > FEWEST && start.elapsed() > self.options.seconds {
                break;
            }
            for (side, rates) in sides.iter_mut().zip(&mut rates) {
                let start = Instant::now();
                (side.run)()?;
                let rate = side.amount / start.elapsed().as_secs_f64();
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        let scale = if unit.starts_with('G') { 1e-9 } else { 1.0 };
        println!("{title}: medians of {}", rates[0].len());
        let mut first = None;
        for (side, rates) in sides.iter().zip(&mut rates) {
            rates.sort_by(f64::total_cmp);
            let (median, best) = (rates[rates.len() / 2] * scale, rates[rates.len() - 1] * scale);
            let own = *first.get_or_insert(median);
            println!("  {:<22} {median:8.2} {unit}  best {best:8.2}   elinvar / this {:6.2}", side.name, own / median);
        }
        Ok(())
    }
}

/// One way to do the work of a line.
pub struct Side<'a> {
    name: String,
    run: Box<dyn FnMut() -> Result<()> + 'a>,
    /// Operations, bytes or tokens of one run.
    amount: f64,
}

impl<'a> Side<'a> {
    pub fn new(name: impl Into<String>, amount: f64, run: impl FnMut() -> Result<()> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run), amount }
    }
}

/// Bytes that are small numbers in each of the three types, and never NaN, infinite or denormal.
pub fn fill(bytes: &mut [u8]) {
    let mut state = 1u32;
    for half in bytes.chunks_exact_mut(2) {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        half.copy_from_slice(&(0x3c00 | (state >> 16) as u16 & 0x83ff).to_ne_bytes());
    }
}

/// The largest difference, relative to the largest reference.
pub fn deviation(found: &[f32], reference: impl IntoIterator<Item = f64>) -> f64 {
    let (mut largest, mut worst, mut count) = (0.0, 0.0, 0);
    for (found, reference) in found.iter().zip(reference) {
        let difference = (f64::from(*found) - reference).abs();
        largest = f64::max(largest, reference.abs());
        worst = if difference.is_nan() { f64::INFINITY } else { f64::max(worst, difference) };
        count += 1;
    }
    if count == found.len() { worst / largest } else { f64::INFINITY }
}

/// Rejects results that deviate by more than `tolerance`.
pub fn verify(what: &str, ours: &[f32], theirs: &[f32], tolerance: f64) -> Result<()> {
    let off = deviation(ours, theirs.iter().map(|&v| f64::from(v)));
    if off > tolerance { Err(format!("{what}: results differ by {off:.1e} of the largest").into()) } else { Ok(()) }
}
