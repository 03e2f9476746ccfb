//! Where subnormals are flushed, arithmetic, comparisons and conversions take and give zeros in their place, and nothing else is changed.

use std::path::Path;

use elinvar_sim::{Binding, CompileOptions, Dispatch, Grid, Source, Subnormals};

use crate::common::{buffer, queue, run, simulator, values};

const LEAST: f32 = f32::MIN_POSITIVE;
const TINY: f32 = f32::from_bits(1);

fn flush(x: f32) -> f32 {
    if x.abs() < LEAST { 0f32.copysign(x) } else { x }
}

fn truth(holds: bool) -> f32 {
    f32::from(u8::from(holds))
}

/// What a kernel writes for each pair, `N` numbers.
fn rows<const N: usize, T: Copy>(kernel: &str, a: &[T], b: &[T], subnormals: Subnormals, checked: bool) -> Vec<[f32; N]> {
    let source = Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/subnormals.metal")).unwrap();
    let library = simulator().library(&source, &CompileOptions { subnormals, checked, ..CompileOptions::default() }).unwrap();
    let pipeline = library.pipeline(kernel, &[]).unwrap();
    let out = buffer("out", &vec![f32::NAN; a.len() * N]);
    let dispatch = Dispatch::new(&pipeline, Grid::Threads([a.len() as u32, 1, 1]), [32, 1, 1])
        .with(Binding::new(0, &buffer("a", a)))
        .with(Binding::new(1, &buffer("b", b)))
        .with(Binding::new(2, &out));
    assert_eq!(run(&queue(), dispatch, 0).findings, []);
    values::<f32>(&out).as_chunks::<N>().0.to_vec()
}

/// Numbers around the least normal one, paired each with each.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    let numbers = [0.0, -0.0, TINY, -TINY, LEAST - TINY, TINY - LEAST, LEAST, -LEAST, 1.5 * LEAST, 1.0, -3.0, 0.5, f32::INFINITY, f32::NAN];
    numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))).unzip()
}

/// The row of `x` and `y`, whose operations take and give what `f` makes of it.
fn expected(x: f32, y: f32, f: fn(f32) -> f32) -> [f32; 32] {
    let (a, b) = (f(x), f(y));
    let smaller = |a: f32, b: f32| f(if b < a || a.is_nan() { b } else { a });
    let larger = |a: f32, b: f32| f(if b > a || a.is_nan() { b } else { a });
    let half = |x: f32| half::f16::from_f32(x).to_f32();
    let h = half(f(a * 2f32.powi(100)));
    let sign = truth(a > 0.0) - truth(a < 0.0);
    // Rounds up to the least normal number, which is kept.
    let product = f(f32::from_bits(0x00ff_ffff) * 0.5);
    assert_eq!(product, LEAST);
    [
        f(a + b),
        f(a - b),
        f(a * b),
        f(a / b),
        f(a.mul_add(b, a)),
        f(a.sqrt()),
        truth(a < b),
        truth(a == b),
        truth(a != 0.0),
        smaller(a, b),
        larger(a, b),
        f(a.min(b)),
        smaller(larger(a, b), 1.0),
        if a == 0.0 { a } else { sign },
        f(a.ceil()),
        f(a * 2.0),
        f32::NAN,
        x,
        -x,
        x.abs(),
        x.copysign(y),
        x,
        f32::from_bits(x.to_bits() ^ 1),
        half(h + h),
        2f32.powi(-24),
        truth(h < 2f32.powi(-24)),
        f32::NAN,
        truth(a.is_normal()),
        if a == 0.0 { 1.0 } else { f32::NAN },
        f(a + LEAST),
        f(product * a),
        f(a + b),
    ]
}

#[test]
fn numbers_are_flushed_where_they_are_computed_with() {
    let (a, b) = pairs();
    for (subnormals, checked, f) in
        [(Subnormals::Keep, true, std::convert::identity as fn(f32) -> f32), (Subnormals::Flush, true, flush), (Subnormals::Flush, false, flush)]
    {
        for (row, (&x, &y)) in rows::<32, f32>("numbers", &a, &b, subnormals, checked).into_iter().zip(a.iter().zip(&b)) {
            for (column, (found, expected)) in row.into_iter().zip(expected(x, y, f)).enumerate() {
                assert!(
                    found.to_bits() == expected.to_bits() || expected.is_nan(),
                    "{subnormals:?}, {column} of {x:e} and {y:e}: {found:e}, not {expected:e}"
                );
            }
        }
    }
}

#[test]
fn bfloats_are_flushed_where_they_are_computed_with() {
    let numbers: [u16; 8] = [0, 0x8000, 1, 0x807f, 0x7f, 0x80, 0x3f80, 0x8080];
    let (a, b): (Vec<u16>, Vec<u16>) = numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))).unzip();
    let wide = |bits: u16| f32::from_bits(u32::from(bits) << 16);
    let round = |x: f32| half::bf16::from_f32(x).to_f32();
    for (subnormals, f) in [(Subnormals::Keep, std::convert::identity as fn(f32) -> f32), (Subnormals::Flush, flush)] {
        for (row, (&x, &y)) in rows::<8, u16>("bfloats", &a, &b, subnormals, true).into_iter().zip(a.iter().zip(&b)) {
            let (raw, x, y) = (wide(x), f(wide(x)), f(wide(y)));
            let expected = [x, f(round(x + y)), f(round(x * y)), truth(x < y), truth(x != 0.0), x, raw, -raw];
            assert_eq!(row.map(f32::to_bits), expected.map(f32::to_bits), "{subnormals:?} of {x:e} and {y:e}: {row:?}, not {expected:?}");
        }
    }
}
