use std::{fs, ops::ControlFlow};

use elinvar::DType;
use elinvar_llm::{
    Chat, ChatOptions, DraftSource, Drafts, Engine, EngineOptions, Event, Finish, Generated, GenerationOptions, Generator, Message, ModelFiles,
    Sampling, Session, Tokenizer,
};

use crate::{
    fixture::strict,
    shakespeare::{folder, model},
};

fn tokenizer() -> Tokenizer {
    Tokenizer::open(&ModelFiles::open(folder()).unwrap()).unwrap()
}

fn generator(capacity: usize, end_tokens: &[u32]) -> Generator {
    let session = Session::new(model(&strict(2)), capacity, DType::F32).unwrap();
    Generator::new(session, tokenizer(), end_tokens.to_vec()).unwrap()
}

fn greedy(max_tokens: usize) -> GenerationOptions {
    GenerationOptions { max_tokens, ..GenerationOptions::default() }
}

/// Generates, and checks that the reported pieces are the text.
fn run(generator: &mut Generator, prompt: &str, options: &GenerationOptions) -> Generated {
    let prompt = generator.tokenizer().encode(prompt).unwrap();
    run_tokens(generator, &prompt, options)
}

fn run_tokens(generator: &mut Generator, prompt: &[u32], options: &GenerationOptions) -> Generated {
    let mut text_of_events = String::new();
    let mut listen = |event: Event<'_>| {
        if let Event::Text(text) = event {
            assert!(!text.is_empty());
            text_of_events.push_str(text);
        }
        ControlFlow::Continue(())
    };
    let generated = generator.generate(prompt, options, &mut listen).unwrap();
    assert_eq!(text_of_events, generated.text);
    generated
}

#[test]
fn greedy_text_is_that_of_transformers() {
    let runs: Vec<serde_json::Value> = serde_json::from_slice(&fs::read(folder().join("reference/greedy.json")).unwrap()).unwrap();
    assert!(!runs.is_empty());
    for reference in runs {
        let found = run(&mut generator(256, &[0]), reference["prompt"].as_str().unwrap(), &greedy(200));
        assert_eq!(serde_json::json!(found.tokens), reference["tokens"]);
        assert_eq!(found.text, reference["text"].as_str().unwrap());
        assert_eq!((found.finish, found.statistics.generated_tokens), (Finish::MaxTokens, 200));
    }
}

