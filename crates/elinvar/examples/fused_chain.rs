//! A chain of operators recorded once, as one launch, and replayed on new inputs: `cargo run -p elinvar --example fused_chain`.

use elinvar::{Executor, Result, Tensor};

/// What is computed: written once, for recorded and for immediate operators.
fn gate(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    ((a.silu()? * b)? + a)?.clamp(-1.0, 1.0)
}

/// Records the chain, replays it and compares with the operators one by one.
///
/// # Errors
/// A device that failed.
pub fn main() -> Result<()> {
    let executor = Executor::new_auto()?;
    let (a, b) = (executor.randn(&[1000], 1)?, executor.randn(&[1000], 2)?);
    let (recording, y) = executor.record(|recorded| gate(&a.on(recorded)?, &b))?;
    println!("{} launch", recording.len());
    for step in 0..3u32 {
        a.write(&vec![step as f32 - 1.5; 1000])?;
        executor.replay(&recording)?;
        println!("step {step}: {}", y.i(..4)?);
        assert_eq!(y.to_bytes()?, gate(&a, &b)?.to_bytes()?, "the same bits");
    }
    assert_eq!(recording.len(), 1);
    Ok(())
}
