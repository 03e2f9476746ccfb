//! Whether requests of an engine get on a device what a session with the model for itself gets on the CPU, bit for bit:
//! `engine_bits [DEVICE] [PROMPTS] [PRECISION]`.
//!
//! In invariant precision the session is on the device itself. A model of random bf16 weights, caches of f32 and f16; temperatures 0 and 1. Each request
//! reports the log probability of every token. They run alone, among 1, 3 and 15 others, in steps of 1, 64 and 512 tokens, from the prefix cache, with so few
//! pages that they are preempted, and with guesses of their next tokens: those of the model itself, of another one, and of the text so far.

use std::{collections::HashMap, error::Error, process::ExitCode, sync::Arc, time::Instant};

use elinvar::{BackendType, DType, Executor, Precision};
use elinvar_llm::{Config, DraftSource, Drafts, Engine, EngineOptions, Logprobs, Model, Output, Request, RequestId, Sampling, WeightType};

/// Tokens of an answer.
const ANSWER: usize = 40;

type Answers = Vec<Vec<(u32, Option<Logprobs>)>>;

fn config() -> Config {
    Config { tied_embeddings: true, ..Config::llama3(4, [512, 1408], [8, 2], 2048) }
}

fn model(executor: &Executor, seed: u64) -> elinvar::Result<Arc<Model>> {
    Model::random(executor, config(), WeightType::Plain(DType::BF16), seed).map(Arc::new)
}

fn request(number: usize) -> Request {
    let length = [70, 700, 33, 1, 256, 130][number % 6] + number / 6;
    let prompt = (0..length).map(|i| ((i * i * 7 + i * 3 + number * 31) % 2048) as u32).collect();
    let sampling = Sampling { temperature: (number % 2) as f32, top_p: 0.95, seed: number as u64, ..Sampling::default() };
    Request { sampling, logprobs: Some(2048), ..Request::new(prompt, ANSWER) }
}

fn run(engine: &mut Engine, requests: &[Request]) -> Result<Answers, Box<dyn Error>> {
    let mut places: HashMap<RequestId, usize> = HashMap::new();
    for (place, request) in requests.iter().enumerate() {
        places.insert(engine.submit(request.clone())?, place);
    }
    let mut answers = vec![Vec::new(); requests.len()];
    while !engine.is_idle() {
        for output in engine.step() {
            match output {
                Output::Token { request, token, logprobs, .. } => answers[places[&request]].push((token, logprobs)),
                Output::Finished { .. } => {}
                Output::Failed { error, .. } => return Err(error.into()),
            }
        }
    }
    Ok(answers)
}

/// The answers of sessions.
fn alone(model: &Arc<Model>, cache: DType, requests: &[Request]) -> Result<Answers, Box<dyn Error>> {
    let mut answers = Vec::new();
    for request in requests {
        let mut session = elinvar_llm::Session::new(model.clone(), 1024, cache)?;
        let mut sampler = elinvar_llm::Sampler::new(request.sampling)?;
        let (mut text, mut logits, mut answer) = (request.prompt.clone(), session.feed(&request.prompt)?, Vec::new());
        while answer.len() < ANSWER {
            let token = sampler.sample(&logits, &text)?;
            answer.push((token, Some(Logprobs::of(&logits, token, 2048))));
            text.push(token);
            logits = session.feed(&[token])?;
        }
        answers.push(answer);
    }
    Ok(answers)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let device: BackendType = arguments.next().as_deref().unwrap_or("cpu").parse()?;
    let count: usize = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let precision: Precision = arguments.next().map_or(Ok(Precision::Strict), |text| text.parse())?;
    let on = |device| Ok::<_, elinvar::Error>(Executor::new_with_backend(device)?.with_precision(precision));
    let reference = model(&on(if precision == Precision::Strict { BackendType::Cpu } else { device })?, 1)?;
    let executor = on(device)?;
    let (other, model) = (model(&executor, 2)?, model(&executor, 1)?);
    let drafts = |source| Some(Drafts { source, most: 4 });
    let requests: Vec<_> = (0..count).map(request).collect();
    let mut failures = 0;
    for cache in [DType::F32, DType::F16] {
        let start = Instant::now();
        let expected = alone(&reference, cache, &requests)?;
        println!("{cache}: {count} sessions on {}, {:.1} s", reference.executor().properties().name, start.elapsed().as_secs_f64());
        for (at_once, step_tokens, cache_tokens, drafts) in [
            (1, 1, 1024, None),
            (1, 64, 1024, None),
            (2, 512, 2048, None),
            (4, 512, 4096, None),
            (16, 512, 16384, None),
            (16, 64, 16384, None),
            (16, 64, 1024, None),
            (1, 64, 1024, drafts(DraftSource::Lookup)),
            (4, 512, 4096, drafts(DraftSource::Model(model.clone()))),
            (16, 512, 16384, drafts(DraftSource::Model(other.clone()))),
            (16, 64, 1024, drafts(DraftSource::Model(model.clone()))),
        ] {
            let start = Instant::now();
            let (at_once, slow) = (at_once.min(count), step_tokens == 1);
            let options =
                EngineOptions { cache_tokens, step_tokens: step_tokens.max(at_once), running: at_once, drafts, ..EngineOptions::new(1024, cache) };
            let mut engine = Engine::new(model.clone(), options)?;
            let some = if slow { 4.min(count) } else { count };
            // The second time beginnings of prompts are in the cache, as far as it has room for them.
            for round in ["computed", "again"] {
                let cached = engine.statistics().cached_tokens;
                let found = run(&mut engine, &requests[..some])?;
                let equal = found.iter().zip(&expected).filter(|(found, expected)| found == expected).count();
                failures += some - equal;
                let statistics = engine.statistics();
                println!(
                    "{cache}, {at_once} at once in steps of {step_tokens}, {round}: {equal} of {some} equal; {} cached tokens, {} preemptions, {} of {} guesses right, {:.1} s",
                    statistics.cached_tokens - cached,
                    statistics.preemptions,
                    statistics.accepted_tokens,
                    statistics.drafted_tokens,
                    start.elapsed().as_secs_f64()
                );
            }
        }
    }
    println!("{}: {failures} answers differ", model.executor().properties().name);
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
