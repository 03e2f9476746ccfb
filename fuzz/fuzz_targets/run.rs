//! Verified programs, run: whatever they do, they end and touch nothing but their buffers. Build it with the address sanitizer.
#![no_main]

use elinvar_atlas::{
    Constant, LaunchConfig, Limits, decode,
    interpret::{Argument, Interpreter},
    verify,
};
use elinvar_core::Access;
use libfuzzer_sys::fuzz_target;

mod sealed;

/// Elements of each buffer.
const ELEMENTS: usize = 40;

fuzz_target!(|data: &[u8]| {
    let Ok(program) = decode(&sealed::sealed(data)) else { return };
    let limits = Limits { steps: Some(300), ..Limits::default() };
    let Ok(verified) = verify(program, &limits) else { return };
    let given = verified.program().shared.iter().find(|shared| shared.length == 0).map_or(0, |shared| 16 * shared.dtype.size() as u32);
    let launch = LaunchConfig::new([2, 1, 1], verified.program().block.unwrap_or([32, 1, 1])).with_shared_memory(given);
    let parameters = verified.program().parameters.clone();
    let interpreter = Interpreter::new(verified);
    let mut buffers: Vec<_> = parameters.iter().map(|p| vec![0x3f80_0001_0203_0405u64; (ELEMENTS * p.dtype.size()).div_ceil(8)]).collect();
    let arguments = parameters.iter().zip(&mut buffers).map(|(parameter, words)| {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        match parameter.access {
            None => Argument::Scalar(Constant { dtype: parameter.dtype, bits: 1 }),
            Some(Access::Read) => Argument::Read(bytes),
            Some(_) => Argument::Write(bytes),
        }
    });
    let _ = interpreter.run(&launch, arguments.collect());
});
