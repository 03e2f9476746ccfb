use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use elinvar_core::{Device, DeviceKind, DeviceProperties, MetalFile};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Precision,
    conformance::{self, Case, Placement},
    cuda::CudaForm,
};
use elinvar_metal::{MetalBackend, Seed, Simulated, SimulatorOptions};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// One change of one file.
struct Mutant {
    file: &'static str,
    line: usize,
    kind: &'static str,
    before: String,
    text: String,
}

/// What became of it.
enum Outcome {
    Noticed,
    Survived,
    DoesNotCompile,
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Outcome::Noticed => "noticed",
            Outcome::Survived => "survived",
            Outcome::DoesNotCompile => "does not compile",
        }
    }
}

pub(crate) fn main() -> Result<()> {
    let (mut wanted, mut seeds, mut most, mut named, mut kernel) = (Vec::new(), 4, usize::MAX, String::new(), String::new());
    let (mut shard, mut units) = ((0, 1), None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => seeds = arguments.next().ok_or("--seeds needs a number")?.parse()?,
            "--cases" => most = arguments.next().ok_or("--cases needs a number")?.parse()?,
            "--named" => named = arguments.next().ok_or("--named needs a part of cases' names")?,
            "--kernel" => kernel = arguments.next().ok_or("--kernel needs a part of kernels' names")?,
            "--nvidia" => units = Some(arguments.next().ok_or("--nvidia needs a number of compute units")?.parse()?),
            "--shard" => {
                let text = arguments.next().ok_or("--shard needs INDEX/COUNT")?;
                let (index, count) = text.split_once('/').ok_or("write --shard INDEX/COUNT")?;
                shard = (index.parse()?, count.parse()?);
            }
            _ => wanted.push(argument),
        }
    }
    let mut options = SimulatorOptions::default();
    if units.is_some() {
        options.config.threadgroup_memory = Case::NVIDIA_THREADGROUP_MEMORY;
    }
    let device = Device::new(MetalBackend::new(Simulated::new(options.clone())?, DeviceKind::MetalSim));
    let accepted = match units {
        Some(units) => for_nvidia(units, device.properties()),
        None => conformance::cases(),
    };
    let first_rejected = accepted.len();
    let cases: Vec<Case> = accepted.into_iter().chain(if units.is_none() { conformance::rejected() } else { Vec::new() }).collect();
    let files = files_of(&cases, &kernel, device.properties());
    let is_wanted = |place: &str| wanted.is_empty() || wanted.iter().any(|part| place.contains(part.as_str()));
    let mut slowest_first: Vec<_> = files.values().collect();
    slowest_first.sort_by_key(|(_, users)| std::cmp::Reverse(users.len()));
    let all = slowest_first.into_iter().flat_map(|(file, _)| mutants(file));
    let mutants: Vec<_> = all.filter(|mutant| is_wanted(&format!("{}:{} ", mutant.file, mutant.line))).skip(shard.0).step_by(shard.1).collect();
    eprintln!("{} mutants of {} files", mutants.len(), files.len());
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || -> Result<()> {
        let reference = Device::new(CpuBackend::new(std::num::NonZeroUsize::new(1))?);
        while let Some((index, mutant)) = next_of(&mutants, &next) {
            let mut users: Vec<_> = files[mutant.file].1.iter().copied().filter(|&i| cases[i].name().contains(&named)).collect();
            // Cases come in runs of the same lengths and types, which any even choice would keep step with.
            users.sort_by_key(|&i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let used: Vec<(&Case, bool)> = users.iter().take(most).map(|&i| (&cases[i], i >= first_rejected)).collect();
            let outcome = run(mutant, &used, &reference, options.clone(), seeds)?;
            eprintln!("{}: {}:{} {}: {}", outcome.name(), mutant.file, mutant.line, mutant.kind, mutant.before);
            outcomes.lock().map_err(|_| "a worker panicked")?.insert(index, outcome);
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|w| w.join().map_err(|_| "a worker panicked")?)
    })?;
    report(&mutants, &outcomes.into_inner().map_err(|_| "a worker panicked")?);
    Ok(())
}

/// The strict cases as they are planned for NVIDIA's GPUs, where all of a case's launches are Metal text.
fn for_nvidia(units: usize, device: &DeviceProperties) -> Vec<Case> {
    let strict = conformance::cases().into_iter().filter(|case| case.operator.precision() == Precision::Strict);
    let is_text = |case: &Case| case.plan(device).is_ok_and(|plan| plan.launches.iter().all(|launch| launch.kernel.native::<CudaForm>().is_none()));
    strict.map(|case| case.for_nvidia(units)).filter(is_text).collect()
}

fn next_of<'a, T>(all: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    all.get(index).map(|item| (index, item))
}

