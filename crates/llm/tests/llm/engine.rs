//! Many texts of a real model at a time, and one whose logits are no numbers among others.

use std::sync::Arc;

use elinvar::DType;
use elinvar_llm::{Engine, EngineOptions, Finish, Model, ModelFiles, Output, Request, RequestId, Session, Tokenizer};

use crate::{
    fixture::{Fixture, config, strict},
    shakespeare,
};

/// What comes of each request: its tokens, and how it ends.
fn run(engine: &mut Engine, requests: &[Request]) -> Vec<(Vec<u32>, Result<Finish, String>)> {
    let ids: Vec<RequestId> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
    let mut results = vec![(Vec::new(), Err("no end".to_owned())); ids.len()];
    while !engine.is_idle() {
        for output in engine.step() {
            let place = |id| ids.iter().position(|other| *other == id).unwrap();
            match output {
                Output::Token { request, token, .. } => results[place(request)].0.push(token),
                Output::Finished { request, finish, .. } => results[place(request)].1 = Ok(finish),
                Output::Failed { request, error } => results[place(request)].1 = Err(error.to_string()),
            }
        }
    }
    results
}

fn alone(model: &Arc<Model>, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut session = Session::new(model.clone(), 64, DType::F32).unwrap();
    let logits = session.feed(prompt).unwrap();
    let first = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
    [vec![first], session.greedy(first, count - 1).unwrap().map(Result::unwrap).collect()].concat()
}

#[test]
fn many_texts_of_a_real_model_are_those_of_sessions() {
    let model = shakespeare::model(&strict(2));
    let tokenizer = Tokenizer::open(&ModelFiles::open(shakespeare::folder()).unwrap()).unwrap();
    let texts = ["ROMEO:", "JULIET:\nO", "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n", "KING"];
    let mut requests: Vec<_> = texts.iter().map(|text| Request::new(tokenizer.encode(text).unwrap(), 30)).collect();
    let expected: Vec<_> = requests.iter().map(|request| alone(&model, &request.prompt, 30)).collect();
    // One ends at the end token.
    let end = expected[1][12];
    requests[1].end_tokens.push(end);
    let found = run(&mut Engine::new(model, EngineOptions::new(64, DType::F32)).unwrap(), &requests);
    for (index, ((tokens, finish), expected)) in found.into_iter().zip(expected).enumerate() {
        let length = if index == 1 { expected.iter().position(|token| *token == end).unwrap() } else { 30 };
        assert_eq!((&tokens[..], finish), (&expected[..length], Ok(if index == 1 { Finish::EndToken } else { Finish::MaxTokens })));
    }
}

#[test]
fn a_text_whose_logits_are_no_numbers_fails_alone() {
    let mut fixture = Fixture::new(&config("LlamaForCausalLM", ""), DType::F32);
    let healthy = fixture.open(&strict(1)).unwrap();
    let (dims, embedding) = fixture.tensors.get_mut("model.embed_tokens.weight").unwrap();
    let width = dims[1];
    embedding[7 * width] = f32::NAN;
    fixture.save(DType::F32);
    let model = fixture.open(&strict(1)).unwrap();
    let prompts = [vec![1, 2, 3], vec![4, 7, 5], vec![9; 40]];
    let requests = prompts.clone().map(|prompt| Request::new(prompt, 3));
    let mut engine = Engine::new(model, EngineOptions::new(64, DType::F32)).unwrap();
    for _ in 0..2 {
        let found = run(&mut engine, &requests);
        assert!(found[1].1.as_ref().unwrap_err().contains("logit of token 0 is NaN") && found[1].0.is_empty(), "{:?}", found[1]);
        for index in [0, 2] {
            assert_eq!(found[index], (alone(&healthy, &prompts[index], 3), Ok(Finish::MaxTokens)));
        }
        let statistics = engine.statistics();
        assert_eq!(statistics.free_pages, statistics.pages);
    }
}
