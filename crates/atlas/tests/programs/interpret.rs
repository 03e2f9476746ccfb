//! Whole programs on the interpreter.

use bytemuck::{cast_slice, cast_slice_mut};
use elinvar_atlas::{
    Constant, LaunchConfig, Limits,
    interpret::{Argument, Interpreter},
    parse, verify,
};
use elinvar_math as math;

fn interpreter(text: &str) -> Interpreter {
    Interpreter::new(verify(parse(text).unwrap(), &Limits { steps: Some(1 << 20), ..Limits::default() }).unwrap())
}

const ADD: &str = "atlas 1\nprogram add\nbuffer a: read f32\nbuffer b: read f32\nbuffer y: write f32\nscalar n: u32\nkernel\n  i = position.x\n  \
    c = lt i n\n  if c\n    u = load a[i]\n    v = load b[i]\n    s = add u v\n    store y[i] s\n  end\nend\n";

#[test]
fn vectors_are_added() {
    let add = interpreter(ADD);
    for n in [1usize, 31, 256, 1000, 1024, 1025, 70_000] {
        let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
        let b: Vec<f32> = (0..n).map(|i| 1.0 / (i + 1) as f32).collect();
        let mut y = vec![-1f32; n + 3];
        let arguments = vec![
            Argument::Read(cast_slice(&a)),
            Argument::Read(cast_slice(&b)),
            Argument::Write(cast_slice_mut(&mut y)),
            Argument::Scalar(Constant::u32(n as u32)),
        ];
        add.run(&LaunchConfig::linear(n as u64, 256), arguments).unwrap();
        assert!(y[..n].iter().zip(a.iter().zip(&b)).all(|(y, (a, b))| *y == a + b), "{n}");
        assert_eq!(y[n..], [-1.0; 3]);
    }
}

/// Runs a program over one updated buffer of u32.
fn update(text: &str, launch: LaunchConfig, y: &mut [u32]) -> elinvar_core::Result<()> {
    interpreter(text).run(&launch, vec![Argument::Write(cast_slice_mut(y))])
}

fn kernel(header: &str, statements: &str) -> String {
    format!("atlas 1\nprogram test\n{header}\nbuffer y: update u32\nkernel\n{statements}\nend\n")
}

const BLOCK: LaunchConfig = LaunchConfig::new([1, 1, 1], [64, 1, 1]);

#[test]
fn threads_part_and_meet() {
    // Loops left at different times, `continue`, an `exit`, `if` in `if`: against the same in Rust.
    let text = kernel(
        "",
        "i = position.x\nn: u32 = move 0\nk: u32 = move 0\nloop\n  c = lt k i\n  while c\n  k = add k 1\n  odd = and k 1\n  o = eq odd 1\n  if o\n    \
         t = ge k 40\n    if t\n      break\n    else\n      continue\n    end\n  end\n  n = add n k\nend\nq = and i 7\nz = eq q 3\nif z\n  exit\nend\n\
         n = add n 1000\nstore y[i] n",
    );
    let mut y = [7u32; 200];
    update(&text, LaunchConfig::new([5, 1, 1], [32, 1, 1]), &mut y).unwrap();
    for (i, found) in y.iter().enumerate() {
        let (mut n, mut k) = (0, 0);
        while k < i as u32 {
            k += 1;
            if k % 2 == 1 {
                if k >= 40 {
                    break;
                }
                continue;
            }
            n += k;
        }
        let expected = if i >= 160 || i % 8 == 3 { 7 } else { n + 1000 };
        assert_eq!(*found, expected, "{i}");
    }
}

#[test]
fn bounds_are_kept() {
    let text = |bounds: &str| {
        kernel(
            &format!("bounds {bounds}"),
            "i = position.x\nj: i32 = convert i\nj = sub j 4\nv = load y[j]\nbig: u64 = move 18446744073709551615\nw = load y[big]\nv = add v w\n\
             w = load y[4000000000]\nv = add v w\nstore y[big] 1\nk = add i 100\nold = atomic_add y[k] 5\nv = add v old\nbarrier\nstore y[i] v",
        )
    };
    let mut y: [u32; 64] = std::array::from_fn(|i| i as u32 + 1);
    update(&text("checked"), BLOCK, &mut y).unwrap();
    assert!(y.iter().enumerate().all(|(i, v)| *v as usize == i.saturating_sub(3)), "{y:?}");
    let error = update(&text("trap"), BLOCK, &mut y).unwrap_err();
    assert!(error.to_string().contains("line 9, column 1: element -4 of 64 is out of bounds"), "{error}");
    // A lane that does not run does not trap.
    let guarded = kernel("bounds trap", "i = position.x\nc = lt i 64\nif c\n  v = load y[i]\n  v = add v 1\n  store y[i] v\nend");
    let mut y = [1u32; 64];
    update(&guarded, LaunchConfig::linear(100, 32), &mut y).unwrap();
    assert_eq!(y, [2; 64]);
}