/// The Metal files that kernels of this name are made of, and the cases that use each.
fn files_of(cases: &[Case], name: &str, device: &DeviceProperties) -> BTreeMap<&'static str, (MetalFile, Vec<usize>)> {
    let mut files: BTreeMap<&'static str, (MetalFile, Vec<usize>)> = BTreeMap::new();
    for (index, case) in cases.iter().enumerate() {
        let Ok(plan) = case.plan(device) else { continue };
        let named = plan.launches.iter().filter(|launch| launch.kernel.key.to_string().contains(name));
        for file in named.filter_map(|l| l.kernel.metal.as_ref()?.form()).flat_map(|form| form.files) {
            if !file.name.ends_with(".metal") {
                continue;
            }
            let users = &mut files.entry(file.name).or_insert_with(|| (*file, Vec::new())).1;
            if users.last() != Some(&index) {
                users.push(index);
            }
        }
    }
    files
}

fn mutants(file: &MetalFile) -> Vec<Mutant> {
    let mut found = Vec::new();
    let mut start = 0;
    for (index, line) in file.text.split_inclusive('\n').enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        let mut add = |kind, range: std::ops::Range<usize>, with: &str| {
            let text = format!("{}{with}{}", &file.text[..start + range.start], &file.text[start + range.end..]);
            found.push(Mutant { file: file.name, line: index + 1, kind, before: line.trim().to_owned(), text });
        };
        if let Some(at) = ["threadgroup_barrier(", "simdgroup_barrier("].iter().find_map(|b| code.find(b))
            && let Some(end) = code[at..].find(';')
        {
            add("barrier deleted", at..at + end, "");
        }
        for (from, to) in [(" < ", " <= "), (" <= ", " <= 1 + "), (" > ", " >= "), (" >= ", " + 1 >= ")] {
            for (at, _) in code.match_indices(from) {
                add("bound widened", at..at + from.len(), to);
            }
        }
        let statement = code.trim();
        if is_store(statement) {
            let at = code.len() - code.trim_start().len();
            add("store dropped", at..at + statement.len(), ";");
        }
        start += line.len();
    }
    found
}

/// Whether a line is a statement that writes through an index or a pointer.
fn is_store(statement: &str) -> bool {
    if !statement.ends_with(';') || statement.starts_with("return") {
        return false;
    }
    if ["store_wide(", "simdgroup_store("].iter().any(|call| statement.starts_with(call)) || statement.contains(".store(") {
        return true;
    }
    let target = statement.split(" = ").next().filter(|t| t.len() < statement.len()).or_else(|| statement.split(" += ").next());
    target.is_some_and(|t| t.len() < statement.len() && !t.contains(' ') && (t.ends_with(']') || t.starts_with('*')))
}

/// `cases` with whether a device must reject them.
fn run(mutant: &Mutant, cases: &[(&Case, bool)], reference: &Device, options: SimulatorOptions, seeds: u64) -> Result<Outcome> {
    let options = SimulatorOptions { seed: Seed::default(), ..options };
    let seed = options.seed.clone();
    let texts = HashMap::from([(mutant.file.to_owned(), mutant.text.clone())]);
    let device = Device::new(MetalBackend::new(Simulated::new(options)?, DeviceKind::MetalSim).with_texts(texts));
    let mut compiled = false;
    for number in 0..seeds {
        seed.set(number);
        for (index, (case, rejected)) in cases.iter().enumerate() {
            let placement = Placement::ALL[(index + number as usize) % 2];
            let outcome =
                if *rejected { conformance::reject(case, &device, placement) } else { conformance::compare(case, &device, reference, placement) };
            match outcome {
                Ok(()) => compiled = true,
                Err(error) if error.is_compile_failed() && !compiled => return Ok(Outcome::DoesNotCompile),
                Err(_) => return Ok(Outcome::Noticed),
            }
        }
    }
    Ok(Outcome::Survived)
}

fn report(mutants: &[Mutant], outcomes: &BTreeMap<usize, Outcome>) {
    let mut table: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for (index, outcome) in outcomes {
        let row = table.entry((mutants[*index].file, mutants[*index].kind)).or_default();
        match outcome {
            Outcome::Noticed => *row = (row.0 + 1, row.1 + 1),
            Outcome::Survived => row.1 += 1,
            Outcome::DoesNotCompile => {}
        }
    }
    println!("| file | change | noticed | of |\n| --- | --- | --- | --- |");
    for ((file, kind), (noticed, all)) in &table {
        println!("| {file} | {kind} | {noticed} | {all} |");
    }
    let (noticed, all) = table.values().fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    println!("\n{noticed} of {all} noticed\n\nSurvivors:\n");
    for (index, outcome) in outcomes {
        if matches!(outcome, Outcome::Survived) {
            let m = &mutants[*index];
            println!("- {}:{} {}: `{}`", m.file, m.line, m.kind, m.before);
        }
    }
}
