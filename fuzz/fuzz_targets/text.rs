//! The text form: what is read is written, read again and is the same; what is verified can be rendered.
#![no_main]

use elinvar_atlas::{Limits, encode, format, parse, render, verify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(program) = parse(text) else { return };
    let bytes = encode(&program);
    let Ok(verified) = verify(program, &Limits::default()) else { return };
    let written = format(verified.program());
    let again = parse(&written).expect("what is written can be read");
    assert_eq!(format(&again), written);
    assert_eq!(encode(&again).len(), bytes.len());
    render::metal(&verified, true);
});
