use super::reference::{Function, error_in_ulp, functions};
use super::*;

/// Every `stride`-th bit pattern, and a neighbourhood of each value where something changes.
fn samples(stride: usize) -> Vec<f32> {
    let edges = [0.0, f32::MIN_POSITIVE, 1e-30, 1e-3, 0.34657359, 0.5, 0.70710678, 0.92, 1.0, 1.5, 2.0, 4.0, 10.0, 14.6];
    let more = [20.0, 87.33655, 88.72284, 103.97208, 126.0, 128.0, 149.0, 150.0, FAST_TRIG_LIMIT, 1e30, f32::MAX, f32::NAN];
    let multiples = (1..2000).map(|k| k as f32 * std::f32::consts::FRAC_PI_4);
    let near = edges.into_iter().chain(more).chain(multiples).flat_map(|edge| {
        let bits = edge.to_bits();
        (bits.saturating_sub(4)..=bits + 4).flat_map(|bits| [bits, bits | 0x8000_0000])
    });
    near.chain((0..=u32::MAX).step_by(stride)).map(f32::from_bits).collect()
}

fn worst(function: &Function, x: &[f32]) -> (f64, f32) {
    let mut y = vec![0.0; x.len()];
    (function.apply)(x, &mut y);
    let errors = x.iter().zip(&y).map(|(&x, &y)| (error_in_ulp(y, (function.oracle)(f64::from(x))), x));
    errors.fold((0.0, 0.0), |worst, error| if error.0 > worst.0 { error } else { worst })
}

#[test]
fn errors_stay_within_the_stated_bounds() {
    let x = samples(4099);
    for function in functions() {
        let (error, at) = worst(&function, &x);
        println!("{:10} {error:.4} at {at:e} ({:#010x})", function.name, at.to_bits());
        assert!(error <= function.bound, "{}({at:e}): {error} ulp", function.name);
    }
}
