//! What a request gets, against a session that has the model for itself.

use elinvar::{BackendType, DType, Executor, Precision, kernels::quantized::Format};

use super::*;
use crate::{Adapter, Config, MemoryEstimate, Sampler, Sampling, Session, WeightType, adapter::tests::waves, model::CacheType};

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5}"#;

fn model(config: &str) -> Arc<Model> {
    model_of(Precision::Strict, config)
}

fn model_of(precision: Precision, config: &str) -> Arc<Model> {
    let executor = Executor::new_cpu(2.try_into().unwrap()).unwrap().with_precision(precision);
    Arc::new(Model::random(&executor, Config::parse(config).unwrap(), WeightType::Plain(DType::BF16), 1).unwrap())
}

fn prompt(length: usize, seed: u32) -> Vec<u32> {
    (0..length as u32).map(|i| (i * i * 7 + i * 3 + seed * 31 + 5) % 97).collect()
}

/// A request that reports the log probability of every token, at temperature 1 if its seed is odd.
fn request(length: usize, seed: u32, max_tokens: usize) -> Request {
    let sampling = Sampling { temperature: (seed % 2) as f32, seed: seed.into(), ..Sampling::default() };
    Request { sampling, logprobs: Some(97), ..Request::new(prompt(length, seed), max_tokens) }
}

type Answer = Vec<(u32, Option<Logprobs>)>;

/// What a session gives.
fn alone(model: &Arc<Model>, cache: CacheType, request: &Request) -> Answer {
    let mut session = Session::new(model.clone(), 600, cache).unwrap();
    let mut sampler = Sampler::new(request.sampling).unwrap();
    let (mut text, mut answer) = (request.prompt.clone(), Vec::new());
    let mut logits = session.feed(&text).unwrap();
    while answer.len() < request.max_tokens {
        let token = sampler.sample(&logits, &text).unwrap();
        text.push(token);
        answer.push((token, request.logprobs.map(|count| Logprobs::of(&logits, token, count))));
        logits = session.feed(&[token]).unwrap();
    }
    answer
}

/// The answers to requests, in their order, and how many of each prompt's tokens were cached. Pages that nobody has are free in the end.
fn run(engine: &mut Engine, requests: &[Request]) -> Vec<(Answer, usize)> {
    let ids: Vec<_> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
    let mut answers = vec![(Vec::new(), usize::MAX); ids.len()];
    while !engine.is_idle() {
        for output in engine.step() {
            let place = |id| ids.iter().position(|other| *other == id).unwrap();
            match output {
                Output::Token { request, token, logprobs, .. } => answers[place(request)].0.push((token, logprobs)),
                Output::Finished { request, finish, cached_tokens } => {
                    assert_eq!(finish, Finish::MaxTokens);
                    answers[place(request)].1 = cached_tokens;
                }
                Output::Failed { error, .. } => panic!("{error}"),
            }
        }
    }
    assert_eq!(engine.statistics().free_pages, engine.statistics().pages);
    answers
}

fn options(cache_tokens: usize, step_tokens: usize, running: usize) -> EngineOptions {
    EngineOptions { cache_tokens, step_tokens, running, ..EngineOptions::new(600, DType::F32) }
}

/// Tensors of the model of [`CONFIG`], of which one token's embedding is NaN.
fn with_damage(executor: &Executor, damaged: Option<u32>) -> Arc<Model> {
    let layers = (0..2).flat_map(|layer| {
        let layers = [("self_attn.q", 48, 48), ("self_attn.k", 16, 48), ("self_attn.v", 16, 48), ("self_attn.o", 48, 48)];
        let layers = layers.into_iter().chain([("mlp.gate", 80, 48), ("mlp.up", 80, 48), ("mlp.down", 48, 80)]);
        let matrices = layers.map(move |(name, n, k)| (format!("layers.{layer}.{name}_proj"), vec![n, k]));
        matrices.chain(["input", "post_attention"].map(|name| (format!("layers.{layer}.{name}_layernorm"), vec![48])))
    });
    let all = layers
        .chain([("norm".to_owned(), vec![48]), ("embed_tokens".to_owned(), vec![97, 48])])
        .map(|(name, dims)| (format!("model.{name}.weight"), dims));
    let tensors = all.chain([("lm_head.weight".to_owned(), vec![97, 48])]).zip(1u64..).map(|((name, dims), seed)| {
        let mut values = executor.randn(&dims, seed).unwrap().to_vec::<f32>().unwrap();
        if let Some(token) = damaged.filter(|_| name.contains("embed")) {
            values[token as usize * 48..][..48].fill(f32::NAN);
        }
        (name, executor.tensor(&dims, &values).unwrap())
    });
    Arc::new(Model::with_tensors(executor, Config::parse(CONFIG).unwrap(), &tensors.collect()).unwrap())
}

