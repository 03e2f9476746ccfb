//! The binary form: the input is a program's bytes without the header and the checksum, which are put around it.
#![no_main]

use elinvar_atlas::{Limits, decode, encode, format, parse, render, verify};
use libfuzzer_sys::fuzz_target;

mod sealed;

fuzz_target!(|data: &[u8]| {
    let _ = decode(data);
    let bytes = sealed::sealed(data);
    let Ok(program) = decode(&bytes) else { return };
    assert_eq!(encode(&program), bytes);
    format(&program);
    let Ok(verified) = verify(program, &Limits::default()) else { return };
    let written = format(verified.program());
    let again = parse(&written).expect("what is written can be read");
    assert_eq!(format(&again), written);
    render::metal(&verified, true);
});
