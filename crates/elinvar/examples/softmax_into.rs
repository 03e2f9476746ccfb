//! Results in memory that is there: a row of a larger tensor, a tensor in place, values changed by the host.
//! `cargo run -p elinvar --example softmax_into`.

use elinvar::{DType, Executor, Result};

/// Fills a history of distributions row by row; no step allocates a result.
///
/// # Errors
/// A device that failed.
pub fn main() -> Result<()> {
    let executor = Executor::new_auto()?;
    let logits = executor.tensor(&[4], &[1f32, 2.0, 3.0, 4.0])?;
    let history = executor.zeros(DType::F32, &[3, 4])?;
    for step in 0..3 {
        logits.softmax_into(-1, &history.i(step)?)?;
        // Where host and device share memory nothing is copied.
        logits.with_values_mut(|logits: &mut [f32]| logits.iter_mut().for_each(|logit| *logit /= 2.0))?;
    }
    println!("{history}");
    history.log_()?;
    println!("{history}");
    assert!(history.lt(&executor.full(DType::F32, &[], 0)?)?.min(&[], false)?.to_bytes()? == [1], "logarithms of probabilities");
    Ok(())
}
