//! Every instruction on every type, against an evaluation of one value at a time.

use elinvar_atlas::{
    LaunchConfig, Limits, decode, encode, format,
    interpret::{Argument, Interpreter},
    parse, verify,
};
use elinvar_core::{Access, DType};

use crate::common::{
    THREADS,
    cooperation::{Cooperation, LAUNCH},
    difference, table,
};

/// Bytes where elements of any type may lie.
struct Aligned(Vec<u64>, usize);

impl Aligned {
    fn new(bytes: &[u8]) -> Self {
        let mut words = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self(words, bytes.len())
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..self.1]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..self.1]
    }
}

#[test]
fn instructions_give_what_they_say() {
    for &dtype in DType::PROGRAMS {
        // Blocks that share strips, one block, and blocks of one thread in strips of their own.
        for (divergent, block) in [(false, 64), (true, 64), (false, THREADS as u32), (true, THREADS as u32), (false, 1), (true, 1)] {
            let table = table(dtype, DType::PROGRAMS, divergent);
            // A barrier keeps blocks apart: with one thread each, everything is uniform.
            let text = if block == 1 { table.text.replace("i = position.x", "barrier\n  i = block.x") } else { table.text.clone() };
            let program = parse(&text).unwrap_or_else(|error| panic!("{dtype}: {error}\n{}", table.text));
            let interpreter = Interpreter::new(verify(program, &Limits::default()).unwrap());
            let [a, b, c] = [&table.a, &table.b, &table.c].map(|bytes| Aligned::new(bytes));
            let mut outputs: Vec<_> = table.outputs.iter().map(|(_, _, bytes)| Aligned::new(&vec![0xa5; bytes.len()])).collect();
            let inputs = [&a, &b, &c].map(|bytes| Argument::Read(bytes.bytes()));
            let arguments = inputs.into_iter().chain(outputs.iter_mut().map(|out| Argument::Write(out.bytes_mut()))).collect();
            // Threads beyond the last load zeros, and store where the next instruction's results come: so the grid is exact.
            let launch = LaunchConfig::new([THREADS as u32 / block, 1, 1], [block, 1, 1]);
            interpreter.run(&launch, arguments).unwrap();
            for (output, found) in outputs.iter().enumerate() {
                if let Some(difference) = difference(&table, output, found.bytes()) {
                    panic!("{dtype}, divergent {divergent}, blocks of {block}: {difference}");
                }
            }
        }
    }
}

#[test]
fn threads_together_give_what_they_say() {
    for cooperation in Cooperation::all(DType::PROGRAMS) {
        let interpreter = Interpreter::new(verify(cooperation.program.clone(), &Limits::default()).unwrap());
        let mut buffers: Vec<_> = (0..cooperation.buffers.len()).map(|buffer| Aligned::new(&cooperation.bytes(buffer))).collect();
        let parameters = &cooperation.program.parameters;
        let arguments = buffers.iter_mut().zip(parameters).map(|(buffer, parameter)| match parameter.access {
            Some(Access::Read) => Argument::Read(buffer.bytes()),
            _ => Argument::Write(buffer.bytes_mut()),
        });
        interpreter.run(&LAUNCH, arguments.collect()).unwrap();
        let found: Vec<_> = buffers.iter().map(|buffer| buffer.bytes().to_vec()).collect();
        assert_eq!(cooperation.difference(&found), None);
    }
}

#[test]
fn forms_round_trip() {
    for &dtype in DType::PROGRAMS {
        let program = parse(&table(dtype, DType::PROGRAMS, true).text).unwrap();
        let (text, bytes) = (format(&program), encode(&program));
        assert_eq!(encode(&parse(&text).unwrap()), bytes);
        assert_eq!(format(&decode(&bytes).unwrap()), text);
    }
}

#[test]
fn damaged_binaries_are_rejected() {
    let bytes = encode(&parse(&table(DType::F16, DType::ALL, true).text).unwrap());
    let rejected = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
    assert!(rejected(b"ELF").contains("no Atlas binary"));
    assert!((8..bytes.len()).step_by(7).all(|end| rejected(&bytes[..end]).contains("damaged")));
    let mut newer = bytes.clone();
    newer[4] = 3;
    assert!(rejected(&newer).contains("of version 3: this build reads version 2"));
    // Damage that the checksum was made to fit is read or rejected, and what is read is verified or rejected: nothing panics.
    let mut verified = 0;
    for place in 8..bytes.len() - 8 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[place] = value;
            let body = damaged.len() - 8;
            let sum = damaged[..body].iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
            damaged[body..].copy_from_slice(&sum.to_le_bytes());
            verified += usize::from(decode(&damaged).and_then(|program| verify(program, &Limits::default())).is_ok());
        }
    }
    assert!(verified > 0);
}