#[test]
fn a_request_whose_logits_are_no_numbers_fails_alone_also_in_a_step_that_follows() {
    let executor = Executor::new_cpu(2.try_into().unwrap()).unwrap().with_precision(Precision::Strict);
    let requests: Vec<_> = (0..3).map(|seed| Request { logprobs: None, ..request(3, 2 * seed, 30) }).collect();
    let whole = with_damage(&executor, None);
    let expected: Vec<Vec<_>> =
        requests.iter().map(|request| alone(&whole, DType::F32.into(), request).into_iter().map(|(token, _)| token).collect()).collect();
    // A token that the second text alone draws, after some others.
    let is_elsewhere = |token: u32, place: usize| {
        let drawn = expected.iter().enumerate().flat_map(|(text, tokens)| if text == 1 { &tokens[..place] } else { &tokens[..] });
        drawn.chain(requests.iter().flat_map(|request| &request.prompt)).any(|&other| other == token)
    };
    let place = (5..25).find(|&place| !is_elsewhere(expected[1][place], place)).expect("a token that one text alone draws");
    let damaged = with_damage(&executor, Some(expected[1][place]));
    for follows in [false, true] {
        let mut engine = Engine::new(damaged.clone(), options(2048, 64, 3)).unwrap();
        engine.runner.always_follows = follows;
        let ids: Vec<_> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
        let (mut found, mut failed) = (vec![Vec::new(); 3], Vec::new());
        while !engine.is_idle() {
            for output in engine.step() {
                match output {
                    Output::Token { request, token, .. } => found[ids.iter().position(|id| *id == request).unwrap()].push(token),
                    Output::Finished { .. } => {}
                    Output::Failed { request, error } => failed.push((request, error.to_string())),
                }
            }
        }
        assert!(matches!(&failed[..], [(id, error)] if *id == ids[1] && error.contains("is NaN")), "{failed:?}");
        assert_eq!(found, [&expected[0][..], &expected[1][..=place], &expected[2]], "follows: {follows}");
        assert_eq!(engine.statistics().free_pages, engine.statistics().pages);
    }
}

#[test]
fn an_answer_has_the_bits_it_has_alone() {
    let model = model(CONFIG);
    let of = |seed: u32| request([70, 300, 33, 1, 64, 130][seed as usize % 6], seed, 9);
    let expected: Vec<_> = (0..16).map(|seed| alone(&model, DType::F32.into(), &of(seed))).collect();
    // How many at a time, in steps of how many tokens, with how many in the cache.
    for (count, step_tokens, cache_tokens) in [(1, 1, 600), (2, 64, 1024), (4, 512, 2048), (16, 512, 4096), (16, 64, 4096)] {
        let mut engine = Engine::new(model.clone(), options(cache_tokens, step_tokens, count.min(step_tokens))).unwrap();
        engine.compile().unwrap();
        let requests: Vec<_> = (0..count as u32).map(of).collect();
        let found = run(&mut engine, &requests);
        assert!(found.iter().map(|(answer, _)| answer).eq(&expected[..count]), "{count} in steps of {step_tokens}");
        if cache_tokens < 1000 {
            continue;
        }
        // Once more, in another order, from the cache.
        let reversed: Vec<_> = requests.into_iter().rev().collect();
        for ((answer, cached), (expected, request)) in run(&mut engine, &reversed).iter().zip(expected[..count].iter().rev().zip(&reversed)) {
            assert!(answer == expected && *cached == (request.prompt.len() - 1) / PAGE * PAGE, "{cached} of {}", request.prompt.len());
        }
    }
}

