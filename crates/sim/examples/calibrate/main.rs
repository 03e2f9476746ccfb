//! Runs MLX's kernels from text and from the library that Apple's compiler made of them, on the same inputs, and compares what they write, bit by bit:
//!
//! ```text
//! cargo run --release -p elinvar-sim --example calibrate -- mlx.metallib SOURCE [-I INCLUDE]... [--step N] [--family NAME]... [--kernel TEXT] [--save FOLDER]
//! ```
//!
//! SOURCE is a checkout of MLX. `--save` keeps the launches whose results Metal defines and what they wrote, for other devices. `tools/calibrate` fetches the library and its headers. Every launch is checked.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool that cannot go on ends")]

mod arguments;
mod compare;
mod families;
mod launch;
mod save;

use std::{env, fmt, fs, ops::AddAssign, path::PathBuf, process::ExitCode, sync::Arc};

use arguments::Case;
use compare::{Difference, Ran, run};
use elinvar_sim::{CompileOptions, Config, ConstantValue, Library, Pipeline, Simulator, Source};
use families::{EXPLANATIONS, FAMILIES, Family};
use launch::Name;

const USAGE: &str = "calibrate LIBRARY SOURCE [-I INCLUDE]... [--step N] [--family NAME]... [--kernel TEXT] [--save FOLDER]";

/// What is compared, and where the launches are kept.
struct Calibration {
    simulator: Simulator,
    library: Arc<[u8]>,
    source: PathBuf,
    options: CompileOptions,
    step: usize,
    part: String,
    save: Option<PathBuf>,
}

/// Kernels of a family.
#[derive(Default)]
struct Count {
    kernels: usize,
    equal: usize,
    explained: usize,
    unexplained: usize,
    unwritten: usize,
    findings: usize,
    text_fails: usize,
    library_fails: usize,
    no_launch: usize,
}

/// A kernel of the library, what the text calls it, and its launch.
struct Subject<'a> {
    name: &'a str,
    of_text: String,
    case: Case,
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (mut include_dirs, mut wanted, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let (mut step, mut part, mut save) = (1, String::new(), None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-I" => include_dirs.extend(arguments.next().map(PathBuf::from)),
            "--step" => step = arguments.next().and_then(|step| step.parse().ok()).unwrap_or(1),
            "--family" => wanted.extend(arguments.next()),
            "--kernel" => part = arguments.next().unwrap_or_default(),
            "--save" => save = arguments.next().map(PathBuf::from),
            _ => places.push(argument),
        }
    }
    let [library, source] = places.as_slice() else { panic!("{USAGE}") };
    let source = PathBuf::from(source);
    include_dirs.push(source.clone());
    // From 3.2 on MLX's headers have Metal's own logger, which the kernels that are launched here do not use.
    let options = CompileOptions { include_dirs, metal_version: 320, ..CompileOptions::default() };
    let simulator = Simulator::new(Config::default()).unwrap();
    let calibration = Calibration { simulator, library: fs::read(library).unwrap().into(), source, options, step, part, save };
    println!(
        "| Family | Kernels | Compared | Equal bits | Explained | Unexplained | Nothing written | With findings | Text rejected | Library rejected | No launch known |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut all = Count::default();
    for family in FAMILIES.iter().filter(|family| wanted.is_empty() || wanted.iter().any(|wanted| wanted == family.name)) {
        let count = calibration.family(family);
        println!("| {} | {count} |", family.name);
        all += count;
    }
    println!("| all | {all} |");
    ExitCode::from(u8::from(all.unexplained > 0))
}

