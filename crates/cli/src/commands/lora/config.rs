//! Options of a training from a YAML file with mlx-lm's keys.

use std::{env, ffi::OsString, fs, path::Path};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use elinvar::{Error, ErrorKind, Result};
use saphyr::MarkedYaml;

use super::{
    options::TrainArgs,
    yaml::{self, Key, entries},
};

/// Keys of a file that are no options of their own; `test_batches` belongs to `test`, which is false.
const OTHERS: [&str; 6] = ["lora_parameters", "lr_schedule", "optimizer_config", "test", "test_batches", "train"];

/// The command line's options, and those of a file that the command line does not give.
pub(super) fn merged(path: &Path) -> Result<TrainArgs> {
    let text = fs::read_to_string(path).map_err(|e| Error::with_source(ErrorKind::Io, format!("cannot read {}", path.display()), e))?;
    // After the program, `lora` and `train`.
    let given: Vec<_> = env::args_os().skip(3).collect();
    merge(&text, &given).map_err(|e| e.context(path.display()))
}

fn merge(text: &str, given: &[OsString]) -> Result<TrainArgs> {
    let document = yaml::read(text)?;
    let mut merge = Merge { given, matches: parsed(given)?, options: Vec::new() };
    let (mut schedule, mut optimizers) = (None, None);
    for (key, value) in entries(&document)? {
        match key.name {
            "train" | "test" => {
                let expected = key.name == "train";
                if value.data.as_bool() != Some(expected) {
                    return Err(key.wrong(format_args!("{expected} expected: this command trains, `elinvar lora test` tests")));
                }
            }
            "test_batches" => {}
            "lora_parameters" => merge.lora_parameters(value)?,
            "lr_schedule" => schedule = Some((key, value)),
            "optimizer_config" => optimizers = Some(value),
            name => merge.add(name, &key, value)?,
        }
    }
    // What these say depends on other options.
    if let Some((key, value)) = schedule.filter(|(_, value)| !value.data.is_null()) {
        merge.schedule(&key, value)?;
    }
    if let Some(value) = optimizers.filter(|value| !value.data.is_null()) {
        merge.optimizer(value)?;
    }
    TrainArgs::from_arg_matches(&merge.all()?).map_err(|e| Error::invalid_argument(first_line(&e)))
}

fn command() -> Command {
    TrainArgs::augment_args(Command::new("elinvar lora train").no_binary_name(true))
}

fn parsed(options: &[OsString]) -> Result<ArgMatches> {
    command().try_get_matches_from(options).map_err(|e| Error::invalid_argument(first_line(&e)))
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

struct Merge<'a> {
    given: &'a [OsString],
    /// What is given.
    matches: ArgMatches,
    /// Of the file.
    options: Vec<OsString>,
}

