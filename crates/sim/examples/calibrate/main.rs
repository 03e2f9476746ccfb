//! Runs MLX's kernels from text and from the library that Apple's compiler made of them, on the same inputs, and compares what they write, bit by bit:
//!
//! ```text
//! cargo run --release -p elinvar-sim --example calibrate -- mlx.metallib SOURCE [-I INCLUDE]... [--step N] [--family NAME]... [--kernel TEXT] [--save FOLDER]
//! ```
//!
//! SOURCE is a checkout of MLX. `--save` keeps the launches without findings and what they wrote, for other devices. `tools/calibrate` fetches the library and its headers. Every launch is checked.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool that cannot go on ends")]

mod arguments;
mod compare;
mod families;
mod launch;
mod save;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use arguments::Case;
use compare::{Difference, Ran, run};
use elinvar_sim::{CompileOptions, Config, ConstantValue, Library, Simulator, Source};
use families::{EXPLAINED, FAMILIES, Family};
use launch::Name;

#[derive(Default)]
struct Count {
    kernels: usize,
    no_launch: usize,
    text_fails: usize,
    library_fails: usize,
    equal: usize,
    different: usize,
    explained: usize,
    idle: usize,
    findings: usize,
}

/// What of the kernels is taken, and where the launches are kept.
struct Selection {
    step: usize,
    part: String,
    save: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (mut include_dirs, mut wanted, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut selection = Selection { step: 1, part: String::new(), save: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-I" => include_dirs.extend(arguments.next().map(PathBuf::from)),
            "--step" => selection.step = arguments.next().and_then(|step| step.parse().ok()).unwrap_or(1),
            "--family" => wanted.extend(arguments.next()),
            "--save" => selection.save = arguments.next().map(PathBuf::from),
            "--kernel" => selection.part = arguments.next().unwrap_or_default(),
            _ => places.push(argument),
        }
    }
    let [library, source] = places.as_slice() else {
        panic!("calibrate LIBRARY SOURCE [-I INCLUDE]... [--step N] [--family NAME]... [--kernel TEXT] [--save FOLDER]")
    };
    let simulator = Simulator::new(Config::default()).unwrap();
    let compiled = simulator.compiled_library("mlx.metallib", fs::read(library).unwrap(), &CompileOptions::default()).unwrap();
    let options = CompileOptions {
        include_dirs: include_dirs.into_iter().chain([PathBuf::from(source)]).collect(),
        // From 3.2 on MLX's headers have Metal's own logger, which the kernels that are launched here do not use.
        metal_version: 320,
        ..CompileOptions::default()
    };
    println!(
        "| Family | Kernels | Run both ways | Equal bits | Different, explained | Unexplained | Nothing written | With findings | Text rejected | Library rejected | No launch known |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut different = 0;
    for family in FAMILIES.iter().filter(|family| wanted.is_empty() || wanted.iter().any(|wanted| wanted == family.name)) {
        let count = calibrate(&simulator, &compiled, Path::new(source), &options, family, &selection);
        different += count.different;
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            family.name,
            count.kernels,
            count.equal + count.explained + count.different,
            count.equal,
            count.explained,
            count.different,
            count.idle,
            count.findings,
            count.text_fails,
            count.library_fails,
            count.no_launch
        );
    }
    ExitCode::from(u8::from(different > 0))
}

fn calibrate(simulator: &Simulator, compiled: &Library, source: &Path, options: &CompileOptions, family: &Family, selection: &Selection) -> Count {
    let path = source.join(format!("mlx/backend/metal/kernels/{}.metal", family.file));
    let text = match Source::read(&path).and_then(|text| simulator.library(&text, options)) {
        Ok(text) => text,
        Err(error) => panic!("{}: {error}", family.name),
    };
    let mut count = Count::default();
    let mut cases = Vec::new();
    let named = text.kernels().names().into_iter().filter(|name| compiled.kernels().kernel(name).is_ok()).map(|name| (name, name.to_owned()));
    let instances = compiled.kernels().names().into_iter().filter_map(|name| Some((name, (family.instance)(Name(name))?)));
    let names = named.chain(instances).filter(|(name, _)| name.contains(&selection.part));
    for (name, of_text) in names.step_by(selection.step) {
        count.kernels += 1;
        let case = (family.launch)(Name(name)).ok_or_else(|| "no launch of such a kernel is known".to_owned());
        match case.and_then(|launch| Case::new(compiled, name, launch)) {
            Ok(case) => cases.push((name, of_text, case)),
            Err(why) => {
                eprintln!("{name}: {why}");
                count.no_launch += 1;
            }
        }
    }
    // Those with the same constants in one run of the compiler; what fails is reported below, one by one.
    for constants in distinct(&cases) {
        let alike = || cases.iter().filter(|(_, _, case)| case.constants == *constants);
        let _ = text.compile_all(&alike().map(|(_, of_text, _)| of_text.as_str()).collect::<Vec<_>>(), constants);
        let _ = compiled.compile_all(&alike().map(|(name, _, _)| *name).collect::<Vec<_>>(), constants);
    }
    for (name, of_text, case) in &cases {
        let of_text = match text.pipeline(of_text, &case.constants) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                eprintln!("{name}: text: {}", error.to_string().lines().next().unwrap_or_default());
                count.text_fails += 1;
                continue;
            }
        };
        let of_library = match compiled.pipeline(name, &case.constants) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                eprintln!("{name}: library: {error}");
                count.library_fails += 1;
                continue;
            }
        };
        let (mut text, mut library) = (run(simulator, &of_text, case), run(simulator, &of_library, case));
        if text.left_a_buffer() || library.left_a_buffer() {
            // A thread ends where it leaves a buffer, and its results would not be compared.
            let case = case.with_room();
            text.written = run(simulator, &of_text, &case).written;
            library.written = run(simulator, &of_library, &case).written;
        }
        if library.written.iter().flatten().all(|byte| *byte == 0) {
            eprintln!("{name}: nothing was written but zeros");
            count.idle += 1;
        }
        let differences = Difference::between(case, &text, &library);
        let explanation = EXPLAINED.iter().find(|(is, _)| is(Name(name))).map_or("unexplained", |(_, why)| why);
        match differences.is_empty() {
            true => count.equal += 1,
            false if explanation == "unexplained" => count.different += 1,
            false => count.explained += 1,
        }
        for difference in &differences {
            eprintln!("{name}: {difference}: {explanation}");
        }
        if let Some(folder) = &selection.save
            && differences.is_empty()
            && library.findings.is_empty()
        {
            save::save(folder, name, case, &library).unwrap();
        }
        count.findings += usize::from(!text.findings.is_empty() || !library.findings.is_empty());
        for (way, Ran { findings, .. }) in [("text", &text), ("library", &library)] {
            for finding in findings.iter().take(2) {
                eprintln!("{name}: {way}: {finding}");
            }
        }
    }
    count
}

fn distinct<'a>(cases: &'a [(&str, String, Case)]) -> Vec<&'a Vec<(u32, ConstantValue)>> {
    let mut all: Vec<&Vec<(u32, ConstantValue)>> = Vec::new();
    for (_, _, case) in cases {
        if !all.contains(&&case.constants) {
            all.push(&case.constants);
        }
    }
    all
}
