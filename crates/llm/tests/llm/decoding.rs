//! Tokens that the device chooses, against logits that the host looks at.

use std::{num::NonZeroUsize, sync::Arc};

use elinvar::{DType, Executor, Precision, Result};
use elinvar_core::{Backend, Completion, Device, RawBuffer, Reading, Wait, forward};
use elinvar_cpu::CpuBackend;
use elinvar_llm::{Sampler, Sampling, Session};

use crate::{
    fixture::{Fixture, config, strict},
    shakespeare,
};

/// A CPU whose readings never are there before they are waited for.
struct Late(CpuBackend);

struct Never;

impl Wait for Never {
    fn settle(&self) -> (bool, Result<()>) {
        (false, Ok(()))
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn notify(self: Arc<Self>, then: Box<dyn FnOnce() + Send>) {
        then();
    }
}

impl Backend for Late {
    forward!(0: properties memory allocate adopt write read compile submit);

    fn read_later(&self, buffer: &RawBuffer, offset: usize, bytes: usize) -> Result<Reading> {
        let mut copy = vec![0; bytes];
        let result = self.0.read(buffer, offset, &mut copy);
        Ok(Reading::new(Completion::new(Arc::new(Never)), move || result.map(|()| copy)))
    }
}

fn late() -> Executor {
    let backend = CpuBackend::new(NonZeroUsize::new(2)).unwrap();
    Executor::from_device(Device::new(Late(backend))).with_precision(Precision::Strict)
}

/// The most likely tokens after `prompt`, and the logits after the last of them, by reading all logits.
fn by_hand(session: &mut Session, prompt: &[u32], count: usize) -> (Vec<u32>, Vec<f32>) {
    let mut logits = session.feed(prompt).unwrap();
    let mut tokens = Vec::new();
    for _ in 0..count {
        let token = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32;
        logits = session.feed(&[token]).unwrap();
        tokens.push(token);
    }
    (tokens, logits)
}

#[test]
fn the_device_chooses_the_tokens_that_the_logits_say() {
    for executor in [strict(2), late()] {
        let model = shakespeare::model(&executor);
        let session = || Session::new(model.clone(), 64, DType::F32).unwrap();
        let prompt = [0, 814, 26];
        let (expected, logits) = by_hand(&mut session(), &prompt, 40);

        let mut one = session();
        one.feed(&prompt).unwrap();
        let found: Vec<u32> = one.greedy(expected[0], 39).unwrap().collect::<Result<_>>().unwrap();
        assert_eq!((&found[..], one.len()), (&expected[1..], 42));
        // The last token was given, but not appended.
        assert_eq!(one.feed(&expected[39..]).unwrap(), logits);

        // Left early, shortened, and continued in other ways.
        one.truncate(3);
        let some: Vec<u32> = one.greedy(expected[0], 30).unwrap().take(7).map(Result::unwrap).collect();
        assert_eq!((&some[..], one.len()), (&expected[1..8], 10));
        one.feed(&expected[7..20]).unwrap();
        let rest: Vec<u32> = one.greedy(expected[20], 100).unwrap().map(Result::unwrap).collect();
        assert_eq!((rest.len(), one.len(), &rest[..19]), (64 - 23, 64, &expected[21..]));
        assert!(one.greedy(1, 5).unwrap().next().is_none() && one.greedy(1 << 20, 5).is_err());
    }
}

#[test]
fn the_device_draws_what_a_sampler_draws() {
    let base = Sampling { temperature: 0.9, ..Sampling::default() };
    let settings = [base, Sampling { top_k: 20, seed: 1, ..base }, Sampling { top_p: 0.8, min_p: 0.02, seed: 1 << 40, ..base }];
    for executor in [strict(2), late()] {
        let model = shakespeare::model(&executor);
        let mut session = Session::new(model.clone(), 64, DType::F32).unwrap();
        // One recording serves all settings.
        for sampling in settings {
            let mut context = vec![0, 814, 26];
            session.truncate(0);
            let mut logits = session.feed(&context).unwrap();
            let mut sampler = Sampler::new(sampling).unwrap();
            while context.len() < 40 {
                let token = sampler.sample(&logits, &context).unwrap();
                logits = session.feed(&[token]).unwrap();
                context.push(token);
            }
            session.truncate(3);
            let found: Vec<u32> = session.sampled(context[3], 36, &sampling).unwrap().map(Result::unwrap).collect();
            assert_eq!((&found[..], session.len()), (&context[4..], 39), "{sampling:?}");
        }
        let best: Vec<u32> = session.greedy(5, 3).unwrap().map(Result::unwrap).collect();
        session.truncate(39);
        let cold: Vec<u32> = session.sampled(5, 3, &Sampling { temperature: 0.0, ..base }).unwrap().map(Result::unwrap).collect();
        assert_eq!(cold, best);
        assert!(session.sampled(5, 3, &Sampling { temperature: -1.0, ..base }).is_err());
        assert!(session.sampled(5, 3, &Sampling { repetition_penalty: 1.1, ..base }).is_err());
    }
}

#[test]
fn logits_that_are_no_numbers_end_it_with_an_error() {
    for executor in [strict(1), late()] {
        let mut fixture = Fixture::new(&config("LlamaForCausalLM", ""), DType::F32);
        fixture.tensors.get_mut("model.norm.weight").unwrap().1[3] = f32::NAN;
        fixture.save(DType::F32);
        let mut session = Session::new(fixture.open(&executor).unwrap(), 16, DType::F32).unwrap();
        let mut tokens = session.greedy(1, 5).unwrap();
        let error = tokens.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("logit of token 0 is NaN"), "{error}");
        assert!(tokens.next().is_none());
        drop(tokens);
        assert!(session.is_empty());
    }
}