#[test]
fn an_invariant_answer_has_the_bits_it_has_alone() {
    let model = model_of(Precision::Invariant, CONFIG);
    let requests: Vec<_> = (0..4).map(|seed| request([70, 300, 33, 130][seed as usize], seed, 5)).collect();
    let expected: Vec<_> = requests.iter().map(|request| alone(&model, DType::F32.into(), request)).collect();
    for step_tokens in [4, 64, 512] {
        let found = run(&mut Engine::new(model.clone(), options(4096, step_tokens, 4)).unwrap(), &requests);
        assert!(found.iter().map(|(answer, _)| answer).eq(&expected), "in steps of {step_tokens}");
    }
}

/// An engine whose steps follow those before as they do on a device that computes beside the host.
fn following(model: &Arc<Model>, options: EngineOptions) -> Engine {
    let mut engine = Engine::new(model.clone(), options).unwrap();
    engine.runner.always_follows = true;
    engine
}

#[test]
fn a_step_that_follows_gives_what_one_does_that_waits() {
    let model = model(CONFIG);
    // Texts go beyond pages, and end one after the other.
    let of = |seed: u32| Request { logprobs: None, ..request([70, 33, 1, 64, 126][seed as usize % 5], seed, 20 + 7 * seed as usize) };
    let requests: Vec<_> = (0..5).map(of).collect();
    let expected: Vec<_> = requests.iter().map(|request| alone(&model, DType::F32.into(), request)).collect();
    for count in [1, 2, 3, 5] {
        let found = run(&mut following(&model, options(2048, 64, 5)), &requests[..count]);
        assert!(found.iter().map(|(answer, _)| answer).eq(&expected[..count]), "{count} at a time");
    }

    // One ends where it was not foreseen, one is cancelled, and one comes, while the next step is under way.
    let tokens_of = |answer: &Answer| answer.iter().map(|&(token, _)| token).collect::<Vec<_>>();
    let mut engine = following(&model, options(640, 64, 5));
    let expected: Vec<_> = expected.iter().map(tokens_of).collect();
    let end = (8..20).find(|&place| !expected[3][..place].contains(&expected[3][place])).unwrap();
    let ending = Request { end_tokens: vec![expected[3][end]], ..requests[3].clone() };
    let ids: Vec<_> = [&requests[0], &requests[1], &ending].map(|request| engine.submit(request.clone()).unwrap()).into();
    let (mut found, mut late) = (vec![Vec::new(); 3], None);
    let mut followed = 0;
    while !engine.is_idle() {
        for output in engine.step() {
            match output {
                Output::Token { request, token, .. } => {
                    let place = ids.iter().chain(&late).position(|&id| id == request).expect("a token of a request that was cancelled");
                    assert!(late.is_none() || place != 1);
                    found[place].push(token);
                }
                Output::Finished { finish, request, .. } => assert_eq!(finish == Finish::EndToken, request == ids[2]),
                Output::Failed { error, .. } => panic!("{error}"),
            }
        }
        followed += usize::from(engine.coming.is_some());
        if late.is_none() && found[1].len() == 5 {
            assert!(engine.coming.is_some() && engine.cancel(ids[1]));
            late = Some(engine.submit(requests[4].clone()).unwrap());
            found.push(Vec::new());
        }
    }
    assert!(followed > 30, "{followed} steps followed others");
    assert_eq!(found, [&expected[0], &expected[1][..5], &expected[3][..end], &expected[4]]);
    assert_eq!(engine.statistics().free_pages, engine.statistics().pages);
}

#[test]
fn prompts_that_come_together_share_what_they_have_in_common() {
    let model = model(CONFIG);
    let choices: Vec<_> = (0..4).map(|seed| Request { sampling: Sampling { seed, ..request(1, 1, 1).sampling }, ..request(200, 7, 5) }).collect();
    let mut engine = Engine::new(model.clone(), options(2048, 64, 4)).unwrap();
    let found = run(&mut engine, &choices);
    // They take turns at the six pages, each of which is computed once.
    assert_eq!(found.iter().map(|(_, cached)| cached).sum::<usize>(), 3 * 192);
    assert_eq!(engine.statistics().computed_tokens, 200 + 3 * 8 + 4 * 4);
    for ((answer, _), request) in found.iter().zip(&choices) {
        assert!(*answer == alone(&model, DType::F32.into(), request));
    }
}