impl Calibration {
    fn family(&self, family: &Family) -> Count {
        let path = self.source.join(format!("mlx/backend/metal/kernels/{}.metal", family.file));
        let text = Source::read(&path).and_then(|text| self.simulator.library(&text, &self.options)).unwrap();
        // Of its own for each family, so that no more kernels are loaded than a family has.
        let library = self.simulator.compiled_library("mlx.metallib", self.library.clone(), &CompileOptions::default()).unwrap();
        let (mut count, mut subjects) = (Count::default(), Vec::new());
        let named = text.kernels().names().into_iter().filter(|name| library.kernels().kernel(name).is_ok()).map(|name| (name, name.to_owned()));
        let instances = library.kernels().names().into_iter().filter_map(|name| Some((name, (family.instance)(Name(name))?)));
        for (name, of_text) in named.chain(instances).filter(|(name, _)| name.contains(&self.part)).step_by(self.step) {
            count.kernels += 1;
            let launch = (family.launch)(Name(name)).ok_or_else(|| "no launch of such a kernel is known".to_owned());
            match launch.and_then(|launch| Case::new(&library, name, launch)) {
                Ok(case) => subjects.push(Subject { name, of_text, case }),
                Err(why) => {
                    eprintln!("{name}: {why}");
                    count.no_launch += 1;
                }
            }
        }
        compile(&text, &library, &subjects);
        for subject in &subjects {
            match text.pipeline(&subject.of_text, &subject.case.constants) {
                Ok(of_text) => match library.pipeline(subject.name, &subject.case.constants) {
                    Ok(of_library) => self.compare(subject, &of_text, &of_library, &mut count),
                    Err(error) => {
                        eprintln!("{}: library: {error}", subject.name);
                        count.library_fails += 1;
                    }
                },
                Err(error) => {
                    eprintln!("{}: text: {}", subject.name, error.to_string().lines().next().unwrap_or_default());
                    count.text_fails += 1;
                }
            }
        }
        count
    }

    fn compare(&self, subject: &Subject<'_>, of_text: &Pipeline, of_library: &Pipeline, count: &mut Count) {
        let Subject { name, case, .. } = subject;
        let (mut text, mut library) = (run(&self.simulator, of_text, case), run(&self.simulator, of_library, case));
        if text.left_a_buffer() || library.left_a_buffer() {
            // A thread ends where it leaves a buffer, and its results would not be compared.
            let case = case.with_room();
            text.written = run(&self.simulator, of_text, &case).written;
            library.written = run(&self.simulator, of_library, &case).written;
        }
        if case.buffers.iter().filter(|argument| argument.written).zip(&library.written).all(|(argument, bytes)| argument.contents == *bytes) {
            eprintln!("{name}: nothing was written");
            count.unwritten += 1;
        }
        let differences = Difference::between(case, &text, &library);
        let explanation = EXPLANATIONS.iter().find(|explanation| (explanation.applies)(Name(name))).map(|explanation| explanation.why);
        match (differences.is_empty(), explanation) {
            (true, _) => count.equal += 1,
            (false, Some(_)) => count.explained += 1,
            (false, None) => count.unexplained += 1,
        }
        for difference in &differences {
            eprintln!("{name}: {difference}: {}", explanation.unwrap_or("unexplained"));
        }
        let sound = text.findings.is_empty() && library.findings.is_empty();
        count.findings += usize::from(!sound);
        for (way, Ran { findings, .. }) in [("text", &text), ("library", &library)] {
            for finding in findings.iter().take(2) {
                eprintln!("{name}: {way}: {finding}");
            }
        }
        let is_defined = text.is_defined() && library.is_defined() && differences.is_empty();
        if let Some(folder) = self.save.as_ref().filter(|_| is_defined) {
            save::save(folder, name, case, &library).unwrap();
        }
    }
}

/// Compiles those with the same constants in one run of the compiler. What fails is reported when it is asked for by itself.
fn compile(text: &Library, library: &Library, subjects: &[Subject<'_>]) {
    let mut constants: Vec<&Vec<(u32, ConstantValue)>> = Vec::new();
    for Subject { case, .. } in subjects {
        if !constants.contains(&&case.constants) {
            constants.push(&case.constants);
        }
    }
    for constants in constants {
        let alike = || subjects.iter().filter(|subject| subject.case.constants == *constants);
        let _ = text.compile_all(&alike().map(|subject| subject.of_text.as_str()).collect::<Vec<_>>(), constants);
        let _ = library.compile_all(&alike().map(|subject| subject.name).collect::<Vec<_>>(), constants);
    }
}

impl Count {
    fn numbers(&self) -> [usize; 10] {
        let Self { kernels, equal, explained, unexplained, unwritten, findings, text_fails, library_fails, no_launch } = *self;
        [kernels, equal + explained + unexplained, equal, explained, unexplained, unwritten, findings, text_fails, library_fails, no_launch]
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.numbers().map(|number| number.to_string()).join(" | "))
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.kernels += more.kernels;
        self.equal += more.equal;
        self.explained += more.explained;
        self.unexplained += more.unexplained;
        self.unwritten += more.unwritten;
        self.findings += more.findings;
        self.text_fails += more.text_fails;
        self.library_fails += more.library_fails;
        self.no_launch += more.no_launch;
    }
}
