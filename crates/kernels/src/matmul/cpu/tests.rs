//! Strict products against the definition, bit for bit, on every level of instructions.

use half::{bf16, f16};

use super::{
    gemm::gemm,
    operand::{Matrix, Target, Values, ValuesMut},
    plan::Summation,
    rows,
    simd::Level,
    unit::Unit,
};

/// The definition of the strict dot product, one operation at a time.
fn strict_dot(a: impl Fn(usize) -> f32, b: impl Fn(usize) -> f32, k: usize) -> f32 {
    let mut partials = [0f32; 256];
    for i in 0..k {
        partials[i % 256] = a(i).mul_add(b(i), partials[i % 256]);
    }
    let mut lanes: Vec<f32> = partials.chunks(8).map(|s| ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))).collect();
    for distance in [16, 8, 4, 2, 1] {
        lanes = (0..32).map(|l| lanes[l] + lanes[l ^ distance]).collect();
    }
    lanes[0]
}

/// Deterministic values of mixed sign and magnitude, signed zeros among them.
fn random(seed: u32, length: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        match state % 16 {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(state & 0x807f_ffff | 0x0080_0000),
            _ => (state >> 8) as f32 / (1 << 23) as f32 - 1.0,
        }
    };
    (0..length).map(|_| next()).collect()
}

/// A buffer in one of the three types.
enum Buffer {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Buffer {
    fn new(kind: usize, values: &[f32]) -> Self {
        match kind {
            0 => Self::F32(values.to_vec()),
            1 => Self::F16(values.iter().map(|&v| f16::from_f32(v)).collect()),
            _ => Self::Bf16(values.iter().map(|&v| bf16::from_f32(v)).collect()),
        }
    }

    fn values(&self) -> Values<'_> {
        match self {
            Self::F32(v) => Values::F32(v),
            Self::F16(v) => Values::F16(v),
            Self::Bf16(v) => Values::Bf16(v),
        }
    }
}

const SIZES: [usize; 8] = [0, 1, 7, 31, 33, 255, 257, 1000];

fn check_gemm(kind: usize, [m, n, k]: [usize; 3], transposed: [bool; 2]) {
    let strides = |rows: usize, t: bool| if t { [1, rows + 3] } else { [k + 2, 1] };
    let length = |rows: usize, t: bool| if t { k * (rows + 3) } else { rows * (k + 2) };
    let a = Buffer::new(kind, &random(1 + k as u32, length(m, transposed[0])));
    let b = Buffer::new(kind, &random(2 + k as u32, length(n, transposed[1])));
    let (a_strides, b_strides) = (strides(m, transposed[0]), strides(n, transposed[1]));
    let element = |x: &Buffer, s: [usize; 2], r: usize, c: usize| x.values().get(r * s[0] + c * s[1]);
    for level in Level::all() {
        let mut c = vec![f32::NAN; m * n];
        let (left, right) = (
            Matrix::new(a.values(), 0, [m, k], a_strides.map(|s| s as isize)).unwrap(),
            Matrix::new(b.values(), 0, [n, k], b_strides.map(|s| s as isize)).unwrap(),
        );
        gemm(Unit::Vectors(level), Summation::Strict, left, right, &Target::new(ValuesMut::F32(&mut c), [m, n], n).unwrap());
        let step = (m * n / 200).max(1) | 1;
        for index in (0..m * n).step_by(step) {
            let (row, column) = (index / n, index % n);
            let expected = strict_dot(|i| element(&a, a_strides, row, i), |i| element(&b, b_strides, column, i), k);
            assert_eq!(c[index].to_bits(), expected.to_bits(), "{level:?} kind {kind} {m}x{n}x{k} {transposed:?} ({row}, {column})");
        }
    }
}

#[test]
fn strict_gemm_is_the_strict_dot_product_on_every_level() {
    for kind in 0..3 {
        for k in SIZES {
            for [m, n] in [[1, 1], [7, 33], [31, 7], [33, 31], [0, 5], [5, 0], [15, 64]] {
                check_gemm(kind, [m, n, k], [k % 2 == 1, m % 2 == 0]);
            }
        }
    }
    check_gemm(0, [257, 255, 512], [false, true]);
    check_gemm(2, [255, 257, 100], [true, false]);
    for k in [2047, 2048, 5000, 8200] {
        check_gemm(1, [20, 70, k], [false, k % 2 == 1]);
    }
}

#[test]
fn the_linear_layer_is_the_strict_dot_product_on_every_level() {
    for kind in 0..3 {
        for k in SIZES {
            for [m, n] in [[1, 1], [1, 1000], [2, 33], [3, 31], [5, 7], [8, 9]] {
                let (x, w) = (random(5, m * k), Buffer::new(kind, &random(7, n * (k + 1))));
                for level in Level::all() {
                    let mut y = vec![f32::NAN; m * n];
                    let weights = Matrix::new(w.values(), 0, [n, k], [k as isize + 1, 1]).unwrap();
                    rows::linear(
                        level,
                        Matrix::new(Values::F32(&x), 0, [m, k], [k as isize, 1]).unwrap(),
                        weights,
                        &Target::new(ValuesMut::F32(&mut y), [m, n], n).unwrap(),
                    );
                    for (index, y) in y.iter().enumerate() {
                        let (row, column) = (index / n, index % n);
                        let expected = strict_dot(|i| x[row * k + i], |i| w.values().get(column * (k + 1) + i), k);
                        assert_eq!(y.to_bits(), expected.to_bits(), "{level:?} kind {kind} {m}x{n}x{k} ({row}, {column})");
                    }
                }
            }
        }
    }
}

/// Fast products, by every unit there is, within the error of long f32 sums.
#[test]
fn fast_gemm_is_close_to_exact_on_every_unit() {
    let units = Level::all().into_iter().map(Unit::Vectors);
    #[cfg(target_arch = "x86_64")]
    let units = units.chain(super::bf16::Bf16Pairs::possible().map(Unit::Bf16Pairs));
    let units: Vec<_> = units.collect();
    for [m, n, k] in [[1, 1, 1], [15, 33, 31], [31, 65, 257], [40, 40, 3000]] {
        for transposed in [false, true] {
            let (a, b) = (Buffer::new(2, &random(1, m * k)), Buffer::new(2, &random(2, n * k)));
            let b_strides = if transposed { [1, n] } else { [k, 1] };
            let exact = |row: usize, column: usize| -> f64 {
                let term = |i| f64::from(a.values().get(row * k + i)) * f64::from(b.values().get(column * b_strides[0] + i * b_strides[1]));
                (0..k).map(term).sum()
            };
            for &unit in &units {
                let mut c = vec![f32::NAN; m * n];
                let left = Matrix::new(a.values(), 0, [m, k], [k as isize, 1]).unwrap();
                let right = Matrix::new(b.values(), 0, [n, k], b_strides.map(|s| s as isize)).unwrap();
                gemm(unit, Summation::Fast, left, right, &Target::new(ValuesMut::F32(&mut c), [m, n], n).unwrap());
                for (index, &found) in c.iter().enumerate().step_by(7) {
                    let error = (f64::from(found) - exact(index / n, index % n)).abs();
                    assert!(error <= 1e-6 * (k as f64).sqrt(), "{unit:?} {m}x{n}x{k}: off by {error}");
                }
            }
        }
    }
}
