//! Dropout of what adapters read, in training.

use elinvar::{DType, Error, Result, Tensor};

use super::Model;

/// Elements are zero with the probability `rate`, the others `1 / (1 − rate)` times as large.
///
/// Which ones follows from the key and the element's place alone, by integers: it is the same on every device, and when a layer is computed again.
#[derive(Clone)]
pub(super) struct Dropout {
    rate: f64,
    /// u32, `[1]`.
    key: Tensor,
}

/// The golden ratio's fraction in 32 bits.
const STEP: i64 = 0x9e37_79b9;

impl Dropout {
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let [rows, columns] = x.shape()[..] else { return Err(Error::internal(format!("dropout of an x of shape {:?}", x.shape()))) };
        let executor = x.executor();
        let indices = |count: usize, dims: &[usize]| executor.arange(DType::U32, 0, count as i64, 1)?.reshape(dims)? * STEP;
        let row = mixed(&indices(rows, &[rows, 1])?.add(&self.key)?)?;
        let bits = mixed(&row.add(&indices(columns, &[1, columns])?)?)?;
        let is_kept = bits.ge(&executor.full(DType::U32, &[1], (self.rate * 2f64.powi(32)) as i64)?)?;
        is_kept.select(&(x / (1.0 - self.rate))?, &executor.zeros(x.dtype(), &[1])?)
    }

    /// The dropout of the rows from `first` on.
    fn after(&self, first: usize) -> Result<Self> {
        // Below 2^32, as what it is multiplied by.
        let step = (first as i64).wrapping_mul(STEP) & i64::from(u32::MAX);
        Ok(Self { rate: self.rate, key: (&self.key + step)? })
    }
}

/// Each number's bits spread over all (the finaliser of MurmurHash3, Appleby 2011).
fn mixed(x: &Tensor) -> Result<Tensor> {
    let folded = |x: &Tensor, by: i64| x.bitwise_xor(&x.right_shift(&x.executor().full(DType::U32, &[1], by)?)?);
    let x = (folded(x, 16)? * 0x85eb_ca6b_i64)?;
    let x = (folded(&x, 13)? * 0xc2b2_ae35_i64)?;
    folded(&x, 16)
}

impl Model {
    /// The model with dropout before its low-rank adapters, of a step's `key` (u32, `[1]`). Each linear layer of the checkpoint has a mask of its own.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn with_dropout(&self, rate: f64, key: &Tensor) -> Result<Self> {
        let mut model = self.clone();
        for (number, module) in model.modules().iter_mut().enumerate() {
            let key = mixed(&(key + (number as i64 + 1))?)?;
            for adapter in module.parts.iter_mut().filter_map(|linear| linear.adapter.as_mut()) {
                adapter.dropout = Some(Dropout { rate, key: key.clone() });
            }
        }
        Ok(model)
    }

    /// The model for rows of the stream from `first` on, by themselves, before the output projection.
    pub(super) fn starting_at(&self, first: usize) -> Result<Self> {
        let mut model = self.clone();
        if let Some(dropout) = model.head.adapter.as_mut().and_then(|adapter| adapter.dropout.as_mut()) {
            *dropout = dropout.after(first)?;
        }
        Ok(model)
    }
}

/// Rejects what is no probability below one.
pub(crate) fn check_dropout(rate: f64) -> Result<()> {
    if (0.0..1.0).contains(&rate) { Ok(()) } else { Err(Error::invalid_argument(format!("a dropout of {rate}: from 0 to less than 1 expected"))) }
}

#[cfg(test)]
mod tests {
    use elinvar::Executor;

    use super::*;

    #[test]
    fn elements_are_left_out_one_by_one_and_follow_from_their_rows() {
        let executor = Executor::new_cpu(1.try_into().unwrap()).unwrap();
        let of = |key: u32| Dropout { rate: 0.25, key: executor.tensor(&[1], &[key]).unwrap() };
        let x = executor.full(DType::F32, &[300, 200], 3.0).unwrap();
        let found = of(7).apply(&x).unwrap().to_vec::<f32>().unwrap();
        assert!(found.iter().all(|x| [0.0, 4.0].contains(x)));
        let rate =
            |values: &mut dyn Iterator<Item = f32>| values.fold((0.0, 0.0), |(zeros, all), x| (zeros + f64::from(u8::from(x == 0.0)), all + 1.0));
        let shares = |(zeros, all): (f64, f64)| zeros / all;
        let (rows, columns) = (found.chunks(200), (0..200).map(|column| found[column..].iter().step_by(200)));
        // Six standard deviations.
        assert!((shares(rate(&mut found.iter().copied())) - 0.25).abs() < 0.011);
        assert!(rows.map(|row| shares(rate(&mut row.iter().copied()))).all(|share| (share - 0.25).abs() < 0.184));
        assert!(columns.map(|column| shares(rate(&mut column.copied()))).all(|share| (share - 0.25).abs() < 0.15));
        let other = of(8).apply(&x).unwrap().to_vec::<f32>().unwrap();
        let both = found.iter().zip(&other).filter(|(a, b)| **a == 0.0 && **b == 0.0).count() as f64 / 60_000.0;
        assert!((both - 0.0625).abs() < 0.006, "{both}");
        let part = of(7).after(130).unwrap().apply(&x.i(130..300).unwrap()).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(part, found[130 * 200..]);
    }
}
