//! What a training shows while it runs.

use std::time::{Duration, Instant};

use elinvar::{Result, format_bytes};
use elinvar_llm::{Rewards, TrainingEvent};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    output::print_line,
    profile::{Known, Profiler},
};

/// Profiles the first step, which makes what the others use, and the others together.
pub(super) struct Profiled {
    profiler: Option<Profiler>,
    /// Steps of this run.
    first: u64,
    last: u64,
    /// The first step of the part that is being timed, and the tokens of its steps so far.
    begun: Option<u64>,
    tokens: usize,
}

impl Profiled {
    pub(super) fn new(profiler: Option<Profiler>, first: u64, last: u64) -> Result<Self> {
        let mut profiled = Self { profiler, first, last, begun: None, tokens: 0 };
        profiled.begin(first)?;
        Ok(profiled)
    }

    pub(super) fn into_profiler(self) -> Option<Profiler> {
        self.profiler
    }

    fn begin(&mut self, step: u64) -> Result<()> {
        (self.begun, self.tokens) = (Some(step), 0);
        self.profiler.as_mut().map_or(Ok(()), Profiler::begin)
    }

    fn end(&mut self, last: u64) -> Result<()> {
        let (Some(first), Some(profiler)) = (self.begun.take(), &mut self.profiler) else { return Ok(()) };
        let name = if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
        profiler.end(name, Known { tokens: Some(self.tokens), unprofiled: None })
    }

    pub(super) fn listen(&mut self, event: TrainingEvent) -> Result<()> {
        match event {
            TrainingEvent::Step { step, tokens, .. } => {
                self.tokens += tokens;
                if step == self.first || step == self.last {
                    self.end(step)?;
                }
                if step == self.first && step < self.last { self.begin(step + 1) } else { Ok(()) }
            }
            TrainingEvent::Stopped { step, .. } => self.end(step),
            TrainingEvent::Validated { .. } | TrainingEvent::Saved { .. } => Ok(()),
        }
    }
}

/// What is shown of a training.
pub(super) struct Report {
    bar: ProgressBar,
    every: u64,
    steps: u64,
    begun: (Instant, u64),
    since: Sum,
    /// What the loss is of.
    of_pairs: bool,
}

/// Of the steps since the last report.
#[derive(Default)]
struct Sum {
    steps: u64,
    loss: f64,
    tokens: usize,
    seconds: f64,
    margin: f64,
    accuracy: f64,
}

impl Report {
    /// Of `steps` steps, of which `taken` were taken before, with a line after every so many.
    pub(super) fn new(steps: u64, taken: u64, every: u64, of_pairs: bool) -> Self {
        let style = ProgressStyle::with_template("{bar:30} step {pos} of {len}, {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(steps).with_style(style);
        Self { bar, every: every.max(1), steps, begun: (Instant::now(), taken), since: Sum::default(), of_pairs }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub(super) fn show(&mut self, event: TrainingEvent, memory: usize) {
        match event {
            TrainingEvent::Step { step, loss, rewards, rate, tokens, seconds, .. } => {
                if let Some(Rewards { chosen, rejected, accuracy }) = rewards {
                    self.since.margin += f64::from(chosen - rejected);
                    self.since.accuracy += f64::from(accuracy);
                }
                self.since.steps += 1;
                self.since.loss += f64::from(loss);
                self.since.tokens += tokens;
                self.since.seconds += seconds;
                let (start, first) = self.begun;
                let left = start.elapsed().mul_f64((self.steps - step) as f64 / (step - first) as f64);
                self.bar.set_position(step);
                self.bar.set_message(format!("loss {loss:.4}, {} left", time(left)));
                if step % self.every == 0 || step == self.steps {
                    let Sum { steps, loss, tokens, seconds, margin, accuracy } = std::mem::take(&mut self.since);
                    let mean = |sum: f64| sum / steps as f64;
                    let pairs = match rewards {
                        Some(_) => format!(", margin {:.4}, {:.0} % in order", mean(margin), 100.0 * mean(accuracy)),
                        None => String::new(),
                    };
                    self.line(format!(
                        "step {step}: loss {:.4}{pairs}, learning rate {rate:.2e}, {:.0} tokens/s, peak memory {}, {} left",
                        mean(loss),
                        tokens as f64 / seconds,
                        format_bytes(memory as u64),
                        time(left)
                    ));
                }
            }
            TrainingEvent::Validated { step, loss } if self.of_pairs => self.line(format!("step {step}: validation loss {loss:.4}")),
            TrainingEvent::Validated { step, loss } => self.line(format!("step {step}: validation loss {loss:.4}, perplexity {:.2}", loss.exp())),
            TrainingEvent::Stopped { step, best } => self.line(format!("step {step}: stopped, no evaluation was better than that of step {best}")),
            TrainingEvent::Saved { step } => self.line(format!("step {step}: saved")),
        }
    }

    fn line(&self, line: String) {
        self.bar.suspend(|| print_line(line));
    }
}

/// `1:05:09`, or `5:09`.
fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}