#[test]
fn atomics_and_collectives_give_what_they_say() {
    let text = kernel(
        "shared s: u32[8]",
        "i = local_index\nbin = rem i 8\natomic_max s[bin] i\nbarrier\nv = load s[bin]\nl = lane\ng = simdgroup\nsum = simd_add i\nall = group_xor i\n\
         up = simd_shuffle_up i 3\ndown = simd_shuffle_down i 3\nfar = simd_shuffle i 37\nother = simd_shuffle_xor i 5\nx = mad sum 3 all\nx = mad x 3 up\n\
         x = mad x 3 down\nx = mad x 3 far\nx = mad x 3 other\nx = mad x 3 v\nx = mad x 3 l\nx = mad x 3 g\nstore y[i] x",
    );
    let mut y = [0u32; 64];
    update(&text, BLOCK, &mut y).unwrap();
    for (index, found) in y.iter().enumerate() {
        let i = index as u32;
        let (lane, first) = (i % 32, i / 32 * 32);
        let terms = [
            (first..first + 32).sum(),
            (0..64).fold(0, |a, b| a ^ b),
            if lane < 3 { i } else { i - 3 },
            if lane > 28 { i } else { i + 3 },
            first + 5,
            i ^ 5,
            56 + i % 8,
            lane,
            first / 32,
        ];
        assert_eq!(*found, terms.iter().fold(0u32, |x, term| x.wrapping_mul(3).wrapping_add(*term)), "{i}");
    }
    let text = kernel(
        "",
        "i = position.x\nzero = sub i i\nloop\n  old = load y[zero]\n  new = add old i\n  found = atomic_cas y[zero] old new\n  failed = ne found old\n  while failed\nend",
    );
    let mut y = [1u32];
    update(&text, LaunchConfig::new([20, 1, 1], [64, 1, 1]), &mut y).unwrap();
    assert_eq!(y, [1 + (0..1280).sum::<u32>()]);
}

#[test]
fn a_loop_without_end_is_stopped() {
    let error =
        update(&kernel("", "loop\n  c = ne 1 n\n  while c\nend").replace("c = ne 1 n", "z = block.x\n  c = eq z 0"), BLOCK, &mut [0]).unwrap_err();
    assert!(error.to_string().contains("line 6, column 1: the loops of a thread took more steps than they may"), "{error}");
}