impl Merge<'_> {
    fn all(&self) -> Result<ArgMatches> {
        parsed(&[self.given, &self.options].concat())
    }

    /// Whether the command line has an option, or one that excludes it.
    fn is_given(&self, name: &str) -> bool {
        let names: &[&str] = match name {
            "alpha" | "scale" => &["alpha", "scale"],
            "resume_adapter_file" => &["resume_adapter_file", "resume"],
            name => &[name],
        };
        names.iter().any(|name| self.matches.value_source(name) == Some(ValueSource::CommandLine))
    }

    /// Adds an option, unless the command line has it.
    fn add(&mut self, name: &str, key: &Key<'_>, value: &MarkedYaml<'_>) -> Result<()> {
        let command = command();
        let names = || command.get_arguments().map(|arg| arg.get_id().as_str()).filter(|name| *name != "config");
        let arg = command.get_arguments().find(|arg| arg.get_id() == name && name != "config");
        let arg = arg.ok_or_else(|| key.unknown(names().chain(OTHERS)))?;
        if value.data.is_null() {
            return Ok(());
        }
        let option = format!("--{}", name.replace('_', "-"));
        let option = match value.data.as_bool() {
            Some(false) if is_switch(arg) => return Ok(()),
            Some(true) if is_switch(arg) => option,
            _ if is_switch(arg) => return Err(key.wrong("true or false expected")),
            _ => format!("{option}={}", yaml::text(value).ok_or_else(|| key.wrong("a value expected"))?),
        };
        // By itself, so that what is wrong with it has its line.
        command.try_get_matches_from([&option]).map_err(|e| key.wrong(first_line(&e)))?;
        if !self.is_given(name) {
            self.options.push(option.into());
        }
        Ok(())
    }

    fn lora_parameters(&mut self, parameters: &MarkedYaml<'_>) -> Result<()> {
        for (key, value) in entries(parameters)? {
            let name = match key.name {
                "keys" => "target_modules",
                "dropout" => "lora_dropout",
                "rank" | "scale" => key.name,
                _ => return Err(key.unknown(["dropout", "keys", "rank", "scale"].into_iter())),
            };
            self.add(name, &key, value)?;
        }
        Ok(())
    }

    /// mlx-lm's settings of optimisers by name, of which those of the one in use count.
    fn optimizer(&mut self, optimizers: &MarkedYaml<'_>) -> Result<()> {
        let all = self.all()?;
        let used = all.get_raw("optimizer").and_then(|mut values| values.next()).unwrap_or_default();
        for (optimizer, settings) in entries(optimizers)?.into_iter().filter(|(key, settings)| used == key.name && !settings.data.is_null()) {
            for (key, value) in entries(settings)? {
                match key.name {
                    "weight_decay" => self.add(key.name, &key, value)?,
                    _ => return Err(key.wrong(format_args!("unknown of {}: weight_decay is known", optimizer.name))),
                }
            }
        }
        Ok(())
    }

    /// mlx-lm's schedule.
    fn schedule(&mut self, place: &Key<'_>, schedule: &MarkedYaml<'_>) -> Result<()> {
        let (mut decay, mut arguments) = (None, None);
        for (key, value) in entries(schedule)? {
            match key.name {
                "name" => match value.data.as_str() {
                    Some("cosine_decay") => decay = Some("cosine"),
                    Some("linear_schedule") => decay = Some("linear"),
                    _ => return Err(key.wrong("cosine_decay or linear_schedule expected")),
                },
                "warmup" => self.add("warmup", &key, value)?,
                "warmup_init" if yaml::number(value) == Some(0.0) => {}
                "warmup_init" => return Err(key.wrong("0 expected")),
                "arguments" => arguments = Some((key, value)),
                _ => return Err(key.unknown(["arguments", "name", "warmup", "warmup_init"].into_iter())),
            }
        }
        let (Some(decay), Some((key, arguments))) = (decay, arguments) else { return Err(place.wrong("'name' and 'arguments' expected")) };
        // cosine_decay(rate, steps, end = 0), linear_schedule(rate, end, steps)
        let numbers: Vec<_> = arguments.data.as_sequence().into_iter().flatten().map(|value| yaml::number(value).unwrap_or(f64::NAN)).collect();
        let (rate, length, end) = match (decay, &numbers[..]) {
            ("cosine", &[rate, length]) => (rate, length, 0.0),
            ("cosine", &[rate, length, end]) | ("linear", &[rate, end, length]) => (rate, length, end),
            _ => return Err(key.wrong("a rate, the steps of the decay, and 0, at which it ends, expected")),
        };
        if self.is_given("schedule") {
            return Ok(());
        }
        let all = self.all()?;
        let number = |name: &str| all.get_one::<u64>(name).copied().unwrap_or_default();
        let expected = number("iters").saturating_sub(number("warmup"));
        if end != 0.0 || length != expected as f64 {
            return Err(key.wrong(format_args!("a decay to 0 over the {expected} steps after the warm-up expected, found to {end} over {length}")));
        }
        self.options.push(format!("--schedule={decay}").into());
        if !self.is_given("learning_rate") {
            // It takes the place of `learning_rate`, as in mlx-lm.
            self.options.retain(|option| !option.to_string_lossy().starts_with("--learning-rate="));
            self.options.push(format!("--learning-rate={rate}").into());
        }
        Ok(())
    }
}

/// Whether an option is given or not, and needs no value.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue) || arg.get_possible_values().iter().map(|value| value.get_name()).eq(["true", "false"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# Of mlx-lm's example.
model: some/folder
train: true
test: false
test_batches: 100
fine_tune_type: dora
data: texts
seed: 7
num_layers: -1
iters: 300
grad_checkpoint: false
mask_prompt: true
resume_adapter_file: null
learning_rate: 1e-5
optimizer_config:
  adamw:
    weight_decay: 0.25
  sgd:
    nesterov: true
