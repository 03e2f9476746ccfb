//! Measures the interpreter against Rust written by hand: `cargo run --release -p elinvar-atlas --example speed [PART]`. Prints
//! Markdown. PART is add, chain, mandelbrot or render; all of them if it is left out.

use std::{error::Error, hint::black_box, time::Instant};

use bytemuck::{cast_slice, cast_slice_mut};
use elinvar_atlas::{
    Constant, LaunchConfig, Limits,
    interpret::{Argument, Interpreter},
    parse, render, verify,
};
use elinvar_math::{self as math, simd};
use rayon::prelude::*;

const ADD: &str = "atlas 1\nprogram add\nbuffer a: read f32\nbuffer b: read f32\nbuffer y: write f32\nscalar n: u32\nkernel\n  i = position.x\n  \
    c = lt i n\n  if c\n    u = load a[i]\n    v = load b[i]\n    s = add u v\n    store y[i] s\n  end\nend\n";

const CHAIN: &str = "atlas 1\nprogram chain\nbuffer a: read f32\nbuffer b: read f32\nbuffer y: write f32\nscalar n: u32\nkernel\n  i = position.x\n  \
    c = lt i n\n  if c\n    u = load a[i]\n    v = load b[i]\n    s = silu u\n    s = mul s v\n    s = add s u\n    s = max s -1.0\n    s = min s 1.0\n    \
    store y[i] s\n  end\nend\n";

const MANDELBROT: &str = include_str!("../../../examples/mandelbrot.atlas");

simd! {
    fn add_part(a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

simd! {
    fn chain_part(a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, &a), b) in y.iter_mut().zip(a).zip(b) {
            *y = (math::silu(a) * b + a).clamp(-1.0, 1.0);
        }
    }
}

fn mandelbrot(x: u32, y: u32, size: [f32; 2]) -> u32 {
    let (cr, ci) = (x as f32 / size[0] * 3.5 - 2.5, y as f32 / size[1] * 2.0 - 1.0);
    let (mut zr, mut zi, mut count) = (0f32, 0f32, 0);
    while count < 256 {
        let (rr, ii) = (zr * zr, zi * zi);
        if rr + ii > 4.0 {
            break;
        }
        let product = zr * zi;
        (zr, zi, count) = (rr - ii + cr, product + product + ci, count + 1);
    }
    count
}

/// The medians of alternating runs of both, in seconds, and of the ratios of neighbouring ones.
fn race(rounds: usize, mut a: impl FnMut(), mut b: impl FnMut()) -> [f64; 3] {
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    let mut rows: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds + 1 {
        let (a, b) = (time(&mut a), time(&mut b));
        if round > 0 {
            rows.iter_mut().zip([a, b, b / a]).for_each(|(row, value)| row.push(value));
        }
    }
    rows.map(|mut row| {
        row.sort_by(f64::total_cmp);
        row[rounds / 2]
    })
}

fn row(name: &str, [ours, theirs, ratio]: [f64; 3]) {
    println!("| {name} | {:.1} | {:.1} | {ratio:.2} |", ours * 1e6, theirs * 1e6);
}

fn elementwise(name: &str, text: &str, n: usize, rounds: usize, by_hand: fn(&[f32], &[f32], &mut [f32])) -> Result<(), Box<dyn Error>> {
    let interpreter = Interpreter::new(verify(parse(text)?, &Limits::default())?);
    let a: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 / 100.0 - 5.0).collect();
    let b: Vec<f32> = (0..n).map(|i| (i % 777) as f32 / 100.0 - 4.0).collect();
    let (mut y, mut z) = (vec![0f32; n], vec![0f32; n]);
    let launch = LaunchConfig::linear(n as u64, 256);
    let mut failed = None;
    let times = race(
        rounds,
        || {
            let arguments = vec![
                Argument::Read(cast_slice(&a)),
                Argument::Read(cast_slice(&b)),
                Argument::Write(cast_slice_mut(&mut y)),
                Argument::Scalar(Constant::u32(n as u32)),
            ];
            failed = interpreter.run(&launch, arguments).err();
        },
        || {
            const PART: usize = 1 << 14;
            if n <= 1 << 16 {
                by_hand(&a, &b, &mut z);
            } else {
                z.par_chunks_mut(PART).zip(a.par_chunks(PART)).zip(b.par_chunks(PART)).for_each(|((z, a), b)| by_hand(a, b, z));
            }
        },
    );
    assert!(failed.is_none() && y.iter().zip(&z).all(|(y, z)| y.to_bits() == z.to_bits()), "{failed:?}");
    row(&format!("{name}, n = {n}"), times);
    Ok(())
}

fn fractal() -> Result<(), Box<dyn Error>> {
    let interpreter = Interpreter::new(verify(parse(MANDELBROT)?, &Limits::default())?);
    let (width, height) = (1024u32, 512u32);
    let mut counts = vec![0u32; (width * height) as usize];
    let mut expected = counts.clone();
    let launch = LaunchConfig::new([width / 16, height / 16, 1], [16, 16, 1]);
    let mut failed = None;
    let times = race(
        3,
        || {
            let arguments =
                vec![Argument::Write(cast_slice_mut(&mut counts)), Argument::Scalar(Constant::u32(width)), Argument::Scalar(Constant::u32(height))];
            failed = interpreter.run(&launch, arguments).err();
        },
        || {
            expected.par_chunks_mut(width as usize).enumerate().for_each(|(y, row)| {
                for (x, count) in row.iter_mut().enumerate() {
                    *count = mandelbrot(black_box(x as u32), y as u32, [width as f32, height as f32]);
                }
            });
        },
    );
    assert!(failed.is_none() && counts == expected, "{failed:?}");
    row(&format!("Mandelbrot {width}x{height}"), times);
    Ok(())
}

fn long_program() -> Result<(), Box<dyn Error>> {
    let mut text = String::from("atlas 1\nprogram long\nbuffer y: update f32\nkernel\n  i = position.x\n  v = load y[i]\n");
    for i in 0..500 {
        text += &format!("  r{i} = fma v {i}.5 v\n  v = add r{i} v\n");
    }
    let program = parse(&(text + "  store y[i] v\nend\n"))?;
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let program = program.clone();
        let start = Instant::now();
        let verified = verify(program, &Limits::default())?;
        black_box(render::metal(&verified, true));
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("\nverification and rendering of {} instructions: {:.2} ms", program.kernel.body.len(), best * 1e3);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let only = std::env::args().nth(1).unwrap_or_default();
    println!("{} threads\n\n| work | interpreter, µs | by hand, µs | ratio |\n| --- | --- | --- | --- |", rayon::current_num_threads());
    if "add".contains(&only) {
        elementwise("add", ADD, 1 << 24, 31, add_part)?;
        elementwise("add", ADD, 1 << 20, 201, add_part)?;
        elementwise("add", ADD, 1 << 16, 1001, add_part)?;
    }
    if "chain".contains(&only) {
        elementwise("clamp(silu(a)·b + a)", CHAIN, 1 << 24, 31, chain_part)?;
        elementwise("clamp(silu(a)·b + a)", CHAIN, 1 << 18, 201, chain_part)?;
    }
    if "mandelbrot".contains(&only) {
        fractal()?;
    }
    if "render".contains(&only) {
        long_program()?;
    }
    Ok(())
}