#[test]
fn an_operand_that_is_the_same_in_all_lanes_gives_what_lanes_of_it_give() {
    // Steps fuse, values stay in tiles, and a number takes the place of lanes: over several pieces of several strips.
    let program = |dtype: &str, low: &str, high: &str| {
        interpreter(&format!(
            "atlas 1\nprogram test\nbuffer a: read {dtype}\nbuffer b: read {dtype}\nbuffer y: write {dtype}\nscalar l: {dtype}\nscalar h: {dtype}\nkernel\n  \
             i = position.x\n  u = load a[i]\n  v = load b[i]\n  k = add i 70000\n  w = load b[k]\n  c = max u {low}\n  c = min c {high}\n  \
             m = mul c {low}\n  m = add m {high}\n  d = sub {high} m\n  d = mad d {high} u\n  e = mul d {low}\n  e = add e c\n  s = gt e {low}\n  \
             t = select s {low} {high}\n  e = sub e t\n  store y[i] e\nend\n"
        ))
    };
    fn run<T: bytemuck::Pod>(interpreter: &Interpreter, values: &[T], low: (T, Constant), high: (T, Constant)) -> Vec<T> {
        const N: usize = 70_000;
        let a: Vec<T> = values.iter().copied().cycle().take(N).collect();
        let b = [vec![low.0; N], vec![high.0; N]].concat();
        let mut y = vec![T::zeroed(); N];
        let arguments = vec![
            Argument::Read(cast_slice(&a)),
            Argument::Read(cast_slice(&b)),
            Argument::Write(cast_slice_mut(&mut y)),
            Argument::Scalar(low.1),
            Argument::Scalar(high.1),
        ];
        interpreter.run(&LaunchConfig::linear(N as u64, 250), arguments).unwrap();
        y
    }
    let floats = [0.0, -0.0, 1.5, -2.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 3e38];
    for low in floats {
        for high in [0.0, -0.0, 2.0, f32::INFINITY, f32::NAN] {
            let [same, lanes] = [program("f32", "l", "h"), program("f32", "v", "w")]
                .map(|p| run(&p, &floats, (low, Constant::f32(low)), (high, Constant::f32(high))));
            assert!(same.iter().zip(&lanes).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()), "{low} {high}");
        }
    }
    let numbers = [0u32, 1, 7, 1 << 31, u32::MAX];
    let [same, lanes] =
        [program("u32", "l", "h"), program("u32", "v", "w")].map(|p| run(&p, &numbers, (3, Constant::u32(3)), (900, Constant::u32(900))));
    assert_eq!(same, lanes);
}

#[test]
fn a_register_takes_another_value_in_the_middle_of_a_line() {
    // Of the first line nothing but a load is left, after a sum that nobody asks for; in the second one a load takes the place of lanes in use.
    let program = interpreter(
        "atlas 1\nprogram test\nbuffer a: read f32\nbuffer b: read f32\nbuffer y: write f32\nkernel\n  i = position.x\n  u = load a[i]\n  \
         r = load b[i]\n  c = lt u r\n  s = add u r\n  barrier\n  s = add u u\n  s = load b[i]\n  barrier\n  s = add u s\n  if c\n    store y[i] u\n  end\n  \
         t = add s 1.0\n  s = load a[i]\n  s = mul t s\n  store y[i] s\nend\n",
    );
    const N: usize = 2048;
    let [a, b]: [Vec<f32>; 2] = [3, 5].map(|step| (0..N).map(|i| (i * step % 17) as f32).collect());
    let mut y = vec![0f32; N];
    let arguments = vec![Argument::Read(cast_slice(&a)), Argument::Read(cast_slice(&b)), Argument::Write(cast_slice_mut(&mut y))];
    program.run(&LaunchConfig::new([2, 1, 1], [1024, 1, 1]), arguments).unwrap();
    assert!(y.iter().zip(a.iter().zip(&b)).all(|(y, (a, b))| *y == (a + b + 1.0) * a));
}

