//! The CPU kernel, which is also what a host asks that has the logits.

use std::cmp::Reverse;

use elinvar_core::{DType, Error, HostArguments, HostKernel, Result};
use rayon::prelude::*;

use super::{Params, operands::AT, philox::philox, settings::Settings};
use crate::{
    float::{Float, with_float},
    math,
    sample_argmax::argmax,
};

pub(super) fn kernel(logits: DType) -> Result<HostKernel> {
    Ok(with_float!(logits, T => run::<T>))
}

fn run<T: Float>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let params: Params = arguments.params()?;
    let (tokens, rows) = (params.tokens as usize, params.rows as usize);
    let (state, logits) = (arguments.output::<i32>(AT.state)?, arguments.input::<T>(AT.logits)?);
    let (factors, numbers) = (arguments.input::<f32>(AT.factors)?, arguments.input::<u32>(AT.numbers)?);
    let state = state.as_chunks_mut().0.par_iter_mut().take(rows).zip(logits.par_chunks_exact(tokens));
    state
        .zip(factors.as_chunks().0)
        .zip(numbers.as_chunks().0)
        .try_for_each(|(((state, logits), factors), numbers)| step(state, logits, factors, numbers))
}

/// The step of one row.
fn step<T: Float>(
    [token, position]: &mut [i32; 2],
    logits: &[T],
    &[temperature, top_p, min_p]: &[f32; 3],
    &[top_k, low, high]: &[u32; 3],
) -> Result<()> {
    let settings = Settings { temperature, top_p, min_p, top_k, seed: u64::from(high) << 32 | u64::from(low) };
    let found = choose(logits, &settings, position.wrapping_add(1).cast_unsigned())?;
    *token = i32::try_from(found).map_err(|_| Error::invalid_launch(format!("token {found} does not fit an i32")))?;
    *position = position.wrapping_add(1);
    Ok(())
}

/// Draws the token that comes at `position`: see the [module](super).
///
/// # Errors
/// A logit that is NaN or +∞, or none that is finite.
pub fn choose<T: Float>(logits: &[T], settings: &Settings, position: u32) -> Result<usize> {
    let best = argmax(logits)?;
    if settings.temperature <= 0.0 {
        return Ok(best);
    }
    let row = Row { logits, most: logits[best].to_f32(), temperature: settings.temperature };
    Ok(draw(&row, row.least(settings), settings, position))
}

/// A row of logits, of which `most` is the greatest.
pub(super) struct Row<'a, T> {
    pub(super) logits: &'a [T],
    pub(super) most: f32,
    pub(super) temperature: f32,
}

impl<T: Float> Row<'_, T> {
    pub(super) fn score(&self, logit: f32) -> f32 {
        (logit - self.most) / self.temperature
    }

    /// Greater for the better token: by the logit, of equals by the lower number.
    pub(super) fn key(&self, token: usize) -> u64 {
        let bits = self.logits[token].to_f32().to_bits();
        let ordered = bits ^ if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
        u64::from(ordered) << 32 | u64::from(!(token as u32))
    }

    /// The probability relative to the most likely's, in units of 2^-31.
    fn weight(&self, key: u64) -> u64 {
        let token = !(key as u32) as usize;
        (math::exp(self.score(self.logits[token].to_f32())) * 2f32.powi(31)) as u64
    }

    /// The least key that top-k and top-p keep.
    pub(super) fn least(&self, settings: &Settings) -> u64 {
        let (n, top_k) = (self.logits.len(), settings.top_k as usize);
        let few = 0 < top_k && top_k < n;
        if !few && settings.top_p >= 1.0 {
            return 0;
        }
        let mut keys: Vec<u64> = (0..n).map(|token| self.key(token)).collect();
        let mut least = 0;
        if few {
            least = *keys.select_nth_unstable_by_key(top_k - 1, |&key| Reverse(key)).1;
            keys.truncate(top_k);
        }
        if settings.top_p < 1.0 {
            let total: u64 = keys.iter().map(|&key| self.weight(key)).sum();
            let enough = (u128::from(total) * u128::from((settings.top_p * 2f32.powi(32)) as u64)) >> 32;
            least = self.reach(&mut keys, (enough as u64).max(1));
        }
        least
    }

    /// The key at which the best of `keys` weigh `enough` together; they are sorted only as far as that.
    fn reach(&self, keys: &mut [u64], enough: u64) -> u64 {
        let (mut sorted, mut mass) = (0, 0);
        while sorted < keys.len() {
            let end = (sorted * 8).max(64).min(keys.len());
            if end < keys.len() {
                keys[sorted..].select_nth_unstable_by_key(end - sorted, |&key| Reverse(key));
            }
            keys[sorted..end].sort_unstable_by_key(|&key| Reverse(key));
            for &key in &keys[sorted..end] {
                mass += self.weight(key);
                if mass >= enough {
                    return key;
                }
            }
            sorted = end;
        }
        0
    }
}

fn draw<T: Float>(row: &Row<'_, T>, least: u64, settings: &Settings, position: u32) -> usize {
    let seed = [settings.seed as u32, (settings.seed >> 32) as u32];
    let (mut best, mut found) = (f32::NEG_INFINITY, 0);
    for (index, logits) in row.logits.chunks(4).enumerate() {
        let words = philox([index as u32, position, 0, 0], seed);
        for (i, (logit, word)) in logits.iter().zip(words).enumerate() {
            let (token, score) = (4 * index + i, row.score(logit.to_f32()));
            // Most could not win with the largest number that begins with these bits.
            if score + 0.6932 * (word.leading_zeros() + 1) as f32 <= best || row.key(token) < least {
                continue;
            }
            let value = score + gumbel(word);
            if value > best && (settings.min_p <= 0.0 || math::exp(score) >= settings.min_p) {
                (best, found) = (value, token);
            }
        }
    }
    found
}

/// `-log(-log(1 - v))` for `v = (word + 1/2) / 2^32`: a number of Gumbel's distribution.
fn gumbel(word: u32) -> f32 {
    let v = ((word as f32 + 0.5) * 2f32.powi(-32)).min(1.0 - f32::EPSILON / 2.0);
    -math::log(-math::log1p(-v))
}