#[test]
fn an_answer_has_the_same_bits_when_its_pages_were_lost() {
    let model = model(CONFIG);
    let requests: Vec<_> = (0..5).map(|seed| request(28 + seed as usize, seed, 40)).collect();
    let expected: Vec<_> = requests.iter().map(|request| alone(&model, DType::F32.into(), request)).collect();
    for shares_prefixes in [false, true] {
        let mut engine = Engine::new(model.clone(), EngineOptions { shares_prefixes, ..options(192, 64, 5) }).unwrap();
        let found = run(&mut engine, &requests);
        assert!(engine.statistics().preemptions > 2, "{:?}", engine.statistics());
        assert!(found.iter().map(|(answer, _)| answer).eq(&expected));
    }
}

#[test]
fn other_models_and_caches_have_the_same_bits() {
    let with = |architecture: &str, more: &str| CONFIG.replace("LlamaForCausalLM", architecture).replace("1e-5", &format!("1e-5, {more}"));
    let f16 = CacheType::from(DType::F16);
    for (config, cache) in [
        (with("Gemma2ForCausalLM", r#""head_dim": 8, "sliding_window": 40"#), f16),
        (with("Gemma3ForCausalLM", r#""head_dim": 8, "sliding_window": 40"#), DType::BF16.into()),
        (with("Phi3ForCausalLM", r#""sliding_window": 100"#), f16),
        (with("LlamaForCausalLM", r#""head_dim": 32"#), CacheType::Q8_0),
    ] {
        let model = model(&config);
        let requests: Vec<_> = [90, 20, 150].into_iter().zip(0..).map(|(length, seed)| request(length, seed, 5)).collect();
        let mut engine = Engine::new(model.clone(), EngineOptions { cache, ..options(1024, 64, 3) }).unwrap();
        for (answer, request) in run(&mut engine, &requests).iter().zip(&requests) {
            assert!(answer.0 == alone(&model, cache, request), "{config} {cache}");
        }
    }
}

#[test]
fn tokens_that_the_host_chooses_are_those_of_a_sampler() {
    let model = model(CONFIG);
    let sampling = Sampling { temperature: 0.8, top_k: 20, top_p: 0.9, repetition_penalty: 1.3, seed: 9, ..Sampling::default() };
    let penalised = Request { sampling, logprobs: None, ..request(40, 2, 20) };
    let biased = Request { bias: vec![(11, 100.0)], ..request(40, 2, 20) };
    let mut engine = Engine::new(model.clone(), options(2048, 64, 4)).unwrap();
    let found = run(&mut engine, &[penalised.clone(), biased, request(40, 4, 20)]);
    assert_eq!(found[0].0, alone(&model, DType::F32.into(), &penalised));
    assert!(found[1].0.iter().all(|(token, _)| *token == 11));
    assert_eq!(found[2].0, alone(&model, DType::F32.into(), &request(40, 4, 20)));
}

/// Allows even tokens alone.
struct Even;

impl TokenMask for Even {
    fn allow(&mut self, words: &mut [u32]) -> Result<()> {
        words.fill(0x5555_5555);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        if token.is_multiple_of(2) { Ok(()) } else { Err(Error::internal("an odd token")) }
    }
}

#[test]
fn a_cancelled_request_frees_its_pages_in_every_phase() {
    let model = model(CONFIG);
    let other = request(70, 1, 30);
    let expected = alone(&model, DType::F32.into(), &other);
    let constrained = || Request { constraint: Some(Constraint::new(Even)), ..request(130, 2, 30) };
    let plain = || options(640, 64, 2);
    let guessing = || drafting(DraftSource::Model(model.clone()), 4, plain());
    type Phase = fn(&Sequence, &[Sequence]) -> bool;
    let is_in_prompt: Phase = |sequence, _| sequence.computed > 0 && sequence.computed < sequence.request.prompt.len();
    let is_decoding: Phase = |sequence, _| sequence.generated() >= 3;
    let is_queued: Phase = |sequence, running| !sequence.preempted && running.iter().all(|other| other.id != sequence.id);
    let is_preempted: Phase = |sequence, running| sequence.preempted && running.iter().all(|other| other.id != sequence.id);
    for (phase, options, request, is_reached) in [
        ("queued", options(640, 64, 1), request(200, 2, 30), is_queued),
        ("in its prompt", plain(), request(200, 2, 30), is_in_prompt),
        ("decoding", plain(), request(10, 2, 30), is_decoding),
        ("decoding with guesses", guessing(), request(100, 2, 30), is_decoding),
        ("preempted", options(160, 64, 2), request(60, 2, 60), is_preempted),
        ("constrained, in its prompt", plain(), constrained(), is_in_prompt),
        ("constrained, decoding", plain(), constrained(), is_decoding),
    ] {
        let mut engine = Engine::new(model.clone(), options).unwrap();
        let [kept, cancelled] = [other.clone(), request].map(|request| engine.submit(request).unwrap());
        let (mut found, mut after) = (Vec::new(), None);
        while !engine.is_idle() {
            for output in engine.step() {
                match output {
                    Output::Token { request, token, logprobs, .. } if request == kept => found.push((token, logprobs)),
                    Output::Token { request, token, .. } => {
                        assert!(request == cancelled && after.is_none(), "{phase}: a token after the end");
                        assert!(token % 2 == 0 || !phase.starts_with("constrained"));
                    }
                    Output::Finished { request, .. } => assert_eq!(request, kept, "{phase}"),
                    Output::Failed { error, .. } => panic!("{phase}: {error}"),
                }
            }
            let schedule = &engine.schedule;
            if after.is_none() && schedule.sequences().any(|sequence| sequence.id == cancelled && is_reached(sequence, &schedule.running)) {
                assert!(engine.cancel(cancelled) && !engine.cancel(cancelled));
                // Before the next step all pages are free but those of the other.
                let others: usize = engine.schedule.sequences().map(|sequence| sequence.pages.len()).sum();
                let statistics = engine.statistics();
                assert_eq!((statistics.free_pages, statistics.running), (statistics.pages - others, 1), "{phase}");
                after = Some(found.len());
            }
        }
        assert!(after.is_some_and(|tokens| tokens < 30), "{phase}: never reached");
        assert_eq!((found == expected, engine.statistics().free_pages), (true, engine.statistics().pages), "{phase}");
    }
}

/// Adapters of ranks 4 to 12, each of other layers, under the names "0", "1", ….
fn load_adapters(engine: &mut Engine, count: usize) -> Vec<Adapter> {
    let folder = tempfile::tempdir().unwrap();
    let targets = [r#"["q_proj", "v_proj"]"#, r#"["o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]"#, r#""all-linear""#];
    let load = |index: usize| {
        let config = format!(
            r#"{{"peft_type": "LORA", "r": {}, "lora_alpha": 6, "target_modules": {}}}"#,
            4 * (index % 3 + 1),
            targets[index % targets.len()]
        );
        let adapter = waves(engine.model(), &config, [0.01 * index as f32, 0.1]);
        adapter.save(folder.path()).unwrap();
        engine.load_adapter(&index.to_string(), folder.path()).unwrap();
        adapter
    };
    (0..count).map(load).collect()
}

fn named(adapter: Option<usize>, request: Request) -> Request {
    Request { adapter: adapter.map(|index| index.to_string()), ..request }
}

#[test]
fn each_row_has_the_bits_of_its_adapter() {
    let executor = model(CONFIG).executor().clone();
    let wide = CONFIG.replace("48", "64").replace("80", "96").replace("\"num_attention_heads\": 6", "\"num_attention_heads\": 2");
    for (config, kind) in [(CONFIG, WeightType::Plain(DType::BF16)), (&wide, WeightType::Block(Format::Q4_0))] {
        let base = Arc::new(Model::random(&executor, Config::parse(config).unwrap(), kind, 1).unwrap());
        let mut engine = Engine::new(base.clone(), options(4096, 128, 8)).unwrap();
        // The same model on two devices.
        let group = Executor::group(&[BackendType::Cpu; 2]).unwrap().with_precision(Precision::Strict);
        let shared = Model::random(&group, Config::parse(config).unwrap(), kind, 1).unwrap();
        let mut on_two = Engine::new(Arc::new(shared), options(4096, 128, 8)).unwrap();
        load_adapters(&mut on_two, 3);
        let adapted: Vec<_> = load_adapters(&mut engine, 3).iter().map(|adapter| Arc::new(base.with_adapter(adapter).unwrap())).collect();
        let model = |adapter: Option<usize>| adapter.map_or(&base, |index| &adapted[index]);
        // One prompt with each, and others beside it: no pages are shared between adapters.
        let choices = [None, Some(0), Some(1), Some(2), Some(1), None, Some(2)];
        let of = |index: usize| request([70, 70, 70, 70, 33, 40, 1][index], if index < 4 { 1 } else { index as u32 }, 6);
        let requests: Vec<_> = choices.into_iter().enumerate().map(|(index, adapter)| named(adapter, of(index))).collect();
        let expected: Vec<_> = requests.iter().zip(choices).map(|(request, adapter)| alone(model(adapter), DType::F32.into(), request)).collect();
        assert!(expected[..4].iter().enumerate().all(|(index, answer)| !expected[..index].contains(answer)), "adapters make no difference");
        for engine in [&mut engine, &mut on_two] {
            for is_cached in [false, true] {
                for ((answer, cached), (expected, request)) in run(engine, &requests).iter().zip(expected.iter().zip(&requests)) {
                    let pages = if is_cached { (request.prompt.len() - 1) / PAGE } else { 0 };
                    let ranks = engine.model().executor().ranks();
                    assert!(answer == expected && *cached == pages * PAGE, "{kind:?}, {ranks} ranks, {cached} cached");
                }
            }
        }
    }
}

#[test]
fn an_adapter_goes_when_nobody_has_it() {
    let model = model(CONFIG);
    let mut engine = Engine::new(model.clone(), options(2048, 64, 4)).unwrap();
    let adapted: Vec<_> = load_adapters(&mut engine, 2).iter().map(|adapter| Arc::new(model.with_adapter(adapter).unwrap())).collect();
    let requests = [named(Some(0), request(40, 1, 20)), named(Some(1), request(40, 1, 20))];
    let expected: Vec<_> = requests.iter().zip(&adapted).map(|(request, model)| alone(model, DType::F32.into(), request)).collect();
    let ids: Vec<_> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
    let mut answers = [Vec::new(), Vec::new()];
    let mut steps = 0;
    while !engine.is_idle() {
        if steps == 5 {
            engine.unload_adapter("0").unwrap();
            let error = engine.submit(requests[0].clone()).unwrap_err().to_string();
            assert_eq!(error, "the adapter '0' is not loaded: loaded are 1");
            // Another of that name is another adapter.
            load_adapters(&mut engine, 1);
        }
        for output in engine.step() {
            if let Output::Token { request, token, logprobs, .. } = output {
                answers[ids.iter().position(|id| *id == request).unwrap()].push((token, logprobs));
            }
        }
        steps += 1;
    }
    assert!(answers[0] == expected[0] && answers[1] == expected[1]);
    let names: Vec<_> = engine.adapters().collect();
    assert_eq!(names, ["0", "1"]);
}

/// Options with guesses of up to so many tokens.
fn drafting(source: DraftSource, most: usize, options: EngineOptions) -> EngineOptions {
    EngineOptions { drafts: Some(Drafts { source, most }), ..options }
}

#[test]
fn guesses_change_no_answer() {
    let model = model(CONFIG);
    let other = Arc::new(Model::random(model.executor(), Config::parse(CONFIG).unwrap(), WeightType::Plain(DType::F32), 2).unwrap());
    // Some with log probabilities, some with choices of the host, at temperatures 0 and 1; one has a text that repeats itself.
    let mut requests: Vec<_> = (0..6).map(|seed| request([70, 300, 33, 1, 64, 130][seed as usize], seed, 30)).collect();
    requests[2] = Request { sampling: Sampling { repetition_penalty: 1.1, ..Sampling::default() }, ..request(33, 2, 30) };
    requests.push(Request { logprobs: None, ..Request::new(prompt(7, 3).repeat(9), 60) });
    let expected: Vec<_> = requests.iter().map(|request| alone(&model, DType::F32.into(), request)).collect();
    for (source, most, least, greatest) in
        [(DraftSource::Lookup, 5, 0.05, 0.9), (DraftSource::Model(model.clone()), 3, 0.99, 1.0), (DraftSource::Model(other), 4, 0.0, 0.5)]
    {
        // The last has so few pages that requests are preempted.
        for (step_tokens, cache_tokens, running) in [(64, 4096, 1), (512, 4096, 7), (40, 600, 7)] {
            let mut engine = Engine::new(model.clone(), drafting(source.clone(), most, options(cache_tokens, step_tokens, running))).unwrap();
            for is_cached in [false, true] {
                let found = run(&mut engine, &requests);
                assert!(found.iter().map(|(answer, _)| answer).eq(&expected), "{source:?} in steps of {step_tokens}, cached: {is_cached}");
            }
            let statistics = engine.statistics();
            let share = statistics.accepted_tokens as f64 / statistics.drafted_tokens as f64;
            assert!((least..=greatest).contains(&share) && statistics.drafted_tokens > 100, "{source:?}: {statistics:?}");
            assert!(cache_tokens > 600 || statistics.preemptions > 0, "{statistics:?}");
        }
    }
}

#[test]
fn guesses_that_are_right_save_steps() {
    let model = model(CONFIG);
    let request = Request::new(prompt(40, 1), 100);
    let steps = |drafts: Option<Drafts>| {
        let mut engine = Engine::new(model.clone(), EngineOptions { drafts, ..options(600, 64, 1) }).unwrap();
        run(&mut engine, std::slice::from_ref(&request));
        engine.statistics().steps
    };
    assert_eq!(steps(None), 100);
    // The first token is the prompt's; a step gives four guesses and one more.
    assert_eq!(steps(Some(Drafts { source: DraftSource::Model(model.clone()), most: 4 })), 1 + 20);
}

#[test]
fn thousands_of_requests_leave_what_the_engine_holds_as_it_was() {
    let model = model(CONFIG);
    let mut engine = Engine::new(model, EngineOptions { waiting: 40, ..options(320, 32, 8) }).unwrap();
    let (mut submitted, mut finished, mut tokens) = (0, 0, 0);
    while finished < 2000 {
        while submitted < 2000 && engine.submit(Request::new(prompt(1 + submitted % 50, submitted as u32), 1 + submitted % 3)).is_ok() {
            submitted += 1;
        }
        for output in engine.step() {
            match output {
                Output::Token { .. } => tokens += 1,
                Output::Finished { .. } => finished += 1,
                Output::Failed { error, .. } => panic!("{error}"),
            }
        }
    }
    let statistics = engine.statistics();
    assert_eq!((statistics.free_pages, statistics.pages, statistics.running, statistics.waiting), (10, 10, 0, 0));
    assert!(statistics.cached_pages <= 10, "{statistics:?}");
    assert_eq!(tokens, (0..2000).map(|i| 1 + i % 3).sum::<usize>());
}

#[test]
fn texts_that_go_on_and_parts_of_prompts_fill_a_step_and_no_more() {
    let model = model(CONFIG);
    for running in [1, 2, 5, 9, 12] {
        for drafts in [None, Some(Drafts { source: DraftSource::Lookup, most: 2 })] {
            let mut engine = Engine::new(model.clone(), EngineOptions { drafts, ..options(8192, 64, running) }).unwrap();
            run(&mut engine, &(0..14).map(|seed| request(100 + 3 * seed as usize, seed, 20)).collect::<Vec<_>>());
            assert_eq!(engine.runner.most_rows(), 64, "{running}");
        }
    }
}

#[test]
fn steps_of_all_shapes_take_the_memory_of_the_largest() {
    let model = model(CONFIG);
    let options = EngineOptions { shares_prefixes: false, ..options(8192, 256, 16) };
    let mut engine = Engine::new(model.clone(), options.clone()).unwrap();
    let mut compute = |count: usize, length: usize| {
        let requests: Vec<_> = (0..count).map(|seed| Request::new(prompt(length, seed as u32), 2)).collect();
        run(&mut engine, &requests);
        let pool = model.executor().device().pool().statistics();
        (pool.live_bytes + pool.cached_bytes, engine.runner.recordings())
    };
    // Each larger than the one before, then once more those that are no longer recorded.
    let shapes: Vec<_> =
        [1, 2, 3, 4, 6, 8, 12, 16].into_iter().flat_map(|count| (4..256 / count).step_by(9).map(move |length| (count, length))).collect();
    let (most, (_, shared)) = shapes.iter().map(|&(count, length)| compute(count, length)).max().unwrap();
    for &(count, length) in &shapes {
        // But for the tokens and tables of a step.
        let (bytes, recordings) = compute(count, length);
        assert!(bytes < most + (64 << 10) && recordings == (32, shared), "{count} of {length}: {bytes} bytes after {most}, {recordings:?}");
    }
    let estimate = MemoryEstimate::with_engine(model.config(), 0, &options).activations as usize;
    assert!((estimate / 16..estimate).contains(&shared), "{shared} of {estimate}");
}

#[test]
fn what_cannot_be_is_one_clear_line() {
    let model = model(CONFIG);
    let error = |options: EngineOptions| Engine::new(model.clone(), options).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error(EngineOptions::new(2000, DType::F32)), "a context of 2000 tokens: the model has 1 to 1024");
    assert_eq!(error(options(31, 8, 8)), "a cache of 31 tokens: at least a page of 32 expected");
    assert_eq!(error(options(64, 7, 8)), "8 requests at a time, in steps of 7 tokens: at least one, and as many tokens, expected");
    assert_eq!(error(drafting(DraftSource::Lookup, 8, options(64, 8, 8))), "8 drafts in steps of 8 tokens: at least one, and fewer, expected");
    let small = |change: &str, to: &str| {
        let config = Config::parse(&CONFIG.replace(change, to)).unwrap();
        DraftSource::Model(Arc::new(Model::random(model.executor(), config, WeightType::Plain(DType::F32), 2).unwrap()))
    };
    assert_eq!(
        error(drafting(small("97", "98"), 4, options(64, 8, 8))),
        "the draft model has a vocabulary of 98 tokens, the model one of 97: give a draft model with the same"
    );
    assert_eq!(
        error(drafting(small("1024", "100"), 4, options(64, 8, 8))),
        "the draft model has a context of at most 100 tokens, 600 are asked for: lower the context or give another draft model"
    );
    let mut engine = Engine::new(model, EngineOptions { waiting: 1, ..options(320, 32, 8) }).unwrap();
    let mut error = |request: Request| engine.submit(request).unwrap_err().to_string();
    assert_eq!(error(Request::new(vec![], 1)), "the prompt is empty: give at least one token");
    assert_eq!(error(Request::new(vec![97], 1)), "token id 97 is outside the vocabulary of 97 tokens");
    assert_eq!(error(Request::new(vec![1; 600], 1)), "the prompt of 600 tokens leaves no room in a context of 600: shorten it or raise the context");
    assert_eq!(
        error(Request::new(vec![1; 330], 1)),
        "the prompt of 330 tokens leaves no room in a cache of 320: shorten it or give the cache more memory"
    );
    let named = Request { adapter: Some("poet".to_owned()), ..Request::new(vec![1], 1) };
    assert_eq!(error(named), "the adapter 'poet' is not loaded: none is");
    assert!(error(Request { bias: vec![(1, f32::NAN)], ..Request::new(vec![1], 1) }).contains("a bias is NaN"));
    assert!(error(Request { sampling: Sampling { top_p: 2.0, ..Sampling::default() }, ..Request::new(vec![1], 1) }).contains("top-p is 2"));
    let first = engine.submit(Request::new(vec![1; 300], 99)).unwrap();
    assert_eq!(engine.submit(Request::new(vec![1], 1)).unwrap_err().to_string(), "1 requests wait, and 1 may: ask again later");
    // The cache is full before as many tokens are there as were asked for.
    let mut outputs = Vec::new();
    while !engine.is_idle() {
        outputs.extend(engine.step());
    }
    assert!(matches!(outputs.pop(), Some(Output::Finished { request, finish: Finish::ContextFull, .. }) if request == first));
    assert_eq!(outputs.len(), 20);
}