#[test]
fn a_gate_gives_the_bits_of_its_steps_and_is_clamped_as_max_and_min_say() {
    const N: usize = 4096;
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.5, -0.5, 1e-30, -1e-30, 3e38];
    let a: Vec<f32> = (0..N).map(|i| if i % 3 == 0 { special[i / 3 % special.len()] } else { (i % 97) as f32 / 16.0 - 3.0 }).collect();
    let b: Vec<f32> = (0..N).map(|i| if i % 5 == 0 { special[i / 5 % special.len()] } else { (i % 89) as f32 / 8.0 - 5.0 }).collect();
    let run = |text: &str| {
        let mut y = vec![0f32; N];
        let arguments = vec![Argument::Read(cast_slice(&a)), Argument::Read(cast_slice(&b)), Argument::Write(cast_slice_mut(&mut y))];
        interpreter(text).run(&LaunchConfig::new([4, 1, 1], [1024, 1, 1]), arguments).unwrap();
        y
    };
    let text = |function: &str, factor: &str, other: &str, clamp: &str| {
        format!(
            "atlas 1\nprogram test\nbuffer a: read f32\nbuffer b: read f32\nbuffer y: write f32\nkernel\n  i = position.x\n  u = load a[i]\n  \
             v = load b[i]\n  s = {function} u\n  s = mul s {factor}\n  s = add s {other}\n{clamp}  store y[i] s\nend\n"
        )
    };
    let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
    type Function = fn(f32) -> f32;
    let functions: [(&str, Function); 7] = [
        ("exp", math::exp),
        ("tanh", math::tanh),
        ("sigmoid", math::sigmoid),
        ("silu", math::silu),
        ("erf", math::erf),
        ("gelu", math::gelu),
        ("gelu_tanh", math::gelu_tanh),
    ];
    for (function, value) in functions {
        for (factor, other) in [("v", "u"), ("v", "v"), ("v", "1.0"), ("2.0", "u"), ("2.0", "1.0")] {
            let sums = run(&text(function, factor, other, ""));
            for (i, &sum) in sums.iter().enumerate() {
                let operand = |name: &str| match name {
                    "u" => a[i],
                    "v" => b[i],
                    number => number.parse().unwrap(),
                };
                let expected = value(a[i]) * operand(factor) + operand(other);
                assert!(same(sum, expected), "{function} {factor} {other}: {sum} for {expected}");
            }
            for [low, high] in [["-1.0", "1.0"], ["1.0", "-1.0"], ["-inf", "0.5"], ["-0.5", "inf"], ["0.0", "6.0"], ["-6.0", "-0.0"]] {
                let found = run(&text(function, factor, other, &format!("  s = max s {low}\n  s = min s {high}\n")));
                let again = format!("  t = max s {low}\n  t = min t {high}\n  c = gt t s\n  if c\n    t = add s t\n  end\n  s = move t\n");
                let again = run(&text(function, factor, other, &again));
                let [low, high] = [low, high].map(|bound| bound.parse::<f32>().unwrap());
                for (i, &sum) in sums.iter().enumerate() {
                    let larger = if sum.is_nan() || sum > low { sum } else { low };
                    let clamped = if larger.is_nan() || larger < high { larger } else { high };
                    assert!(same(found[i], clamped), "{function} {factor} {other} {low} {high}: {sum} gave {} for {clamped}", found[i]);
                    let used_again = if clamped > sum { sum + clamped } else { clamped };
                    assert!(same(again[i], used_again), "{function} {factor} {other} {low} {high}: {sum} gave {} for {used_again}", again[i]);
                }
            }
        }
    }
}

#[test]
fn a_gate_of_halves_rounds_after_each_of_its_steps() {
    use elinvar_math::float::Float;
    type Function = fn(f32) -> f32;
    fn check<T: Float>(name: &str, round: fn(f32) -> f32) {
        const N: usize = 1 << 16;
        let every = |step: usize| (0..N).map(|i| (i * step) as u16).collect::<Vec<_>>();
        let (a, b) = (every(1), every(40_503));
        let wide = |bits: &[u16]| cast_slice::<u16, T>(bits).iter().map(|x| x.to_f32()).collect::<Vec<_>>();
        let (x, z) = (wide(&a), wide(&b));
        let functions: [(&str, Function); 4] = [("exp", math::exp), ("tanh", math::tanh), ("silu", math::silu), ("erf", math::erf)];
        for (function, value) in functions {
            for clamp in ["", "  s = max s -1.0\n  s = min s 1.0\n"] {
                let text = format!(
                    "atlas 1\nprogram test\nbuffer a: read {name}\nbuffer b: read {name}\nbuffer y: write {name}\nkernel\n  i = position.x\n  \
                     u = load a[i]\n  v = load b[i]\n  s = {function} u\n  s = mul s v\n  s = add s u\n{clamp}  store y[i] s\nend\n"
                );
                let mut y = vec![0u16; N];
                let arguments = vec![Argument::Read(cast_slice(&a)), Argument::Read(cast_slice(&b)), Argument::Write(cast_slice_mut(&mut y))];
                interpreter(&text).run(&LaunchConfig::new([64, 1, 1], [1024, 1, 1]), arguments).unwrap();
                for ((&x, &z), y) in x.iter().zip(&z).zip(wide(&y)) {
                    let sum = round(round(round(value(x)) * z) + x);
                    let expected = if clamp.is_empty() || sum.is_nan() { sum } else { sum.clamp(-1.0, 1.0) };
                    assert!(y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan(), "{function} of {x:e} {name}: {y:e}, {expected:e}");
                }
            }
        }
    }
    check::<half::f16>("f16", |x| half::f16::from_f32(x).to_f32());
    check::<half::bf16>("bf16", |x| half::bf16::from_f32(x).to_f32());
}
