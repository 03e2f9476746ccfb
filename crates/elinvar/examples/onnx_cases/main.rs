//! Runs operator cases of the ONNX standard's node tests through the library.
//!
//! `cargo run --release -p elinvar --example onnx_cases -- FOLDER [FILTER]`
//!
//! `FOLDER` holds `manifest.json` (`cases`: name, operator, opset, attributes, inputs, outputs, tolerances) and one safetensors file for each
//! case with its inputs (`in:NAME`) and expected outputs (`out:NAME`). Cases that the library cannot express are listed with the reason;
//! the exit code is 1 if any other case fails.

mod adapter;
mod attention;
mod case;
mod training;

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use case::{Case, Outcome};
use elinvar::Executor;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(folder) = arguments.first() else {
        eprintln!("usage: onnx_cases FOLDER [FILTER]");
        return ExitCode::from(2);
    };
    let filter = arguments.get(1).map_or("", String::as_str);
    match run(Path::new(folder), filter) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(folder: &Path, filter: &str) -> elinvar::Result<bool> {
    let executor = Executor::new_auto()?;
    let (mut passed, mut failed) = (0, 0);
    let mut inapplicable: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for case in Case::load_all(folder)?.into_iter().filter(|c| c.name.contains(filter)) {
        match case.run(&executor, folder) {
            Outcome::Passed => passed += 1,
            Outcome::Failed(why) => {
                failed += 1;
                println!("FAILED {}: {why}", case.name);
            }
            Outcome::Inapplicable(why) => inapplicable.entry(why).or_default().push(case.name),
        }
    }
    for (reason, cases) in &inapplicable {
        println!("not applicable ({}): {reason}\n    {}", cases.len(), cases.join(" "));
    }
    println!("{passed} passed, {failed} failed, {} not applicable", inapplicable.values().map(Vec::len).sum::<usize>());
    Ok(failed == 0)
}
