use super::reference::{Compiled, apply_pow, compiled, error_in_ulp};
use super::{functions::Binary, *};

/// Every `stride`-th bit pattern, and a neighbourhood of each value where something changes.
fn samples(stride: usize) -> Vec<f32> {
    let edges = [0.0, f32::MIN_POSITIVE, 1e-30, 1e-3, 0.346_573_6, 0.5, 0.7, 1.0, 1.25, 2.0, 4.0, 10.0, 14.6];
    let more = [20.0, 87.336_55, 87.683_12, 88.722_84, 103.972_08, 126.0, 128.0, 149.0, 150.0, FAST_TRIG_LIMIT, 1e30, f32::MAX, f32::NAN];
    let multiples = (1..2000).map(|k| k as f32 * std::f32::consts::FRAC_PI_4);
    let near = edges.into_iter().chain(more).chain(multiples).flat_map(|edge| {
        let bits = edge.to_bits();
        (bits.saturating_sub(4)..=bits + 4).flat_map(|bits| [bits, bits | 0x8000_0000])
    });
    near.chain((0..=u32::MAX).step_by(stride)).map(f32::from_bits).collect()
}

fn worst(function: &Compiled, x: &[f32]) -> (f64, f32) {
    let mut y = vec![0.0; x.len()];
    (function.apply)(x, &mut y);
    let errors = x.iter().zip(&y).filter(|(x, _)| (function.domain)(**x)).map(|(&x, &y)| (error_in_ulp(y, (function.reference)(f64::from(x))), x));
    errors.fold((0.0, 0.0), |worst, error| if error.0 > worst.0 { error } else { worst })
}

#[test]
fn errors_stay_within_the_stated_bounds() {
    let x = samples(4099);
    for function in compiled() {
        let (error, at) = worst(&function, &x);
        println!("{:10} {error:.4} at {at:e} ({:#010x})", function.name, at.to_bits());
        assert!(error <= function.bound, "{}({at:e}): {error} ulp", function.name);
    }
}

/// Pairs whose power is an ordinary number: any positive `x`, and `y` for which `-152 < y·log2(x) < 130`.
fn ordinary_powers(count: u32) -> (Vec<f32>, Vec<f32>) {
    let pair = |i: u32| {
        let x = f32::from_bits(i.wrapping_mul(0x9e37_79b1) % 0x7f80_0000);
        let exponent = f64::from(i.wrapping_mul(0x85eb_ca6b)) * 2f64.powi(-32) * 282.0 - 152.0;
        (x, (exponent / f64::from(x).log2()) as f32)
    };
    (0..count).map(pair).unzip()
}

#[test]
fn pow_stays_within_its_bound() {
    let (x, y) = ordinary_powers(1 << 20);
    let mut z = vec![0.0; x.len()];
    apply_pow(&x, &y, &mut z);
    for ((&x, &y), &z) in x.iter().zip(&y).zip(&z) {
        let error = error_in_ulp(z, f64::from(x).powf(f64::from(y)));
        assert!(error <= Binary::Pow.error().ulp, "pow({x:e}, {y:e}): {error} ulp");
    }
}

#[test]
fn pow_has_the_special_cases_of_c() {
    let magnitudes = [0.0, 1e-45, 1e-38, 0.5, 0.999_999_94, 1.0, 1.000_000_1, 1.5, 2.0, 2.5, 3.0, 4.0, 1e5, 8_388_607.5, 8_388_609.0];
    let large = [16_777_215.0, 16_777_216.0, 1e30, f32::MAX, f32::INFINITY, f32::NAN];
    let values: Vec<f32> = magnitudes.into_iter().chain(large).flat_map(|v| [v, -v]).collect();
    for &x in &values {
        for &y in &values {
            let error = error_in_ulp(pow(x, y), f64::from(x).powf(f64::from(y)));
            assert!(error <= Binary::Pow.error().ulp, "pow({x:e}, {y:e}) = {:e}: {error} ulp", pow(x, y));
        }
    }
}

#[test]
fn fast_angles_have_the_same_bits() {
    for x in samples(1009).into_iter().filter(|x| x.abs() <= FAST_TRIG_LIMIT) {
        assert_eq!(sin_fast(x).to_bits(), sin(x).to_bits(), "sin {x:e}");
        assert_eq!(cos_fast(x).to_bits(), cos(x).to_bits(), "cos {x:e}");
    }
}

#[test]
fn functions_of_a_bfloat_round_to_the_same_bfloat() {
    use half::bf16;
    for x in (0..=u16::MAX).map(bf16::from_bits) {
        for (name, brief, whole) in [("silu", silu_bfloat as fn(f32) -> f32, silu as fn(f32) -> f32), ("sigmoid", sigmoid_bfloat, sigmoid)] {
            let [brief, whole] = [brief, whole].map(|function| bf16::from_f32(function(x.to_f32())));
            assert!(brief.to_bits() == whole.to_bits() || brief.is_nan() && whole.is_nan(), "{name}({x}): {brief}, {whole} expected");
        }
    }
}

#[test]
fn sigmoids_and_gates_stay_within_their_bounds() {
    for x in samples(1009).into_iter().filter(|x| !x.is_nan()) {
        let (of, of_negated) = sigmoids(x);
        for (found, x) in [(of, f64::from(x)), (of_negated, -f64::from(x))] {
            let exact = 1.0 / (1.0 + (-x).exp());
            assert!(error_in_ulp(found, exact) <= 3.0 || (found == 0.0 && x < -87.683), "sigmoid({x:e}) = {found:e}, {exact:e} expected");
        }
        let (found, exact) = (gate(x, 1.0), f64::from(x) / (1.0 + (-f64::from(x)).exp()));
        assert!(error_in_ulp(found, exact) <= 4.0 || (found == 0.0 && x < -87.683), "gate({x:e}) = {found:e}, {exact:e} expected");
    }
}

#[test]
fn activations_of_zero_keep_its_sign() {
    for x in [0.0f32, -0.0] {
        assert_eq!([silu(x), gelu(x), gelu_tanh(x)].map(f32::to_bits), [x.to_bits(); 3]);
    }
}

#[test]
fn scalar_and_vector_code_have_the_same_bits() {
    let x = samples(65_537);
    let mut y = vec![0.0; x.len()];
    for function in compiled() {
        (function.apply)(&x, &mut y);
        for (&x, &y) in x.iter().zip(&y) {
            let scalar = (function.scalar)(x);
            assert!(scalar.to_bits() == y.to_bits() || (scalar.is_nan() && y.is_nan()), "{}({x:e})", function.name);
        }
    }
}
