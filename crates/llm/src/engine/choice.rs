//! The choice of a token from logits that the host has.

use elinvar::{Result, kernels::sample::choose};

use super::request::Request;
use crate::sampling::penalise;

/// The token after `text`, of which the first `prompt` tokens are the prompt's.
///
/// # Errors
/// A logit that is NaN or +∞, or none that is finite; a constraint that fails.
pub(super) fn token(request: &Request, logits: &[f32], text: &[u32], prompt: usize) -> Result<u32> {
    let mut scores = logits.to_vec();
    penalise(&mut scores, text, request.sampling.repetition_penalty);
    if request.presence_penalty != 0.0 || request.frequency_penalty != 0.0 {
        let mut counts = vec![0u32; scores.len()];
        for &token in &text[prompt..] {
            if let Some(count) = counts.get_mut(token as usize) {
                *count += 1;
            }
        }
        for (score, count) in scores.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
            *score -= request.presence_penalty + request.frequency_penalty * count as f32;
        }
    }
    for &(token, bias) in &request.bias {
        if let Some(score) = scores.get_mut(token as usize) {
            *score += bias;
        }
    }
    if let Some(constraint) = &request.constraint {
        constraint.restrict(&mut scores)?;
    }
    choose(&scores, &request.sampling.settings()?, text.len() as u32).map(|token| token as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Sampling;

    #[test]
    fn penalties_and_biases_change_the_choice() {
        let logits = [1.0f32, 3.0, 2.5, 0.0];
        let of = |request: Request, text: &[u32]| token(&request, &logits, text, 1).unwrap();
        let plain = || Request::new(vec![1], 9);
        assert_eq!(of(plain(), &[1]), 1);
        // The prompt's tokens count for the repetition penalty alone.
        assert_eq!(of(Request { presence_penalty: 1.0, ..plain() }, &[1]), 1);
        assert_eq!(of(Request { presence_penalty: 1.0, ..plain() }, &[1, 1]), 2);
        assert_eq!(of(Request { frequency_penalty: 0.3, ..plain() }, &[1, 1]), 1);
        assert_eq!(of(Request { frequency_penalty: 0.3, ..plain() }, &[1, 1, 1]), 2);
        assert_eq!(of(Request { sampling: Sampling { repetition_penalty: 2.0, ..Sampling::default() }, ..plain() }, &[1]), 2);
        assert_eq!(of(Request { bias: vec![(3, 9.0), (1, -100.0)], ..plain() }, &[1]), 3);
    }
}
