//! Log probabilities.

use elinvar::kernels::math;

/// Log probabilities at one place of a text, of the model's distribution before penalties, bias and temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Of the token that was chosen.
    pub chosen: f32,
    /// The most likely tokens with theirs, in descending order; of equals the lower id first.
    pub most_likely: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Of the chosen token and the `count` most likely. The functions are the strict ones and the sum is in order, so that logits of the same bits give the
    /// same everywhere.
    pub fn of(logits: &[f32], chosen: u32, count: usize) -> Self {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| f64::from(math::exp(logit - most))).sum();
        let normaliser = math::log(sum as f32);
        let of = |token: u32| logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| (logit - most) - normaliser);
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let better = |&a: &u32, &b: &u32| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b));
        let count = count.min(order.len());
        if (1..order.len()).contains(&count) {
            order.select_nth_unstable_by(count - 1, better);
        }
        order.truncate(count);
        order.sort_unstable_by(better);
        Self { chosen: of(chosen), most_likely: order.into_iter().map(|token| (token, of(token))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_a_softmax() {
        let logits = [1.0f32, 3.0, -2.0, 3.0, 0.5];
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        let found = Logprobs::of(&logits, 4, 3);
        assert_eq!(found.most_likely.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 3, 0]);
        for (token, logprob) in found.most_likely.into_iter().chain([(4, found.chosen)]) {
            assert!((f64::from(logprob) - (f64::from(logits[token as usize]) - sum.ln())).abs() < 1e-6);
        }
        assert_eq!((Logprobs::of(&logits, 1, 0).most_likely.len(), Logprobs::of(&logits, 1, 99).most_likely.len()), (0, 5));
    }
}
