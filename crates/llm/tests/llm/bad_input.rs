use std::fs;

use elinvar::{DType, Result};
use elinvar_llm::{Event, Finish, GenerationOptions, Generator, MemoryEstimate, ModelFiles, Sampling, Session, Tokenizer, Weights};

use crate::fixture::{Fixture, config, strict};

fn rejected<T>(result: Result<T>) -> String {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn llama(more: &str) -> Fixture {
    Fixture::new(&config("LlamaForCausalLM", more), DType::F32)
}

/// A tokenizer of 97 letters and no rules.
fn tokenizer(fixture: &Fixture) -> Tokenizer {
    let vocab: serde_json::Map<_, _> = (0..97u32).map(|i| (char::from_u32(0x4e00 + i).unwrap().to_string(), i.into())).collect();
    let json = serde_json::json!({"version": "1.0", "model": {"type": "BPE", "vocab": vocab, "merges": []}, "decoder": {"type": "Fuse"}});
    fs::write(fixture.folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    Tokenizer::open(&ModelFiles::open(fixture.folder.path()).unwrap()).unwrap()
}

#[test]
fn weights_that_contradict_the_configuration_name_the_tensor() {
    let executor = strict(1);
    let mut fixture = llama("");
    let whole = fixture.tensors.clone();
    let mut change = |edit: &dyn Fn(&mut crate::fixture::Tensors)| {
        fixture.tensors = whole.clone();
        edit(&mut fixture.tensors);
        fixture.save(DType::F32);
        rejected(fixture.open(&executor))
    };
    let name = "model.layers.1.mlp.up_proj.weight";
    assert!(change(&|t| drop(t.remove(name))).contains("tensor 'model.layers.1.mlp.up_proj.weight' is missing"));
    let shape = change(&|t| t.get_mut(name).unwrap().0.reverse());
    assert!(shape.contains("up_proj.weight' has shape [48, 80], the configuration asks for [80, 48]"), "{shape}");
    let extra = change(&|t| drop(t.insert("model.layers.0.self_attn.q_proj.bias".into(), (vec![48], vec![0.0; 48]))));
    assert!(extra.contains("'model.layers.0.self_attn.q_proj.bias' has no place in the configuration"), "{extra}");
    let redundant = ("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), (vec![4], vec![0.0; 4]));
    fixture.tensors = whole.clone().into_iter().chain([redundant]).collect();
    fixture.save(DType::F32);
    assert!(fixture.open(&executor).is_ok());
}

#[test]
fn a_configuration_of_another_model_is_found_out() {
    let fixture = llama("");
    let rejected_with = |from: &str, to: &str| {
        let text = config("LlamaForCausalLM", "").replace(from, to);
        fs::write(fixture.folder.path().join("config.json"), text).unwrap();
        rejected(fixture.open(&strict(1)))
    };
    assert!(rejected_with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4").contains("'model.layers.3.input_layernorm.weight' is missing"));
    assert!(rejected_with("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 2").contains("no place in the configuration"));
    assert!(rejected_with("\"vocab_size\": 97", "\"vocab_size\": 98").contains("'model.embed_tokens.weight' has shape [97, 48]"));
    assert!(rejected_with("LlamaFor", "Qwen3For").contains("'model.layers.0.self_attn"));
}

#[test]
fn sessions_reject_what_they_cannot_hold() {
    let model = llama("").open(&strict(1)).unwrap();
    assert!(rejected(Session::new(model.clone(), 65, DType::F32)).contains("65 tokens: the model has 1 to 64"));
    assert!(rejected(Session::new(model.clone(), 0, DType::F32)).contains("0 tokens"));
    assert!(rejected(Session::new(model.clone(), 8, DType::I8)).contains("cache of i8"));
    let mut session = Session::new(model, 8, DType::F32).unwrap();
    assert!(rejected(session.feed(&[])).contains("no tokens"));
    assert!(rejected(session.feed(&[1, 97])).contains("token id 97 is outside the vocabulary of 97"));
    assert!(rejected(session.feed(&[0; 9])).contains("9 tokens after 0 do not fit a context of 8"));
    assert!(session.is_empty() && session.feed(&[0; 8]).is_ok() && session.feed(&[0]).is_err());
    assert_eq!(session.len(), 8);
}

#[test]
fn generators_reject_prompts_without_room_or_words() {
    let fixture = llama("");
    let session = Session::new(fixture.open(&strict(1)).unwrap(), 8, DType::F32).unwrap();
    let mut generator = Generator::new(session, tokenizer(&fixture), vec![]).unwrap();
    let options = GenerationOptions::default();
    let mut run =
        |prompt: &[u32], options: &GenerationOptions| generator.generate(prompt, options, &mut |_: Event<'_>| std::ops::ControlFlow::Continue(()));
    assert!(rejected(run(&[], &options)).contains("the prompt is empty"));
    assert!(rejected(run(&[1; 8], &options)).contains("the prompt of 8 tokens leaves no room in a context of 8"));
    assert!(rejected(run(&[1, 1000], &options)).contains("token id 1000"));
    let empty_stop = GenerationOptions { stop: vec![String::new()], ..options.clone() };
    assert!(rejected(run(&[1], &empty_stop)).contains("stop string is empty"));
    let cold = GenerationOptions { sampling: Sampling { temperature: -1.0, ..Sampling::default() }, ..options.clone() };
    assert!(rejected(run(&[1], &cold)).contains("temperature"));
    let full = run(&[1, 2, 3], &options).unwrap();
    assert_eq!((full.finish, full.tokens.len()), (Finish::ContextFull, 5));
}

#[test]
fn damaged_weights_are_noticed_at_the_first_token() {
    let mut fixture = llama("");
    fixture.tensors.get_mut("model.norm.weight").unwrap().1[3] = f32::NAN;
    fixture.save(DType::F32);
    let session = Session::new(fixture.open(&strict(1)).unwrap(), 8, DType::F32).unwrap();
    let mut generator = Generator::new(session, tokenizer(&fixture), vec![]).unwrap();
    let result = generator.generate(&[1], &GenerationOptions::default(), &mut |_: Event<'_>| std::ops::ControlFlow::Continue(()));
    assert!(rejected(result).contains("logit of token 0 is NaN"));
}

#[test]
fn a_model_that_cannot_fit_is_rejected_before_it_is_loaded() {
    let fixture = llama("");
    let weights = Weights::open(&ModelFiles::open(fixture.folder.path()).unwrap()).unwrap();
    let estimate = MemoryEstimate::of(&fixture.config, &weights, 64, DType::F32, 16);
    let parameters: usize = fixture.tensors.values().map(|(_, values)| values.len()).sum();
    assert_eq!((estimate.weights, estimate.cache), (4 * parameters as u64, 3 * 2 * 64 * 16 * 4));
    assert!(estimate.check(strict(1).memory()).is_ok());
    let huge = MemoryEstimate { cache: u64::MAX / 2, ..estimate };
    assert!(rejected(huge.check(strict(1).memory())).contains("the model needs"));
}
