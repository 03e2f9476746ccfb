//! What requests came to, in the text format of Prometheus.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::models::Models;

/// Counts since the start.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) prompt_tokens: Counter,
    pub(crate) finished: Counter,
    pub(crate) failed: Counter,
    pub(crate) first_token: Histogram,
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of a histogram's buckets, in seconds.
pub(crate) const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Times by how long they are.
#[derive(Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    microseconds: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(bucket) = BOUNDS.iter().position(|&bound| time.as_secs_f64() <= bound) {
            self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Histogram {
    fn write(&self, out: &mut String, name: &str, model: &str) {
        let mut sum = 0;
        for (bound, bucket) in BOUNDS.iter().zip(&self.buckets) {
            sum += bucket.load(Ordering::Relaxed);
            line(out, &format!("{name}_bucket"), &format!("model=\"{model}\",le=\"{bound}\""), sum as f64);
        }
        let count = self.count.load(Ordering::Relaxed) as f64;
        line(out, &format!("{name}_bucket"), &format!("model=\"{model}\",le=\"+Inf\""), count);
        line(out, &format!("{name}_sum"), &format!("model=\"{model}\""), self.microseconds.load(Ordering::Relaxed) as f64 / 1e6);
        line(out, &format!("{name}_count"), &format!("model=\"{model}\""), count);
    }
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "elinvar_{name}{{{labels}}} {value}");
}

/// A value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Name, type, help, and the value of a model.
type Figure<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(usize) -> f64);

/// All of the models' figures, and how many responses of each status each path had.
pub(crate) fn text<'a>(models: &Models, responses: impl Iterator<Item = (&'a (String, u16), &'a u64)>) -> String {
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, write: &mut dyn FnMut(&mut String)| {
        let _ = writeln!(out, "# HELP elinvar_{name} {help}\n# TYPE elinvar_{name} {kind}");
        write(&mut out);
    };
    let served: Vec<_> = models.served().iter().map(|model| (escaped(model.name()), model, model.statistics())).collect();
    let figures: &[Figure] = &[
        ("requests_running", "gauge", "Requests that are computed.", &|i| served[i].2.running as f64),
        ("requests_waiting", "gauge", "Requests that wait.", &|i| served[i].2.waiting as f64),
        ("cache_pages", "gauge", "Pages of the cache, of 32 tokens.", &|i| served[i].2.pages as f64),
        ("cache_pages_free", "gauge", "Pages that no request has.", &|i| served[i].2.free_pages as f64),
        ("cache_pages_known", "gauge", "Free pages that hold the beginning of a text.", &|i| served[i].2.cached_pages as f64),
        ("steps_total", "counter", "Steps of the engine.", &|i| served[i].2.steps as f64),
        ("computed_tokens_total", "counter", "Tokens computed.", &|i| served[i].2.computed_tokens as f64),
        ("generated_tokens_total", "counter", "Tokens generated.", &|i| served[i].2.generated_tokens as f64),
        ("drafted_tokens_total", "counter", "Guesses of tokens that were checked.", &|i| served[i].2.drafted_tokens as f64),
        ("accepted_tokens_total", "counter", "Guesses of tokens that were right.", &|i| served[i].2.accepted_tokens as f64),
        ("cached_tokens_total", "counter", "Tokens of prompts that were in the cache.", &|i| served[i].2.cached_tokens as f64),
        ("preemptions_total", "counter", "Requests that lost their pages and were computed again.", &|i| served[i].2.preemptions as f64),
        ("prompt_tokens_total", "counter", "Tokens of prompts.", &|i| served[i].1.metrics.prompt_tokens.get() as f64),
        ("answers_total", "counter", "Answers that were completed.", &|i| served[i].1.metrics.finished.get() as f64),
        ("failures_total", "counter", "Answers that failed.", &|i| served[i].1.metrics.failed.get() as f64),
        ("engine_up", "gauge", "Whether the engine runs.", &|i| if served[i].1.worker.is_alive() { 1.0 } else { 0.0 }),
    ];
    for &(name, kind, help, value) in figures {
        family(name, kind, help, &mut |out| {
            served.iter().enumerate().for_each(|(index, (model, ..))| line(out, name, &format!("model=\"{model}\""), value(index)));
        });
    }
    const FIRST: &str = "first_token_seconds";
    family(FIRST, "histogram", "From a request's arrival at the engine to its first token.", &mut |out| {
        served.iter().for_each(|(name, model, _)| model.metrics.first_token.write(out, FIRST, name));
    });
    let mut responses = responses;
    family("responses_total", "counter", "Responses by path and status.", &mut |out| {
        for ((path, status), count) in responses.by_ref() {
            line(out, "responses_total", &format!("path=\"{}\",status=\"{status}\"", escaped(path)), *count as f64);
        }
    });
    out
}
