//! Whole programs on the interpreter.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use bytemuck::{cast_slice, cast_slice_mut};
use elinvar_atlas::{
    Constant, LaunchConfig, Limits,
    interpret::{Argument, Interpreter},
    parse, verify,
};

fn interpreter(text: &str) -> Interpreter {
    Interpreter::new(verify(parse(text).unwrap(), &Limits::default()).unwrap())
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
