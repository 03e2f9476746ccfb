//! Random programs: the interpreter against the scalar oracle. `ELINVAR_PROGRAMS` says how many, `ELINVAR_SEED` where to start.

use elinvar_atlas::{
    Constant, Limits, decode, encode, format,
    interpret::{Argument, Interpreter},
    parse, verify,
};
use elinvar_core::{Access, DType};
use rayon::prelude::*;

use crate::common::random::{TYPES, launch, parameters, program, run_by_oracle, same};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn check(seed: u64) {
    let program = program(seed, if seed.is_multiple_of(4) { DType::PROGRAMS } else { TYPES });
    let text = format(&program);
    let verified = verify(program.clone(), &Limits::default()).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
    let launch = launch(&program, seed);
    let mut buffers = parameters(&program, seed);
    let expected = run_by_oracle(&program, &launch, seed);
    let arguments = program.parameters.iter().zip(&mut buffers);
    let arguments = arguments
        .map(|(parameter, words)| match parameter.access {
            Some(Access::Read) => Argument::Read(&bytemuck::cast_slice(&words.0)[..words.1]),
            Some(_) => Argument::Write(&mut bytemuck::cast_slice_mut(&mut words.0)[..words.1]),
            None => Argument::Scalar(Constant { dtype: parameter.dtype, bits: words.0[0] }),
        })
        .collect();
    Interpreter::new(verified).run(&launch, arguments).unwrap();
    for ((parameter, words), expected) in program.parameters.iter().zip(&buffers).zip(&expected) {
        let found = &bytemuck::cast_slice(&words.0)[..words.1];
        if let Some(place) = same(parameter.dtype, found, expected) {
            panic!("seed {seed}: {}[{place}] differs\n{text}", parameter.name);
        }
    }
    // Through both forms and back it is the same program.
    let bytes = encode(&program);
    assert_eq!(encode(&parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"))).len(), bytes.len());
    assert_eq!(format(&decode(&bytes).unwrap()), text);
}

#[test]
fn random_programs_do_what_the_oracle_says() {
    let first = number("ELINVAR_SEED", 1);
    (first..first + number("ELINVAR_PROGRAMS", 500)).into_par_iter().for_each(check);
}
