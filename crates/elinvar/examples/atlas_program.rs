//! A kernel as data, on any device: an Atlas program, verified, compiled and launched. `cargo run -p elinvar --example atlas_program`.

use elinvar::{
    Executor, ProgramArgument, Result,
    atlas::{self, Constant, LaunchConfig},
};

/// Keeps what is above a threshold, and counts it.
const PROGRAM: &str = "
atlas 1
program threshold
buffer x: update f32
buffer count: update u32
scalar limit: f32
scalar n: u32

kernel
  i = position.x
  inside = lt i n
  if inside
    v = load x[i]
    above = gt v limit
    kept = select above v 0.0
    store x[i] kept
    if above
      atomic_add count[0] 1
    end
  end
end
";

/// Launches the program over at least as many threads as there are elements.
///
/// # Errors
/// A device that failed.
pub fn main() -> Result<()> {
    let executor = Executor::new_auto()?;
    let threshold = executor.compile_program(atlas::parse(PROGRAM)?)?;
    let (x, count) = (executor.rand(&[1000], 1)?, executor.tensor(&[1], &[0u32])?);
    let arguments = [
        ("x", ProgramArgument::Tensor(&x)),
        ("count", ProgramArgument::Tensor(&count)),
        ("limit", ProgramArgument::Scalar(Constant::f32(0.75))),
        ("n", ProgramArgument::Scalar(Constant::u32(1000))),
    ];
    threshold.launch(&LaunchConfig::linear(1000, 64), &arguments)?;
    let kept = x.to_vec::<f32>()?.into_iter().filter(|x| *x > 0.75).count();
    println!("{} of 1000 numbers are above 0.75", count.item::<u32>()?);
    assert_eq!(count.item::<u32>()? as usize, kept);
    Ok(())
}
