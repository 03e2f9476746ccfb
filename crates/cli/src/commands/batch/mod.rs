//! Answers the requests of a file, and goes on where an earlier run ended.

mod requests;
mod results;

use std::{future::Future, iter::Peekable, num::NonZeroUsize, path::PathBuf, pin::pin};

use clap::Args;
use elinvar::{Error, ErrorKind, Result};
use elinvar_server::{Models, Reply};
use futures_util::stream::{self, StreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::{served::ServedArgs, world};
use requests::{Request, Requests};
use results::{Answered, Response, Results};

/// Arguments of `elinvar batch`.
#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// Answer the requests in this file, one on each line, as OpenAI's batches have them: custom_id, method, url and body
    requests: PathBuf,
    /// Append the answers to this file, in the order of the requests; what it has already is not computed again
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Have this many requests in flight, of which --running are computed at a time
    #[arg(long, default_value = "128", value_name = "REQUESTS")]
    concurrency: NonZeroUsize,
    /// Print no summary
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    models: ServedArgs,
}

/// Whether every request has an answer other than an error.
pub(crate) fn run(args: &BatchArgs) -> Result<bool> {
    let (requests, count) = Requests::open(&args.requests)?;
    let mut requests = requests.peekable();
    let mut results = Results::open(&world::own(&args.output)?, &mut requests)?;
    let mut failed = results.failed;
    if results.answered < count {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|e| Error::with_source(ErrorKind::Io, "cannot start a runtime", e))?;
        let Some(models) = args.models.start(usize::MAX)? else { return Ok(true) };
        let progress = progress_bar(count, results.answered);
        let respond = |request| respond(&models, request);
        failed += runtime.block_on(answer(requests, &mut results, args.concurrency, &progress, respond))?;
        progress.finish_and_clear();
        results.finish()?;
    }
    if !args.quiet {
        eprintln!("{count} requests · {} were answered before · {failed} errors", results.answered);
    }
    Ok(failed == 0)
}

/// What a server would answer.
async fn respond(models: &Models, request: Request) -> Response {
    let Reply { status, body } = elinvar_server::run(models, &request.url, Value::Object(request.body).to_string().as_bytes()).await;
    Response { status_code: status, request_id: request.id, body }
}

fn progress_bar(count: usize, answered: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("answering {bar:32} {pos}/{len} requests, {eta} left").unwrap_or_else(|_| ProgressStyle::default_bar());
    let progress = ProgressBar::new(count as u64).with_style(style).with_position(answered as u64);
    progress.reset_eta();
    progress
}

