//! Metal libraries: the input is a file, of which every function is described.
#![no_main]

use elinvar_metallib::{Library, describe};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(library) = Library::read("input", data) else { return };
    for function in library.functions() {
        let _ = describe(function.bitcode);
    }
});