lora_parameters:
  keys: [\"self_attn.q_proj\", \"self_attn.v_proj\"]
  rank: 4
  scale: 20.0
  dropout: 0.0
lr_schedule:
  name: cosine_decay
  warmup: 100
  arguments: [2e-5, 200]
";

    fn merged(text: &str, given: &[&str]) -> Result<TrainArgs> {
        merge(text, &given.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[track_caller]
    fn rejected(text: &str) -> String {
        let message = merged(text, &[]).map(|_| ()).unwrap_err().to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    #[test]
    fn keys_of_a_file_are_options_and_the_command_line_wins() {
        let file = merged(FILE, &[]).unwrap();
        let line = "--model some/folder --fine-tune-type dora --data texts --seed 7 --num-layers -1 --iters 300 --mask-prompt --weight-decay 0.25 \
                    --target-modules self_attn.q_proj,self_attn.v_proj --rank 4 --scale 20 --lora-dropout 0 --warmup 100 --schedule cosine \
                    --learning-rate 2e-5";
        let line = merged("{}", &line.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(format!("{file:?}"), format!("{line:?}"));
        let other = format!("{:?}", merged(FILE, &["--rank", "2", "--alpha", "3", "--learning-rate", "1", "--target-modules", "k_proj"]).unwrap());
        for expected in
            ["rank: Some(2),", "alpha: Some(3.0)", "scale: None", "learning_rate: 1.0", "target_modules: [\"k_proj\"]", "schedule: Cosine"]
        {
            assert!(other.contains(expected), "{other}");
        }
        for (value, expected) in [("true", "Layers"), ("layers", "Layers"), ("feed-forward", "FeedForward"), ("false", "None")] {
            let given = format!("{:?}", merged(&format!("grad_checkpoint: {value}\n"), &[]).unwrap());
            assert!(given.contains(&format!("grad_checkpoint: {expected}")), "{given}");
        }
        // Of what the file says of another schedule, or of a switch, nothing is left.
        let other = format!("{:?}", merged(FILE, &["--schedule", "linear", "--iters", "9", "--mask-prompt=false"]).unwrap());
        for expected in ["schedule: Linear", "warmup: 100", "iters: 9", "learning_rate: 1e-5", "mask_prompt: false"] {
            assert!(other.contains(expected), "{other}");
        }
    }

    #[test]
    fn what_a_file_has_wrong_is_named_with_its_line() {
        let unknown = rejected("iters: 5\nlearning-rate: 3\n");
        assert!(unknown.starts_with("line 2: 'learning-rate': unknown key: known are adapter_path, alpha, batch_size, "), "{unknown}");
        assert!(unknown.contains(", learning_rate, ") && !unknown.contains(" config,"), "{unknown}");
        for (text, error) in [
            ("iters: many\n", "line 1: 'iters': invalid value 'many' for '--iters <ITERS>'"),
            ("seed: 1\noptimizer: adam\n", "line 2: 'optimizer': invalid value 'adam' for '--optimizer <OPTIMIZER>'"),
            ("mask_prompt: 3\n", "line 1: 'mask_prompt': true or false expected"),
            ("rank: {a: 1}\n", "line 1: 'rank': a value expected"),
            ("train: false\n", "line 1: 'train': true expected"),
            ("lora_parameters:\n  ranks: 3\n", "line 2: 'ranks': unknown key: known are dropout, keys, rank, scale"),
            ("optimizer_config:\n  adamw: {betas: [0.9, 0.99]}\n", "line 2: 'betas': unknown of adamw"),
            ("lr_schedule: {name: step_decay, arguments: [1]}\n", "line 1: 'name': cosine_decay or linear_schedule expected"),
            ("iters: 9\nlr_schedule: {name: cosine_decay, arguments: [1, 8]}\n", "a decay to 0 over the 9 steps after the warm-up expected"),
            ("iters: [1\n", "line 2: no YAML"),
            ("- 3\n", "line 1: keys and values expected"),
        ] {
            let found = rejected(text);
            assert!(found.contains(error), "{found} instead of {error}");
        }
    }
}