/// Answers the rest of the requests, so many at a time, and appends the answers in the order of the requests. How many of them are errors.
async fn answer<F: Future<Output = Response>>(
    requests: Peekable<Requests>,
    results: &mut Results,
    concurrency: NonZeroUsize,
    progress: &ProgressBar,
    respond: impl Fn(Request) -> F,
) -> Result<usize> {
    let respond = &respond;
    let answers = stream::iter(requests).map(|request| async move {
        let request = request?;
        let (id, custom_id) = (request.id.clone(), request.custom_id.clone());
        Ok(Answered { id, custom_id, response: respond(request).await, error: () })
    });
    let mut answers = pin!(answers.buffered(concurrency.get()));
    let mut failed = 0;
    while let Some(answered) = answers.next().await {
        let answered = answered?;
        results.write(&answered)?;
        failed += usize::from(answered.is_failed());
        progress.inc(1);
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        fmt::Write,
        fs,
        path::Path,
    };

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// Requests `a0`, `a1`, …, of which each third is answered by an error.
    fn write_requests(folder: &TempDir, count: usize) {
        let text = (0..count).fold(String::new(), |mut text, index| {
            let line = json!({"custom_id": format!("a{index}"), "method": "POST", "url": "/v1/completions", "body": {"prompt": format!("é{index}")}});
            writeln!(text, "{line}").unwrap();
            text
        });
        fs::write(folder.path().join("requests.jsonl"), text).unwrap();
    }

    /// What a run did.
    #[derive(Debug, PartialEq)]
    struct Run {
        answered_before: usize,
        failed: usize,
        asked: Vec<String>,
        most_at_a_time: usize,
    }

    /// Answers `requests.jsonl` into `results.jsonl`; later requests of eight are answered sooner.
    fn run(folder: &Path) -> Result<Run> {
        let (requests, count) = Requests::open(&folder.join("requests.jsonl"))?;
        let mut requests = requests.peekable();
        let mut results = Results::open(&folder.join("results.jsonl"), &mut requests)?;
        let (answered_before, failed_before) = (results.answered, results.failed);
        let (asked, running, most) = (RefCell::new(Vec::new()), Cell::new(0), Cell::new(0));
        let respond = async |request: Request| {
            let index: usize = request.custom_id[1..].parse().unwrap();
            asked.borrow_mut().push(request.custom_id);
            let prompt = request.body["prompt"].clone();
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            for _ in 0..8 - index % 8 {
                tokio::task::yield_now().await;
            }
            running.set(running.get() - 1);
            let status_code = if index.is_multiple_of(3) { 400 } else { 200 };
            Response { status_code, request_id: format!("req-{index}"), body: prompt }
        };
        let concurrency = NonZeroUsize::new(4).unwrap();
        let progress = ProgressBar::hidden();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = failed_before + runtime.block_on(answer(requests, &mut results, concurrency, &progress, respond))?;
        assert_eq!(progress.position() as usize + answered_before, count);
        Ok(Run { answered_before, failed, asked: asked.into_inner(), most_at_a_time: most.get() })
    }

    fn names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|index| format!("a{index}")).collect()
    }

    #[test]
    fn answers_have_the_order_of_the_requests() {
        let folder = TempDir::new().unwrap();
        write_requests(&folder, 20);
        let first = run(folder.path()).unwrap();
        assert_eq!(first, Run { answered_before: 0, failed: 7, asked: names(0..20), most_at_a_time: 4 });
        let text = fs::read_to_string(folder.path().join("results.jsonl")).unwrap();
        for (index, line) in text.lines().enumerate() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&value["custom_id"], &value["error"]), (&json!(format!("a{index}")), &Value::Null));
            let expected =
                json!({"status_code": if index % 3 == 0 { 400 } else { 200 }, "request_id": format!("req-{index}"), "body": format!("é{index}")});
            assert_eq!(value["response"], expected);
        }
        assert_eq!(text.lines().count(), 20);
        assert_eq!(run(folder.path()).unwrap(), Run { answered_before: 20, failed: 7, asked: Vec::new(), most_at_a_time: 0 });
        assert_eq!(fs::read_to_string(folder.path().join("results.jsonl")).unwrap(), text);
    }

    #[test]
    fn a_run_that_ended_after_any_byte_is_completed() {
        let folder = TempDir::new().unwrap();
        write_requests(&folder, 5);
        run(folder.path()).unwrap();
        let output = folder.path().join("results.jsonl");
        let whole = fs::read(&output).unwrap();
        for length in 0..whole.len() {
            fs::write(&output, &whole[..length]).unwrap();
            let answered = whole[..length].iter().filter(|&&byte| byte == b'\n').count();
            let again = run(folder.path()).unwrap();
            assert_eq!((again.answered_before, again.failed, again.asked), (answered, 2, names(answered..5)), "after {length} bytes");
            assert!(fs::read(&output).unwrap() == whole, "after {length} bytes");
        }
    }

    #[test]
    fn results_of_other_requests_are_rejected_and_kept() {
        let folder = TempDir::new().unwrap();
        let (input, output) = (folder.path().join("requests.jsonl"), folder.path().join("results.jsonl"));
        write_requests(&folder, 3);
        run(folder.path()).unwrap();
        let (requests, whole) = (fs::read_to_string(&input).unwrap(), fs::read_to_string(&output).unwrap());
        let lines: Vec<&str> = whole.lines().collect();
        let first_two = requests.lines().take(2).collect::<Vec<_>>().join("\n");
        for (requests, results, line) in [
            // A request that was changed, one more answer than requests, another order, no answers at all.
            (requests.replace("é1", "è1"), whole.clone(), 2),
            (first_two, whole.clone(), 3),
            (requests.clone(), format!("{}\n{}\n", lines[0], lines[2]), 2),
            (requests.clone(), "notes\n".to_owned(), 1),
            (requests.clone(), "notes".to_owned(), 1),
            (requests.clone(), format!("{}\nnotes", lines[0]), 2),
            (requests.clone(), requests.clone(), 1),
        ] {
            fs::write(&input, requests).unwrap();
            fs::write(&output, &results).unwrap();
            let error = run(folder.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("results.jsonl, line {line}: not the answer to request {line} of the input")), "{error}");
            assert_eq!(fs::read_to_string(&output).unwrap(), results);
        }
    }

    #[test]
    fn two_processes_do_not_write_one_file() {
        let folder = TempDir::new().unwrap();
        write_requests(&folder, 1);
        let output = folder.path().join("results.jsonl");
        let open = || Results::open(&output, &mut Requests::open(&folder.path().join("requests.jsonl")).unwrap().0.peekable());
        let held = open().unwrap();
        assert!(open().unwrap_err().to_string().contains("another process writes"));
        drop(held);
        open().unwrap();
        let error = Results::open(folder.path(), &mut Requests::open(&folder.path().join("requests.jsonl")).unwrap().0.peekable()).unwrap_err();
        assert!(error.to_string().starts_with("cannot write results to"), "{error}");
    }
}
