use elinvar_core::DType;

use super::*;

#[test]
fn names_round_trip_and_none_is_twice() {
    for &op in Unary::ALL {
        assert_eq!(Unary::of_name(op.name()), Some(op));
        assert!(Binary::of_name(op.name()).is_none() && Ternary::of_name(op.name()).is_none());
    }
    Binary::ALL.iter().for_each(|&op| assert_eq!(Binary::of_name(op.name()), Some(op)));
    Ternary::ALL.iter().for_each(|&op| assert_eq!(Ternary::of_name(op.name()), Some(op)));
    Compare::ALL.iter().for_each(|&op| assert_eq!(Compare::of_name(op.name()), Some(op)));
}

#[test]
fn every_strict_name_is_in_the_metal_texts() {
    let names = Unary::ALL.iter().map(|op| op.metal()).chain(Binary::ALL.iter().map(|op| op.metal())).chain(Ternary::ALL.iter().map(|op| op.metal()));
    for name in names.filter_map(|name| name.strip_prefix("strict::")) {
        let defined = |text: &str| text.lines().any(|line| line.starts_with("inline ") && line.contains(&format!(" {name}(")));
        assert!(defined(METAL.text) || defined(crate::METAL.text), "{name}");
    }
}

/// Where derivatives are compared: neither at a kink nor beside one.
const PLACES: [f64; 10] = [-7.3, -3.4, -1.7, -0.6, -0.11, 0.23, 0.71, 1.3, 2.6, 5.2];

/// The derivative of `f` by differences, to about ten digits.
fn slope(f: impl Fn(f64) -> f64, x: f64) -> f64 {
    let h = 1e-4;
    (8.0 * (f(x + h) - f(x - h)) - (f(x + 2.0 * h) - f(x - 2.0 * h))) / (12.0 * h)
}

fn assert_close(what: std::fmt::Arguments<'_>, found: f64, expected: f64) {
    let is_close = expected.is_nan() || (found - expected).abs() <= 1e-7 * (1.0 + expected.abs());
    assert!(is_close, "{what}: {found}, {expected} by differences");
}

#[test]
fn derivatives_are_those_of_the_references() {
    for &op in Unary::ALL {
        let Some(derivative) = op.derivative() else {
            assert!(!op.takes(DType::F32), "{} has no derivative", op.name());
            continue;
        };
        for x in PLACES {
            assert_close(format_args!("{}'({x})", op.name()), derivative[0].evaluate(&[x], op.reference([x])), slope(|x| op.reference([x]), x));
        }
    }
    for &op in Binary::ALL {
        let Some(derivative) = op.derivative() else {
            assert!(!op.takes(DType::F32), "{} has no derivative", op.name());
            continue;
        };
        for (a, b) in PLACES.into_iter().flat_map(|a| PLACES.map(|b| (a, b + 0.0193))) {
            let value = op.reference([a, b]);
            let found: Vec<_> = derivative.iter().map(|derivative| derivative.evaluate(&[a, b], value)).collect();
            assert_close(format_args!("{}'({a}, {b}) by a", op.name()), found[0], slope(|a| op.reference([a, b]), a));
            assert_close(format_args!("{}'({a}, {b}) by b", op.name()), found[1], slope(|b| op.reference([a, b]), b));
        }
    }
    for &op in Ternary::ALL {
        let derivative = op.derivative().unwrap();
        for (a, b) in PLACES.into_iter().flat_map(|a| PLACES.map(|b| (a, b))) {
            let found: Vec<_> = derivative.iter().map(|derivative| derivative.evaluate(&[a, b, 0.5], op.reference([a, b, 0.5]))).collect();
            assert_close(format_args!("{}'({a}, {b}) by a", op.name()), found[0], slope(|a| op.reference([a, b, 0.5]), a));
            assert_close(format_args!("{}'({a}, {b}) by b", op.name()), found[1], slope(|b| op.reference([a, b, 0.5]), b));
            assert_close(format_args!("{}'({a}, {b}) by c", op.name()), found[2], slope(|c| op.reference([a, b, c]), 0.5));
        }
    }
}

#[test]
fn derivatives_at_kinks_are_as_in_pytorch() {
    let of = |op: Unary, x: f64| op.derivative().unwrap()[0].evaluate(&[x], op.reference([x]));
    assert_eq!([of(Unary::Relu, 0.0), of(Unary::Abs, 0.0), of(Unary::HardSwish, -3.0), of(Unary::HardSwish, 3.0)], [0.0, 0.0, -0.5, 1.5]);
    let by = |op: Binary, a: f64, b: f64| op.derivative().unwrap().iter().map(|d| d.evaluate(&[a, b], op.reference([a, b]))).collect::<Vec<_>>();
    assert_eq!([by(Binary::Max, 2.0, 2.0), by(Binary::Min, 2.0, 2.0)], [[0.5, 0.5], [0.5, 0.5]]);
    assert_eq!([by(Binary::LeakyRelu, 0.0, 0.3), by(Binary::Elu, 0.0, 2.0)], [[0.3, 0.0], [2.0, 0.0]]);
    assert_eq!([by(Binary::HardSigmoid, 2.5, 0.2), by(Binary::HardSigmoid, -2.5, 0.2)], [[0.0, 0.0], [0.0, 0.0]]);
    assert_eq!([by(Binary::Pow, 0.0, 2.0), by(Binary::Pow, 0.0, 0.0)], [[0.0, 0.0], [0.0, 0.0]]);
}

/// Computes a function of a few numbers in the type that it is given.
struct At([f64; 2]);

impl Visitor2 for At {
    type Output = f64;

    fn float<F: Function2<f32>>(self) -> f64 {
        f64::from(F::at(self.0[0] as f32, self.0[1] as f32))
    }

    fn double<F: Function2<f64>>(self) -> f64 {
        F::at(self.0[0], self.0[1])
    }

    fn integer<T: Integer, F: Function2<T>>(self) -> f64 {
        let number = |x: f64| {
            (0..x.abs() as usize).fold(T::zeroed(), |sum, _| if x < 0.0 { sum.add(T::zeroed().not()) } else { sum.add(T::zeroed().not().neg()) })
        };
        let value = F::at(number(self.0[0]), number(self.0[1]));
        (0..100).chain(-100..0).map(f64::from).find(|&x| number(x) == value).unwrap_or(f64::NAN)
    }

    fn truth<F: Function2<u8>>(self) -> f64 {
        f64::from(F::at(self.0[0] as u8, self.0[1] as u8))
    }
}

#[test]
fn every_type_computes_the_reference() {
    for &op in Binary::ALL {
        for &dtype in DType::PROGRAMS {
            let (a, b) = if dtype == DType::Bool { (1.0, 1.0) } else { (7.0, 3.0) };
            let found = op.visit(dtype, At([a, b]));
            assert_eq!(found.is_some(), op.takes(dtype), "{} of {dtype}", op.name());
            let exact = op.reference([a, b]);
            let exact = if dtype.is_integer() { exact.trunc() } else { exact };
            found.into_iter().for_each(|found| assert!((found - exact).abs() <= 1e-6 * exact.abs(), "{} of {dtype}: {found}, {exact}", op.name()));
        }
    }
}