#[test]
fn texts_end_for_every_reason() {
    let mut generator = generator(40, &[199]);
    let end = run(&mut generator, "ROMEO:\nI", &greedy(200));
    assert_eq!((end.finish, end.text.contains('\n')), (Finish::EndToken, false));
    let none = run(&mut generator, "ROMEO:", &greedy(0));
    assert_eq!((none.finish, none.tokens.len(), none.statistics.decode_rate()), (Finish::MaxTokens, 0, 0.0));

    let mut generator = self::generator(40, &[]);
    let full = run(&mut generator, "ROMEO:", &greedy(200));
    assert_eq!((full.finish, full.tokens.len()), (Finish::ContextFull, 37));
    let stopped = run(&mut generator, "ROMEO:", &GenerationOptions { stop: vec!["bawd.".into(), "thee, s".into()], ..greedy(200) });
    assert_eq!((stopped.finish, &*stopped.text), (Finish::StopString, "\nI'll tell "));
    let mut pieces = 0;
    let mut listen = |event: Event<'_>| {
        pieces += usize::from(matches!(event, Event::Text(_)));
        if pieces == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let prompt = generator.tokenizer().encode("ROMEO:").unwrap();
    let cancelled = generator.generate(&prompt, &greedy(200), &mut listen).unwrap();
    assert_eq!((cancelled.finish, cancelled.tokens.len()), (Finish::Cancelled, 3));
    let early = generator.generate(&[0, 5, 6], &greedy(200), &mut |_: Event<'_>| ControlFlow::Break(())).unwrap();
    assert_eq!((early.finish, early.tokens.len()), (Finish::Cancelled, 0));
    assert_eq!(run(&mut generator, "ROMEO:", &greedy(200)).tokens, full.tokens);
}

#[test]
fn what_the_cache_holds_is_not_computed_again() {
    let mut one = generator(128, &[]);
    let first = run(&mut one, "ROMEO:", &greedy(10));
    assert_eq!((first.statistics.prompt_tokens, first.statistics.reused_tokens), (3, 0));
    let prompt = [&[0, 814, 26], &first.tokens[..], &[199, 199, 905, 26]].concat();
    let second = run_tokens(&mut one, &prompt, &greedy(30));
    // The last token of the first answer was chosen, but not yet fed.
    assert_eq!(second.statistics.reused_tokens, 12);
    let again = run_tokens(&mut one, &prompt, &greedy(30));
    assert_eq!(again.statistics.reused_tokens, 16);
    let fresh = run_tokens(&mut generator(128, &[]), &prompt, &greedy(30));
    assert_eq!([second.tokens, again.tokens], [fresh.tokens.clone(), fresh.tokens]);
}

#[test]
fn a_seed_fixes_the_text() {
    let sampled = |seed| {
        let sampling = Sampling { temperature: 0.9, top_p: 0.95, seed, ..Sampling::default() };
        run(&mut generator(96, &[0]), "", &GenerationOptions { sampling, ..greedy(60) }).text
    };
    assert_eq!(sampled(7), sampled(7));
    assert_ne!(sampled(7), sampled(8));
}

#[test]
fn guesses_on_an_engine_give_the_same_texts() {
    let model = model(&strict(2));
    let sampling = Sampling { temperature: 0.9, top_p: 0.95, seed: 7, ..Sampling::default() };
    let stop = vec!["bawd.".into(), "thee, s".into()];
    let all = [greedy(0), greedy(90), greedy(500), GenerationOptions { sampling, ..greedy(60) }, GenerationOptions { stop, ..greedy(200) }];
    for source in [DraftSource::Lookup, DraftSource::Model(model.clone())] {
        let options = EngineOptions { drafts: Some(Drafts { source, most: 4 }), ..EngineOptions::new(128, DType::F32) };
        let mut engine = Generator::on_engine(Engine::new(model.clone(), options).unwrap(), tokenizer(), vec![0]).unwrap();
        let mut guesses = 0;
        for options in &all {
            let (found, expected) = (run(&mut engine, "ROMEO:", options), run(&mut generator(128, &[0]), "ROMEO:", options));
            assert_eq!((&found.tokens, &found.text, found.finish), (&expected.tokens, &expected.text, expected.finish));
            guesses += found.statistics.accepted_tokens;
        }
        assert!(guesses > 0);
        let prompt = tokenizer().encode("ROMEO:").unwrap();
        let mut cancel = |event: Event<'_>| if matches!(event, Event::Text(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        assert_eq!(engine.generate(&prompt, &greedy(90), &mut cancel).unwrap().finish, Finish::Cancelled);
        assert!(engine.generate(&[5000], &greedy(9), &mut |_: Event<'_>| ControlFlow::Continue(())).is_err());
        assert_eq!(run(&mut engine, "ROMEO:", &greedy(90)).tokens, run(&mut generator(128, &[0]), "ROMEO:", &greedy(90)).tokens);
    }
}

const TEMPLATE: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'cat' %}{{ raise_exception('cats do not speak') }}{% endif %}\
    {{ m.role | upper }}:\n{{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}ASSISTANT:\n{% endif %}";

#[test]
fn a_conversation_computes_only_what_is_new() {
    let options = GenerationOptions { stop: vec!["\n\n".into()], ..greedy(40) };
    let mut listen = |_: Event<'_>| ControlFlow::Continue(());
    assert!(Chat::new(generator(256, &[]), None, ChatOptions::default()).map(|_| ()).unwrap_err().to_string().contains("no chat template"));
    let mut chat = Chat::new(generator(256, &[]), Some(TEMPLATE), ChatOptions::default()).unwrap();
    let first = chat.answer("Who art thou?", &options, &mut listen).unwrap();
    let second = chat.answer("And whence?", &options, &mut listen).unwrap();
    assert!(second.statistics.reused_tokens >= first.statistics.prompt_tokens, "{:?}", second.statistics);
    let roles: Vec<_> = chat.messages().iter().map(|m| m.role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!(chat.messages()[1].content, first.text);

    chat.push(Message::new("cat", "Meow."));
    assert!(chat.answer("What?", &options, &mut listen).unwrap_err().to_string().contains("cats do not speak"));
    assert_eq!(chat.messages().len(), 5);
    chat.clear();
    let long = chat.answer(&"Speak! ".repeat(300), &options, &mut listen).unwrap_err().to_string();
    assert!(long.contains("leaves no room in a context of 256"), "{long}");
    assert!(chat.messages().is_empty() && chat.answer("Who art thou?", &options, &mut listen).unwrap().tokens == first.tokens);
}
