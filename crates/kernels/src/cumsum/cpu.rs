//! The CPU twin: rows in parallel, a block at a time.

use elinvar_core::{DType, Element, Error, HostArguments, HostKernel, Result};

use super::Params;
use crate::{
    elementwise::{dispatch::for_integers, number::Number},
    float::{Float, with_float},
    rows::for_each_block,
};

/// Lanes of a simdgroup, and elements of each in a block.
const LANES: usize = 32;
const EACH: usize = 8;

pub(super) fn twin(dtype: DType) -> Result<HostKernel> {
    if dtype.is_float() {
        return Ok(with_float!(dtype, "cumsum", T => |a| run::<T>(a, float_row)));
    }
    let found = for_integers!(dtype, T => (|a| run::<T>(a, integer_row)) as HostKernel);
    found.ok_or_else(|| Error::invalid_argument(format!("cumsum of {dtype} is not defined: cast it first")))
}

fn run<T: Element + Default>(arguments: &mut HostArguments<'_>, row: fn(&mut [T])) -> Result<()> {
    let Params { rows, exclusive, reverse } = arguments.params()?;
    let (x, y) = (arguments.input::<T>(0)?, arguments.output::<T>(1)?);
    for_each_block(rows, x, y, |x, y| {
        y.copy_from_slice(x);
        for y in y.chunks_exact_mut(rows.length as usize) {
            if reverse != 0 {
                y.reverse();
            }
            row(y);
            if exclusive != 0 {
                y.copy_within(..y.len() - 1, 1);
                y[0] = T::default();
            }
            if reverse != 0 {
                y.reverse();
            }
        }
    });
    Ok(())
}

fn integer_row<T: Number>(row: &mut [T]) {
    let mut sum = T::zeroed();
    for x in row {
        sum = T::add(sum, *x);
        *x = sum;
    }
}

fn float_row<T: Float>(row: &mut [T]) {
    let mut carry = 0.0;
    for block in row.chunks_mut(LANES * EACH) {
        let mut sums = [[0f32; EACH]; LANES];
        for (sum, x) in sums.as_flattened_mut().iter_mut().zip(&*block) {
            *sum = x.to_f32();
        }
        for lane in &mut sums {
            for i in 1..EACH {
                lane[i] += lane[i - 1];
            }
        }
        let totals = scan(std::array::from_fn(|l| sums[l][EACH - 1]));
        for (l, lane) in sums.iter_mut().enumerate().skip(1) {
            lane.iter_mut().for_each(|sum| *sum += totals[l - 1]);
        }
        for (x, sum) in block.iter_mut().zip(sums.as_flattened()) {
            *x = T::from_f32(carry + sum);
        }
        carry += totals[LANES - 1];
    }
}

/// Sums over the lanes up to each, by doubling distances.
fn scan(mut totals: [f32; LANES]) -> [f32; LANES] {
    let mut distance = 1;
    while distance < LANES {
        let before = totals;
        for (total, earlier) in totals[distance..].iter_mut().zip(before) {
            *total = earlier + *total;
        }
        distance *= 2;
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_the_documented_order() {
        for n in [1, 8, 9, 255, 257, 700] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) * 1.37e-3).collect();
            let mut y = x.clone();
            float_row(&mut y);
            let at = |k: usize| x.get(k).copied().unwrap_or(0.0);
            let mut carry = 0.0f32;
            for block in (0..n).step_by(256) {
                let inside = |l: usize, i: usize| (1..=i).fold(at(block + 8 * l), |p, j| p + at(block + 8 * l + j));
                let mut t: Vec<f32> = (0..32).map(|l| inside(l, 7)).collect();
                for d in [1, 2, 4, 8, 16] {
                    t = (0..32).map(|l| if l >= d { t[l - d] + t[l] } else { t[l] }).collect();
                }
                for k in block..n.min(block + 256) {
                    let (l, i) = ((k - block) / 8, (k - block) % 8);
                    let sum = if l == 0 { inside(0, i) } else { t[l - 1] + inside(l, i) };
                    assert_eq!(y[k].to_bits(), (carry + sum).to_bits(), "n = {n}, k = {k}");
                }
                carry += t[31];
            }
        }
    }
}
